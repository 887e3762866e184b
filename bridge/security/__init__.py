"""Who a client is and what it may do: TLS, authenticators, rules of channels. Shared by channels, listener and commands."""
