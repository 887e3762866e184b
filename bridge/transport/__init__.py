"""Network connections of MQTT clients: listeners, sockets, and the layers between the network and MQTT.

`channel` contains the listeners, `stream` the TCP and Unix socket connections. `layer` defines protocol layers; `proxy`,
`tls` and `websocket` implement them.
"""
