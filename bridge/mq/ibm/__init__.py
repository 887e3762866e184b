"""IBM MQ, via the packages ibmmq or pymqi: connections, and the threads that own them.

`connection` makes the MQI calls with `parameters`, and `host` provides connections to the service. `backend` passes the
telemetry service's units of work to a `publisher`, a `remover` and a `subscriber`. A `browser` delivers each `transmission`
on the queue. Each of these has its own connection, and `coordination` keeps them in order. `persistent_state` is
SYSTEM.MQTT.PERSISTENT.STATE. `requirements` lists required objects and authorities, and `requirements_check` reports missing
ones.
"""
