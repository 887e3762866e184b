"""Metrics of a running bridge: counted on its event loop as plain numbers, a batch at a time, and gathered when asked for.

Nothing of `prometheus_client` is on the way of a message: `bridge.console.metrics` makes families of what `snapshot` gathers.
"""
