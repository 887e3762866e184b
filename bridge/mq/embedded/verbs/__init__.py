"""The verbs of the MQI at the embedded queue manager, as an application uses them.

A function for each, on a connection handle (`hconn`), in a file of its name: `mqconn` (and MQDISC), `mqopen`, `mqclose`,
`mqput`, `mqget`, `mqsub`, `mqinq`, `mqstat`, `mqcmit` (and MQBACK). `application` calls them, `batches` many in a row. Beside
them stands what they need of handles and messages.
"""
