"""The running bridge.

`telemetry` owns the sessions. `client_handler` turns client packets into units of work of a backend (`bridge.mq.backend`), or
starts a sequence that answers them (`connecting`, `subscriptions`). `delivery` sends messages from the queue manager to
clients. `events` publishes these activities to subscribers. `lifecycle` starts and stops the bridge, `process` runs it.
`mappings` contains the threads that move messages. Protocol rules are elsewhere: in `bridge.mqtt` for MQTT and in
`bridge.mapping` for message conversion.
"""
