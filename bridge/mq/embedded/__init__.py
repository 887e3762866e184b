"""The embedded queue manager: queues, topics, subscriptions and units of work in this process, persistent messages in SQLite.

At the top is what every room works on: `queuemanager` on `messages` on `objects`, `queue` with its messages, `topics`,
`unit`, and `backend`, by which the telemetry service uses them. The rooms: `verbs` (the MQI), `mqsc`, `pcf`, `authority`,
`selector`, `storage`, and `server` (other processes).
"""
