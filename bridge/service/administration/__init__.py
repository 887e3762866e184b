"""Administration of a running bridge: the requests of `bridge.administration`, answered on its event loop."""
