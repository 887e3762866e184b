"""The embedded queue manager: queues, topics, subscriptions and units of work in this process, persistent messages in SQLite.

`queuemanager` builds on `messages`, which builds on `objects`. The telemetry service uses the queue manager via `backend`.
Subpackages: `verbs` (the MQI), `mqsc` and `pcf` (commands), `storage`, and `server` (connections of other processes).
"""
