"""The messages of the log: their identifiers, what each of them means, and what to do about it."""
