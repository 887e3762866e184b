"""Traces: spans of publications, deliveries and mappings, for a collector of OpenTelemetry.

`span` is plain data; `publications`, `deliveries` and `mappings` make it of what passes; `export` alone knows OpenTelemetry.
"""
