"""IBM MQ, through the packages ibmmq or pymqi: connections, and the threads that own them.

`connection` makes the MQI calls (`client_library`, `client_structures` know the packages), `host` brings one to the
service. `backend` takes the telemetry service's units of work to a `publisher`, a `remover` and a `subscriber`, and hears
from a `browser` of each `transmission` that lies on the queue; each has a connection of its own. `persistent_state` is
SYSTEM.MQTT.PERSISTENT.STATE; `requirements` is what the bridge needs there, and `requirements_check` what is missing. What
mappings do with messages is beside this room, in `bridge.mq`.
"""
