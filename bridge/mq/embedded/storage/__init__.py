"""What the embedded queue manager has on disk: commits in groups, the database, its checks and its salvage.

`recovery_log` ends units of work, `store` writes them, `layout` is the file itself and its versions, `reserve` the room for a
full disk, `salvage` what is left of a damaged one. ARCHITECTURE.md says what is on disk when.
"""
