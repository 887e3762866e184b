"""A queue manager as it is looked at from time to time: its queues, and what an embedded one keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A local queue."""

    name: str
    #: USAGE(XMITQ)
    transmission: bool
    depth: int
    max_depth: int
    #: seconds since the oldest message was put; None: there is none, or the queue manager does not tell
    oldest_message_age: float | None
    input_handles: int
    output_handles: int
    #: PUT(DISABLED)
    put_inhibited: bool = False


class QueueManagerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a look has found."""

    queues: Sequence[QueueStatus]
    #: the name of the dead-letter queue; blank if there is none
    dead_letter_queue: str = ""
    #: the queue manager puts messages there without a line in the log of the bridge
    diverts_silently: bool = True
    #: local queues that are not among them, for they are too many
    left_out: int = 0
    #: of an embedded queue manager: retained publications, bytes of its files by what they hold, and whether the disk is full
    retained: int | None = None
    file_sizes: Mapping[str, int] = {}
    disk_full: bool | None = None


class QueueManagerInquiry(Protocol):
    """What looks at a queue manager; all of it is called on one thread."""

    #: seconds between looks, at least: a look costs the queue manager something
    interval: float

    def look(self, queues: Sequence[str], *, ages: bool = True) -> QueueManagerStatus:
        """Look at these queues, those left out that are not there, and at others where that is cheap. Raises MQError.

        `ages` asks for the ages of messages, too, which cost a command.
        """

    def close(self) -> None:
        """End: there are no more looks."""
