"""MQSC on the embedded queue manager: the language, the commands, and what they answer.

`language` reads scripts; `commands` finds who does a command: `definitions`, `subscriptions`, `display`,
`authority_commands`, `channel_commands`, `channel_display` …; `amq` has the messages. The attributes of objects are
`bridge.mq.embedded.attributes`; PCF is a room of its own that uses this one.
"""
