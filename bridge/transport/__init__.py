"""Network connections of MQTT clients: listeners, sockets, and the layers between their bytes and those of MQTT.

`channel` is a listener with its rules, `stream` is a TCP or Unix socket connection. `proxy`, `tls` and `websocket` are layers
(`layer`). `interface` is the contract between a transport and the owner of the connection.
"""
