"""Mappings at work: one thread each, which takes messages, maps them, puts them, many to a unit of work.

`registry` starts and changes them, `runner` is what they have in common; `transfer` is within the queue manager,
`link_intake` from a broker, `link_outlet` and `exact_outlet` to one. What a mapping makes of a message is
`bridge.mapping`.
"""
