"""Which queue manager the bridge is for: its host, as the configuration says."""

from __future__ import annotations




