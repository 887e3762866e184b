"""Queue managers: IBM MQ (`ibm`, via pymqi or ibmmq) and the embedded one (`embedded`).

`mqi` is the MQI in Python for both. `backend` is the interface to the telemetry service, and `host` starts and stops a queue
manager. Mappings get messages with `message_consumer` and put them with `message_producer`.
"""
