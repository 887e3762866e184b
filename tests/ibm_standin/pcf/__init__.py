"""PCF commands of IBM MQ, with one file for each family of commands.

Each command is converted to the equivalent MQSC command or display, so that the queue manager's rules are in one place.
"""
