"""The disk storage of the embedded queue manager.

`recovery_log` commits units of work in groups, and `store` writes them. `layout` defines the database and its versions. For
backups and damaged databases, see `bridge.mq.database`. ARCHITECTURE.md describes the guarantees.
"""
