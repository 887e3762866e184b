"""Administration of a running bridge: handlers of the requests in `bridge.administration`."""
