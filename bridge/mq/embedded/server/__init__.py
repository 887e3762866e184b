"""Connections of MQ applications to the embedded queue manager: from this process, from other processes, and over TCP.

`connection` is for threads of this process, and `client` for other Python processes. `server` listens, `conversation` handles
one connection, `protocol` defines the frames, and `admission` authenticates applications.
"""
