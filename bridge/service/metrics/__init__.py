"""Metrics of a running bridge, counted per batch on its event loop as plain numbers, and collected on request.

`prometheus_client` is not involved in message processing. `bridge.console.metrics` converts the `Samples` to metric families.
"""
