"""Messages of queues and topics as files and tables of a data lake, exactly once and without Spark."""
