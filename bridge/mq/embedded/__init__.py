"""The embedded queue manager: queues, topics, subscriptions and units of work in this process, persistent messages in SQLite.

`queuemanager` builds on `objects`. The telemetry service uses it via `backend`, threads of this process via `connection`, and
other processes via `server`. Subpackages: `verbs` (the MQI), `mqsc` (commands) and `storage`.
"""
