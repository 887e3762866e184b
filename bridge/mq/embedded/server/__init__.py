"""MQ applications at the embedded queue manager: connections from this process, from others, and over TCP.

`connection` is for threads of this process, `client` for other processes in Python; `server` listens, `conversation` is
one connection, `protocol` the frames, `admission` who may connect.
"""
