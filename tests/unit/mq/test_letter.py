"""A dead letter and the message in it: the message is the same as before."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mq.dead_letter import (
    HEADER_LENGTH,
    OriginContext,
    Selection,
    dead_letter,
    original_of,
    read_letter,
    reason_in_words,
    reason_number,
)
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.embedded_manager import Manager

NAMES = st.text("ABCZaz09./_%", min_size=0, max_size=48)
FORMATS = st.sampled_from([b"", b"MQSTR", b"MYFMT", cmqc.MQFMT_RF_HEADER_2, cmqc.MQFMT_XMIT_Q_HEADER])
TIMES = st.builds("{:04}{:02}{:02}".format, st.integers(1970, 2100), st.integers(1, 12), st.integers(1, 28))
DESCRIPTORS = st.builds(
    MQMD,
    Format=FORMATS,
    Encoding=st.sampled_from([cmqc.MQENC_NATIVE, 0x111, 0x333]),
    CodedCharSetId=st.sampled_from([0, 37, 500, 819, 1208]),
    MsgId=st.binary(min_size=24, max_size=24),
    CorrelId=st.binary(min_size=24, max_size=24),
    Persistence=st.sampled_from([0, 1]),
    Priority=st.integers(0, 9),
    PutApplName=st.sampled_from([b"", b"app"]),
    PutDate=TIMES.map(str.encode),
    PutTime=st.just(b"12000000"),
)


@given(DESCRIPTORS, st.binary(max_size=500), NAMES, NAMES, st.integers(0, 9999), st.booleans())
def test_the_message_in_a_dead_letter_is_unchanged(
    md: Any, data: Any, queue: str, manager: Manager, reason: Any, later: Any
) -> None:
    """Whether the MQDLH has the context of the message, as the embedded queue manager writes it, or a mapping's."""
    origin = OriginContext(6, b"mapping", b"22000101", b"00000000") if later else OriginContext.of(md)
    letter = dead_letter(md, data, reason, queue, manager, origin)
    outer = letter.md
    if not later:  # put by the queue manager, which is in the context
        outer = msgspec.structs.replace(outer, PutApplName=b"mqbridge", PutDate=b"22000101", PutTime=b"00000000")
    original = original_of(msgspec.structs.replace(outer, BackoutCount=3), letter.data)
    assert original.data == data
    names = [name for name in MQMD.__struct_fields__ if name != "BackoutCount"]
    assert [getattr(original.md, field) for field in names] == [getattr(md, field) for field in names]
    header_facts = read_letter(outer, letter.data, len(letter.data))
    assert (header_facts.destination, header_facts.destination_queue_manager, header_facts.reason) == (
        queue,
        manager,
        reason,
    )
    assert header_facts.size == len(data) and header_facts.put_time <= header_facts.dead_lettered


@given(DESCRIPTORS, st.binary(max_size=300), st.integers(0, 300))
def test_any_bytes_on_the_queue_can_be_displayed(md: Any, data: Any, cut: Any) -> None:
    for format_ in (md.Format, cmqc.MQFMT_DEAD_LETTER_HEADER):
        odd = msgspec.structs.replace(md, Format=format_)
        read_letter(odd, data[:cut], len(data))
        original_of(odd, data)
        letter = dead_letter(md, data, 1, "Q", "", OriginContext.now("x"))
        assert read_letter(letter.md, letter.data[: HEADER_LENGTH + cut], len(letter.data)).size == len(data)


@pytest.mark.parametrize("text", ["2053", "MQRC_Q_FULL", "q_full", "Q_FULL"])
def test_a_reason_by_number_or_name(text: str) -> None:
    assert reason_number(text) == cmqc.MQRC_Q_FULL
    assert "MAXDEPTH" in reason_in_words(reason_number(text)).what


@pytest.mark.parametrize("text", ["", "x", "-1", "MQOO_INPUT_SHARED", "²"])
def test_an_invalid_reason_is_reported(text: str) -> None:
    with pytest.raises(ValueError, match="MQRC_Q_FULL"):
        reason_number(text)


def test_the_age_of_a_dead_letter_starts_at_its_arrival_on_the_queue() -> None:
    md = MQMD(PutDate=b"20260101", PutTime=b"00000000")
    letter = dead_letter(md, b"", 1, "Q", "", OriginContext(6, b"m", b"20260201", b"00000050"))
    header_facts = read_letter(letter.md, letter.data, len(letter.data))
    assert header_facts.dead_lettered - header_facts.put_time == 31 * 86_400 + 0.5
    now = header_facts.dead_lettered + 100
    assert Selection(older_than=99).chooses(header_facts, now) and not Selection(older_than=101).chooses(
        header_facts, now
    )
    assert Selection(newer_than=101).chooses(header_facts, now) and not Selection(newer_than=99).chooses(
        header_facts, now
    )
