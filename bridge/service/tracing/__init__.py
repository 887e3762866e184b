"""Traces: spans of publications, deliveries and mappings for an OpenTelemetry collector.

`span` contains plain data, `tracing` creates spans from events, and only `export` uses OpenTelemetry.
"""
