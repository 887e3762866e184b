"""The embedded queue manager: queues, topics, subscriptions and units of work in this process, persistent messages in SQLite.

At the top is what every room works on: `queuemanager`, `objects`, `queue`, `topics`, `unit`, `stored` (a message on a
queue), and `agent`, by which the telemetry service uses them. The rooms: `verbs` (the MQI), `mqsc`, `pcf`, `authority`,
`selector`, `storage`, `server` (other processes) and `capi` (programs in C).
"""
