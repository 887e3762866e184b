"""Transports: bytes between a network connection and a `bridge.mqtt.protocol.ServerProtocol`, and nothing else.

`interface` is what a transport offers and what it asks of the owner of a connection; `tcp` is the one there is; `channel` is
a telemetry channel, the listener with its rules. A new transport (TLS, WebSocket, a Unix socket) stands beside `tcp`.
"""
