"""The formats: bytes to values and back, without policy and without I/O.

`mqtt` has MQTT packets, `mq` the structures in front of MQ messages (MQMD, RFH2, MQXQH, MQDLH, PCF); `cmqc` and `cmqcfc`
are IBM's constants. What the values mean is decided above.
"""
