"""MQ: the interface in MQI verbs, and what the service asks of a queue manager.

`mqi` is the MQI as Python has it, whichever queue manager is behind it: `ibm` (IBM MQ, through pymqi or ibmmq) or
`embedded`. `backend` is what the telemetry service asks of either, `host` how it is brought up and ended. Mappings take
messages through `message_consumer` and put them through `message_producer`. What a message is
made of is `bridge.mapping` and `bridge.wire`.
"""
