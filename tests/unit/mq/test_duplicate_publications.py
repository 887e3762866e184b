"""A publication that arrives via two subscriptions of a mapping counts once, even if units of work are backed out."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.mq.message_consumer import DuplicatePublications
from bridge.mq.mqi import Got
from bridge.wire.mq import MQMD


def got(number: int, data: bytes = b"x", **md: Any) -> Got:
    return Got(md=MQMD(MsgId=b"%024d" % number, **md), data=data)


def test_a_publication_counts_once(subtests: pytest.Subtests) -> None:
    for former, new, fresh in [
        ([], [got(1)], [1]),
        ([got(1)], [got(2)], []),
        ([got(1, b"old")], [got(2, b"new")], [2]),
        ([got(1)], [got(2), got(3)], [3]),
        ([got(1), got(2)], [got(3), got(4), got(5)], [5]),
        ([got(1, b"a"), got(2, b"b")], [got(3, b"b"), got(4, b"c")], [4]),
        ([got(1), got(1)], [got(2), got(3)], [3]),
        ([got(1)], [got(2), got(2)], []),
        ([got(1, PutTime=b"12000000")], [got(2, PutTime=b"12000001")], [2]),
        ([got(1, CorrelId=b"1" * 24)], [got(2, CorrelId=b"2" * 24)], []),
    ]:
        with subtests.test(former=former, new=new, fresh=fresh):
            duplicates = DuplicatePublications()
            duplicates.add_delivered(former)
            assert duplicates.without_delivered(new) == [message for message in new if int(message.md.MsgId) in fresh]


def test_a_backed_out_publication_is_new_or_a_duplicate_as_before() -> None:
    duplicates = DuplicatePublications()
    duplicates.add_delivered([got(1)])
    new = [got(2), got(3)]
    assert duplicates.without_delivered(new) == duplicates.without_delivered(new) == [new[1]]
