"""Abusive clients against a bridge, and what another client notices of them: `python -m tests.fuzz.abuse`."""
