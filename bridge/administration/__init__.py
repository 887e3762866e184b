"""Administration of a running bridge: requests, answers and counters as plain data."""
