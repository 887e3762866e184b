"""Queue managers: IBM MQ (`ibm`, via pymqi or ibmmq) and the embedded one (`embedded`).

`mqi` is the MQI in Python for both, and `batch` runs several calls in one round trip. `backend` is the interface to the
telemetry service. `hosts` selects the `host` that starts and stops the queue manager. Other processes connect to the embedded
queue manager with `remote`. Mappings get messages with `message_consumer` and put them with `message_producer`. `database`
backs up and repairs the embedded queue manager's `data_directory`.
"""
