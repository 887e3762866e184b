"""MQSC commands of the embedded queue manager.

`commands` dispatches commands to `definitions`, `display` and `channels`. The syntax and the AMQ messages are in
`bridge.mq.mqsc`, and the attributes of objects in `bridge.mq.embedded.attributes`.
"""
