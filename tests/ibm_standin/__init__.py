"""The stand-in for IBM MQ and its client library, on which the tests run the real pymqi and ibmmq. It is not shipped.

A library in C (`src`, `inc`) takes the place of IBM's in a program's process, and forwards each MQI call over a socket, with
its structures as they lie in memory. Here they are read and written: `frames` are the bytes on the socket, `structures` the
MQOD, MQPMO, MQGMO … in all their versions, `values` those of message properties, `conversation` a connection with its verbs.
`mqi` has the verbs of IBM MQ that the embedded queue manager does not have, because the bridge does not call them.
`server` adds these connections to an embedded queue manager, `channels` their server-connection channels, `attributes` the
attributes that the bridge does not inquire, and `pcf` the PCF commands that the bridge itself does not send. `cmqc` and
`cmqcfc` are the constants of the bridge and those that only the stand-in and the tests use.
"""
