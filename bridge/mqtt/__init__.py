"""MQTT: sessions of clients, telemetry channels, and links to other brokers.

`session` and `outbox` hold what a client's session is, and do no I/O; `channel` is the asyncio shell: listeners, sockets,
keep-alive. `link` is the client of brokers that somebody else runs. Packets as bytes are `bridge.wire.mqtt`; what a
publication is to MQ is `bridge.mapping`; who owns the sessions is `bridge.service`.
"""
