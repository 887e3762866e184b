"""PCF commands of IBM MQ, a file for each family of commands.

Each becomes the MQSC command or the display that does the same, so that what the queue manager allows is written once.
"""
