"""Authentication and authorization of clients: TLS, authenticators and channel authentication records.

Shared by channels, the listener for MQ applications and the commands.
"""
