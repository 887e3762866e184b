"""The stand-in for IBM MQ and its client library, on which the tests run the real pymqi and ibmmq. It is not shipped.

A library in C (`src`, `inc`) replaces IBM's library in a program's process, and forwards each MQI call over a socket, with
the in-memory representation of its structures. This package reads and writes them: `frames` are the bytes on the socket,
`structures` the MQOD, MQPMO, MQGMO … in all their versions, `values` the values of message properties, and `conversation` a
connection with its verbs. `mqi` contains the verbs of IBM MQ that the embedded queue manager lacks, because the bridge does
not call them. `server` adds these connections to an embedded queue manager, `channels` their server-connection channels,
`attributes` the attributes that the bridge does not inquire, and `pcf` the PCF commands that the bridge does not send.
`cmqc` and `cmqcfc` contain the constants of the bridge, and constants that only the stand-in and the tests use.
"""
