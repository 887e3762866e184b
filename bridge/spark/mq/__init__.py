"""The data source `mq`: queues and subscriptions read as envelopes, and rows put as messages."""
