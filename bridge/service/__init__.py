"""The service: telemetry channels, sessions, queue manager and mappings put together.

`telemetry` owns the sessions; `client`, `units` and `delivery` turn what their clients send into units of work of a backend
(`bridge.mq.backend`), and what a queue manager has for them into packets; `events` reports it to subscribers; `lifecycle` starts and
ends all of it, `process` is what it runs in; `mappings` has the threads that move messages. Rules are not here: of MQTT they
are in `bridge.mqtt`, of messages in `bridge.mapping`.
"""
