"""`import mqbridge` in a PySpark program. The package is `bridge`; this module is installed beside it, as `mqbridge`."""

from bridge.pipeline import register as register
