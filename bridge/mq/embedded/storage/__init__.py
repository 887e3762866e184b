"""The disk storage of the embedded queue manager.

`recovery_log` commits units of work in groups, and `store` writes them. `layout` defines the database and its versions,
`reserve` handles a full disk, and `salvage` recovers a damaged database. ARCHITECTURE.md describes the guarantees.
"""
