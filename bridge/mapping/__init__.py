"""MQTT publications to MQ messages and back, as pure functions.

`to_mq` and `from_mq` are the integration tables for MQTT clients; `rules` has the YAML mappings, with their templates,
filters, loops and checks. Nothing here does I/O: the service, the archive and Spark call the same functions. The YAML file
itself is `bridge.config`; who runs a mapping is `bridge.service.mappings`.
"""
