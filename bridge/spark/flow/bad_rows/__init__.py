"""Rows that do not go on: payloads that are bad, rows that a destination refuses, and how they become dead letters.

What Spark says of a batch that failed is read in `bridge.spark.flow`: `faulty_rows` and `failed_batch`.
"""
