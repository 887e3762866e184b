"""The queues that the bridge keeps for itself, which deploy/mq/bridge.mqsc defines, and the command server's."""

#: Messages for the bridge's MQTT clients, where `transmission_queue` names no other.
DEFAULT_TRANSMISSION_QUEUE = "SYSTEM.MQTT.TRANSMIT.QUEUE"
#: The sessions of its clients.
STATE_QUEUE = "SYSTEM.MQTT.PERSISTENT.STATE"
#: Open for exclusive input by the bridge that is active. No message is put to it.
LOCK_QUEUE = "SYSTEM.MQTT.BRIDGE.LOCK"
#: How far mappings and pipelines have come.
MAPPING_STATE_QUEUE = "SYSTEM.MQTT.MAPPING.STATE"
#: PCF commands are put to it; the queue manager defines it.
COMMAND_QUEUE = "SYSTEM.ADMIN.COMMAND.QUEUE"
