"""The report: traffic by topic, client, QoS, size and hour, delivery times, and undelivered messages."""
