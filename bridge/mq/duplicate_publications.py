"""One publication by two subscriptions, which comes while a mapping's new subscription takes the place of the former one.

The two deliveries have nothing in common that names the publication: MsgId and CorrelId are each their own. They are alike
in all that the publisher made, and publications that are alike are as good as one another, so counting them is enough.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable

from bridge.mq.mqi import Got


class DuplicatePublications:
    """Tells which deliveries of the new subscription the former one has made already."""

    def __init__(self) -> None:
        #: MsgId -> digest of the content; one that is backed out comes again, and counts once
        self._delivered: dict[bytes, bytes] = {}
        #: MsgIds of the new subscription's deliveries that were left out, which may come again, too
        self._left_out: set[bytes] = set()
        self._counts: Counter[bytes] | None = None

    def note(self, taken: Iterable[Got]) -> None:
        """Note the messages that the former subscription delivers."""
        for got in taken:
            self._delivered[got.md.MsgId] = _content_of(got)

    def fresh(self, taken: Iterable[Got]) -> list[Got]:
        """Return the messages of the new subscription, in its order, that the former one has not delivered already."""
        if self._counts is None:
            self._counts = Counter(self._delivered.values())
        found = []
        for got in taken:
            if got.md.MsgId not in self._left_out:
                content = _content_of(got)
                if not self._counts[content]:
                    found.append(got)
                    continue
                self._counts[content] -= 1
                self._left_out.add(got.md.MsgId)
        return found


def _content_of(got: Got) -> bytes:
    """Return a digest of what the publisher made: what two deliveries of one publication have in common."""
    md = got.md
    made = (md.PutDate, md.PutTime, md.PutApplName, md.UserIdentifier, md.Format, md.ReplyToQ)
    return hashlib.blake2b(b"\0".join((*made, got.data)), digest_size=16).digest()
