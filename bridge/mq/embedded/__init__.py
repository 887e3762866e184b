"""The embedded queue manager: queues, topics and subscriptions in this process, with persistent messages in SQLite.

`queuemanager` builds on `objects`. The telemetry service uses it via `backend`, threads of this process via `connection`, and
other processes via `server`. Subpackages: `verbs` (the MQI), `mqsc` (commands) and `storage`.
"""
