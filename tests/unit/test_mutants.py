"""The mutants of tests/mutants.py follow the sources: each can be planted, and its tests exist."""

from __future__ import annotations

import pytest

from tests.mutants import MUTANTS, ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.file}: {mutant.old.strip()[:40]}")
def test_a_mutant_can_be_planted(mutant: Mutant) -> None:
    assert mutant.old in (ROOT / "bridge" / mutant.file).read_text(encoding="utf-8")
    assert [test for test in mutant.tests.split() if not (ROOT / test).exists()] == []
