"""The disk storage of the embedded queue manager.

`recovery_log` commits units of work in groups, and `store` writes them. `batch` is a row of the log. `layout` defines the
database and its versions, and `completeness` finds commits that are missing. For backups and damaged databases, see
`bridge.mq.database`. ARCHITECTURE.md describes the guarantees.
"""
