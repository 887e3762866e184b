"""The service: telemetry channels, sessions, queue manager and mappings put together.

`telemetry` owns the sessions and turns their work into units of work of a backend (`bridge.mq.backend`); `lifecycle` starts
and ends all of it; `mappings` has the threads that move messages. Rules are not here: of MQTT they are in `bridge.mqtt`,
of messages in `bridge.mapping`.
"""
