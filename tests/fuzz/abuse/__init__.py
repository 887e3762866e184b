"""Abusive clients of a bridge, and their effect on another client: `python -m tests.fuzz.abuse`."""
