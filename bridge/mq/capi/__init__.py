"""For programs in C: the embedded queue manager as IBM's client library sees a queue manager.

A library in the program's process forwards each MQI call over a socket with its structures as they lie in memory
(`tests/mqi` has one, on which the real pymqi and ibmmq run). Here they are read and written: `frames` are the bytes on
the socket, `structures` the MQOD, MQPMO, MQGMO … in all their versions, `values` those of message properties, `conversation`
a connection with its verbs.
"""
