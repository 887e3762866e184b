"""The MQI calls of the embedded queue manager, as functions on a connection handle (`hconn`). None of them waits.

A call whose result must not be returned before a commit also returns a unit of work. The caller submits the unit to the
recovery log and returns the result when the unit has ended: `EmbeddedConnection` for threads of this process, `Conversation`
for other processes. Call them with the queue manager's lock held. `pipeline` runs several calls in a row.
"""
