"""Fuzzing of all listeners of a bridge, with a pair of clients that must not be affected: `python -m tests.fuzz`."""
