"""COBOL records: copybooks, the layouts that they describe, and conversion between records and JSON documents."""
