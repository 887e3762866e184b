"""MQTT: the server's protocol, sessions of clients, transports, and links to other brokers.

`protocol` is what MQTT says of one connection, `acknowledgement` what it says of QoS 1 and 2; `session`, `outbox` and
`in_flight` are what a client's session is: none of them does I/O. `transport` carries bytes between a network and a
protocol. `link` is the client of brokers that somebody else runs. Packets as bytes are `bridge.wire.mqtt`; what a
publication is to MQ is `bridge.mapping`; who owns the sessions is `bridge.service`.
"""
