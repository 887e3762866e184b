"""Transports: bytes between a network connection and a `bridge.mqtt.protocol.ServerProtocol`, and nothing else.

`interface` is what a transport offers and what it asks of the owner of a connection; `stream` is the one there is, over TCP
and Unix sockets; `layer` is what may stand between its bytes and those of MQTT (`proxy`, `tls`, `websocket`); `channel` is a
telemetry channel, the listener with its rules.
"""
