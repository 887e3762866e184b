"""Running mappings: one thread each, which takes messages, maps them and puts them, many per unit of work.

`registry` starts and changes mappings. `runner` moves messages within the queue manager, `link_runner` from and to a broker,
`exactly_once` to a broker exactly once. `bridge.mapping` converts messages.
"""
