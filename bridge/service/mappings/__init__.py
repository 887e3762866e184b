"""Running mappings: one thread each, which takes messages, maps them and puts them, many per unit of work.

`registry` starts and changes mappings. `runner` contains their common parts. `transfer` moves messages within the queue
manager, `from_link` from a broker, `to_link` to a broker, `exactly_once` to a broker exactly once. `bridge.mapping` converts
messages.
"""
