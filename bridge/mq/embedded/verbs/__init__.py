"""The MQI calls of the embedded queue manager, as functions on a connection handle (`hconn`). They do not wait.

A call whose result must not be returned before a commit also returns a unit of work. The caller submits the unit to the
recovery log and returns the result when the unit has ended. Callers are `EmbeddedConnection` for threads of this process and
`Conversation` for other processes. They hold the queue manager's lock.
"""
