"""W3C trace context in user properties: valid and invalid values, and propagation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bridge.mqtt.packets import PublishProperties
from bridge.service.spans import TraceContext, context_in, context_of, parsed, user_property_with
from bridge.telemetry.message import Message
from bridge.telemetry.transmission import PublicationMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, RFH2, Folder, encode_rfh2

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
VALID = f"00-{TRACE}-{SPAN}-01"
CONTEXT = TraceContext(int(TRACE, 16), int(SPAN, 16), 1)


@pytest.mark.parametrize(
    ("traceparent", "flags"),
    [
        (VALID, 1),
        (f"00-{TRACE}-{SPAN}-00", 0),
        (f"00-{TRACE}-{SPAN}-03", 3),
        pytest.param(f"00-{TRACE}-{SPAN}-ff", 3, id="unknown flags are cleared"),
        pytest.param(f"cc-{TRACE}-{SPAN}-01", 1, id="a later version"),
        pytest.param(f"cc-{TRACE}-{SPAN}-01-what-comes-later", 1, id="a later version with more fields"),
        pytest.param(f"cc-{TRACE}-{SPAN}-01-" + "x" * 65_000, 1, id="a later version with long fields"),
    ],
)
def test_a_valid_traceparent(traceparent: str, flags: int) -> None:
    """It is parsed according to version 00."""
    assert parsed(traceparent) == TraceContext(int(TRACE, 16), int(SPAN, 16), flags)


def test_an_invalid_traceparent(subtests: pytest.Subtests) -> None:
    """It counts as missing."""
    for traceparent in [
        "",
        "-",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN.upper()}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01-",
        f"00-{TRACE}-{SPAN}-01\n",
        f" {VALID}",
        f"{VALID} ",
        f"cc-{TRACE}-{SPAN}-01.more",
        f"0g-{TRACE}-{SPAN}-01",
        VALID.replace("-", "_"),
        f"00-{'١' * 32}-{SPAN}-01",
        VALID * 1_000,
    ]:
        with subtests.test(traceparent=traceparent):
            assert parsed(traceparent) is None


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.integers(0, 3))
def test_a_written_context_can_be_read(trace_id: int, span_id: int, flags: int) -> None:
    """A context becomes a traceparent of version 00, and back."""
    context = TraceContext(trace_id, span_id, flags)
    assert len(context.traceparent) == 55
    assert parsed(context.traceparent) == context


@given(st.text(max_size=120) | st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{30,34}-[0-9a-f]{15,17}-[0-9a-f]{2}.?"))
def test_any_text_is_a_context_or_none(text: str) -> None:
    """No input of a client raises, and accepted values have the right size."""
    context = parsed(text, text)
    assert context is None or (
        0 < context.trace_id < 2**128 and 0 < context.span_id < 2**64 and context.flags in range(4)
    )


@pytest.mark.parametrize(
    ("user_property", "expected"),
    [
        ((), None),
        ((("traceparent", VALID),), CONTEXT),
        ((("a", "b"), ("traceparent", VALID), ("tracestate", "v=1")), replace(CONTEXT, state="v=1")),
        ((("tracestate", "v=1"), ("traceparent", VALID), ("tracestate", "w=2")), replace(CONTEXT, state="v=1,w=2")),
        pytest.param(
            (("traceparent", VALID), ("tracestate", "v=" + "1" * 600)), CONTEXT, id="a tracestate that is too long"
        ),
        pytest.param((("traceparent", VALID), ("traceparent", VALID)), None, id="several"),
        pytest.param((("Traceparent", VALID),), None, id="another name"),
        pytest.param((("traceparent", "x"), ("tracestate", "v=1")), None, id="not valid"),
    ],
)
def test_a_context_among_user_properties(
    user_property: tuple[tuple[str, str], ...], expected: TraceContext | None
) -> None:
    """The context is valid if `traceparent` occurs once, and is valid."""
    assert context_in(user_property) == expected


def test_a_context_replaces_the_previous_one() -> None:
    """tracestate is propagated, but not to another trace. Nothing else changes."""
    before = (("a", "1"), ("traceparent", "x"), ("tracestate", "v=1"), ("a", "2"), ("traceparent", "y"))
    mine = ("traceparent", VALID)
    assert user_property_with(before, CONTEXT, new=False) == (("a", "1"), ("tracestate", "v=1"), ("a", "2"), mine)
    assert user_property_with(before, CONTEXT, new=True) == (("a", "1"), ("a", "2"), mine)


def _rfh2(**usr: str) -> Message:
    header = RFH2(Format=cmqc.MQFMT_NONE, CodedCharSetId=1208, NameValueCCSID=1208, folders=(Folder.build("usr", usr),))
    return Message(MQMD(Format=cmqc.MQFMT_RF_HEADER_2), encode_rfh2(header) + b"payload")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (PublicationMessage(MQMD(), "c", "t", b""), None),
        (PublicationMessage(MQMD(), "c", "t", b"", properties=PublishProperties(content_type="x")), None),
        (
            PublicationMessage(
                MQMD(), "c", "t", b"", properties=PublishProperties(user_property=(("traceparent", VALID),))
            ),
            CONTEXT,
        ),
        (_rfh2(traceparent=VALID), CONTEXT),
        (_rfh2(traceparent="x"), None),
        (_rfh2(other="x"), None),
        pytest.param(Message(MQMD(), f"traceparent{VALID}".encode()), None, id="no header"),
        pytest.param(
            Message(MQMD(Format=cmqc.MQFMT_RF_HEADER_2), b"RFH traceparent"), None, id="a header that cannot be read"
        ),
    ],
)
def test_a_context_in_a_message(message: Message | PublicationMessage, expected: TraceContext | None) -> None:
    """A message has it in its properties or in the usr folder of its RFH2. An unreadable message has none."""
    assert context_of(message) == expected
