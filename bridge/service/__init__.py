"""The running bridge.

`telemetry` owns the sessions. `gateway` turns what clients send into units of work of a backend (`bridge.mq.backend`), or
starts a sequence that answers it (`connecting`, `subscriptions`). `delivery` sends the messages of the queue manager.
`events` reports all of it to subscribers. `lifecycle` starts and ends the bridge, `process` is what it runs in. `mappings`
has the threads that move messages. Rules are not here: those of MQTT are in `bridge.mqtt`, of messages in `bridge.mapping`.
"""
