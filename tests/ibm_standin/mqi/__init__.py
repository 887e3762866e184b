"""The verbs of IBM MQ that only the stand-in has, based on the verbs of the embedded queue manager.

They use the functions in `bridge.mq.embedded.verbs`. `connection` is a connection in the same process, for tests.
`logical_messages` implements groups and segments, `conversion` data conversion.
"""
