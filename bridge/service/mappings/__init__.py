"""Mappings at work: one thread each, which takes messages, maps them, puts them, many to a unit of work.

`registry` starts and changes them, `runner` is what they have in common; `transfer` is within the queue manager,
`from_link` from a broker, `to_link` to one, `exactly_once` to one exactly once. What a mapping makes of a message is
`bridge.mapping`.
"""
