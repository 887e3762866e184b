"""Structures of IBM MQ as bytes and values, without policy and without I/O: MQMD, RFH2, MQXQH, MQDLH, PCF, constants."""
