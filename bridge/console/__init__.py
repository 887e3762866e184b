"""The admin port of a bridge: metrics, health and the console, by HTTP, in a thread of its own."""
