"""Administration of a running bridge as plain data: what may be asked of it, and what it answers."""
