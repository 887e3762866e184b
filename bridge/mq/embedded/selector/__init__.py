"""Message selectors: the SQL92 conditions of SelectionString, their logic, and what they see of a message."""
