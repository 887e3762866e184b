"""Fuzzing of every listener of a bridge, with a pair of clients beside it that must not notice: `python -m tests.fuzz`."""
