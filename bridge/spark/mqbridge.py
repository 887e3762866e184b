"""`import mqbridge` in a PySpark program. The package is `bridge`; this module is installed beside it, as `mqbridge`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge import spark

if TYPE_CHECKING:
    from bridge.spark import MqDataSource, MqttDataSource, register, to_messages, to_publications

__all__ = ["MqDataSource", "MqttDataSource", "register", "to_messages", "to_publications"]


def __getattr__(name: str) -> object:
    """Return what the package has under a name of this module.

    It is imported when it is asked for, since most of it brings Spark.
    """
    if name in __all__:
        return getattr(spark, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
