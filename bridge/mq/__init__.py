"""MQ: the interface in MQI verbs, and what the service asks of a queue manager.

`interface` is the MQI as Python has it, whichever queue manager is behind it: `ibm` (IBM MQ, through pymqi or ibmmq) or
`embedded`. `agent` is what the telemetry service asks; `threaded` with `publisher`, `poller` and `subscriber` does that
by threads that own connections. `intake` and `outlet` are the two ends of a mapping. What a message is made of is
`bridge.mapping` and `bridge.wire`.
"""
