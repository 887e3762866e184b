"""COBOL records: copybooks, the layouts that they describe, and conversion between records and JSON documents."""

from typing import Literal

Naming = Literal["snake", "camel", "cobol"]
"""Names in JSON for STOCK-LEVEL: stock_level, stockLevel or STOCK-LEVEL."""
Rounding = Literal["half-up", "half-even", "down"]
"""Rounding of numbers with too many decimals."""
