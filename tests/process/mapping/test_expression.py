"""CEL expressions, in a process that they could end."""

from __future__ import annotations

import subprocess
import sys


def test_null_as_a_result_does_not_end_the_process() -> None:
    program = """
from bridge.mapping.expression import Expression
from tests.unit.mapping.test_expression import Scope
expression = Expression("[payload.list]")
assert expression.value(Scope(b'{"list": [' + b"null," * 99_999 + b"null]}"))[0] == [None] * 100_000
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
