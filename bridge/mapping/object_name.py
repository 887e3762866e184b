"""Names of IBM MQ objects ("Rules for naming IBM MQ objects")."""

from __future__ import annotations

import re

_OBJECT_NAME = re.compile(r"[A-Za-z0-9._/%]{1,48}")


def is_object_name(text: str) -> bool:
    """Return whether a queue or queue manager may have that name: 1 to 48 of MQ's characters."""
    return _OBJECT_NAME.fullmatch(text) is not None
