"""The archive: what passes the bridge, as rows of Parquet files. The service writes it; audit, report, replay read it."""
