"""Network connections of MQTT clients: listeners, sockets, and the layers between the network and MQTT.

`channel` contains the listeners, `stream` the TCP and Unix socket connections, and `layers` the PROXY protocol, TLS and
WebSocket.
"""
