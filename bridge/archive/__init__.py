"""The archive: messages as rows of Parquet files. The service writes it, and audit, report and replay read it."""
