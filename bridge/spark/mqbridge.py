"""The module `mqbridge` for PySpark programs. It re-exports the public names of `bridge.spark`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge import spark

if TYPE_CHECKING:
    from bridge.spark import (
        MqDataSource,
        MqttDataSource,
        from_record,
        register,
        to_messages,
        to_publications,
        to_record,
    )

__all__ = [
    "MqDataSource",
    "MqttDataSource",
    "from_record",
    "register",
    "to_messages",
    "to_publications",
    "to_record",
]


def __getattr__(name: str) -> object:
    """Import a public name of `bridge.spark` on first use, because most of them import Spark."""
    if name in __all__:
        return getattr(spark, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
