"""Rows of the log on disk, as the messages know them that stand there."""

from __future__ import annotations


class Row:
    """What is still wanted of a row of the log."""

    __slots__ = ("id", "live", "logged", "removed_by", "size", "tombstones")

    def __init__(self, row_id: int, size: int) -> None:
        self.id = row_id
        self.size = size
        #: messages put by this row
        self.logged = 0
        #: those of them that are still on a queue
        self.live = 0
        #: removals in this row of messages whose own rows still exist
        self.tombstones = 0
        #: rows that remove messages of this one, and how many each
        self.removed_by: dict[Row, int] = {}
