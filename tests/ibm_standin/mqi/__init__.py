"""The verbs of IBM MQ that only the stand-in has, on top of those of the embedded queue manager.

They are made of the functions in `bridge.mq.embedded.verbs`. `connection` is a connection in the same process, for tests.
`logical_messages` has groups and segments, `conversion` data conversion.
"""
