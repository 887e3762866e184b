"""Structures and constants of IBM MQ as bytes and values, without policy or I/O: MQMD, RFH2, MQXQH, MQDLH, PCF."""
