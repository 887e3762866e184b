"""The audit: checks whether all messages were delivered, once, in time, and in order."""
