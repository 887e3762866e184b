"""A publication that arrives via two subscriptions of a mapping counts once, even if units of work are backed out."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.mq.message_consumer import DuplicatePublications
from bridge.mq.mqi import Got
from bridge.wire.mq import MQMD


def message(number: int, data: bytes = b"x", **md: Any) -> Got:
    return Got(md=MQMD(MsgId=b"%024d" % number, **md), data=data)


def test_a_publication_counts_once(subtests: pytest.Subtests) -> None:
    for former, new, fresh in [
        ([], [message(1)], [1]),
        ([message(1)], [message(2)], []),
        ([message(1, b"old")], [message(2, b"new")], [2]),
        ([message(1)], [message(2), message(3)], [3]),
        ([message(1), message(2)], [message(3), message(4), message(5)], [5]),
        ([message(1, b"a"), message(2, b"b")], [message(3, b"b"), message(4, b"c")], [4]),
        ([message(1), message(1)], [message(2), message(3)], [3]),
        ([message(1)], [message(2), message(2)], []),
        ([message(1, PutTime=b"12000000")], [message(2, PutTime=b"12000001")], [2]),
        ([message(1, CorrelId=b"1" * 24)], [message(2, CorrelId=b"2" * 24)], []),
    ]:
        with subtests.test(former=former, new=new, fresh=fresh):
            duplicates = DuplicatePublications()
            duplicates.add_delivered(former)
            assert duplicates.without_delivered(new) == [message for message in new if int(message.md.MsgId) in fresh]


def test_a_backed_out_publication_is_new_or_a_duplicate_as_before() -> None:
    duplicates = DuplicatePublications()
    duplicates.add_delivered([message(1)])
    new = [message(2), message(3)]
    assert duplicates.without_delivered(new) == duplicates.without_delivered(new) == [new[1]]
