"""Pipelines as an operator has them: what they do and did, and their end, from other processes. It imports no session."""
