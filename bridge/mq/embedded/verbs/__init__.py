"""The MQI calls of the embedded queue manager, as functions on a connection handle (`hconn`).

`application` calls them, and `batches` calls several in a row.
"""
