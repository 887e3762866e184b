"""The report: what passed the bridge, by topic, client, QoS, size and hour, how long it took, and what could not pass."""
