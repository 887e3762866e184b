"""Measurements of `mqbridge ibm-acceptance`: the speed of a queue manager's functions that the bridge uses often.

Each function uses a separate queue, and returns a finding and its meaning for the bridge. If the bridge works in both cases,
a difference from its expectation is reported but is not a failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from bridge.mq.mqi import MQOD, Connection, GetOptions, MQError, get_or_none, put_statistics
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

#: Number of messages in each measurement, and in each unit of work.
MESSAGES, UNIT = 1_000, 100
#: Number of first and of last messages that a measurement of marked browse compares.
EDGE = 100
_BROWSE = cmqc.MQOO_BROWSE | cmqc.MQOO_FAIL_IF_QUIESCING
_MARKING = (
    cmqc.MQGMO_BROWSE_FIRST
    | cmqc.MQGMO_UNMARKED_BROWSE_MSG
    | cmqc.MQGMO_MARK_BROWSE_HANDLE
    | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
    | cmqc.MQGMO_FAIL_IF_QUIESCING
)


class Finding(msgspec.Struct, frozen=True):
    """The finding of a test, and its meaning for the bridge."""

    detail: str
    meaning: str


class Failed(Exception):
    """A test failed. The exception contains the problem and the remedy."""

    def __init__(self, detail: str, remedy: str = "") -> None:
        super().__init__(detail)
        self.remedy = remedy


def fill(
    connection: Connection, queue: str, message: Callable[[bytes], Message], number: int = MESSAGES
) -> list[bytes]:
    """Put messages to a queue in units of work, and return their MsgIds. Raises MQError."""
    handle = connection.open(MQOD(ObjectName=queue), cmqc.MQOO_OUTPUT | cmqc.MQOO_FAIL_IF_QUIESCING)
    options = cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_NEW_MSG_ID | cmqc.MQPMO_FAIL_IF_QUIESCING
    msg_ids = []
    for count in range(1, number + 1):
        msg_ids.append(connection.put(handle, message(b"x" * 200), options).MsgId)
        if count % UNIT == 0 or count == number:
            connection.commit()
    connection.close(handle)
    return msg_ids


def message_identifiers(msg_ids: list[bytes]) -> Finding:
    """Describe the form of MsgIds. Raises Failed if two are equal."""
    if len(set(msg_ids)) < len(msg_ids):
        raise Failed(
            f"{len(msg_ids) - len(set(msg_ids))} of {len(msg_ids)} MsgIds are not unique",
            "report this to IBM: the queue manager must create unique MsgIds (MQPMO_NEW_MSG_ID)",
        )
    ends = {msg_id[-2:] for msg_id in msg_ids}
    samples = " and ".join(msg_id[-8:].hex().upper() for msg_id in msg_ids[:2])
    clashes = 100 * (1 - len(ends) / len(msg_ids))
    return Finding(
        f"unique; the last two bytes of {len(msg_ids)} MsgIds have {len(ends)} values (they end in {samples})",
        "the packet identifier of a delivery is the last two bytes of its MsgId if no unacknowledged message has it."
        f" Otherwise the bridge assigns and records another identifier: here for about {clashes:.0f} % of a large window",
    )


def read_ahead(connection: Connection, queue: str, number: int = MESSAGES) -> Finding:
    """Compare a browse with and without read ahead. Raises MQError, Failed."""
    seconds = {}
    for name, ahead in (("with", cmqc.MQOO_READ_AHEAD), ("without", cmqc.MQOO_NO_READ_AHEAD)):
        handle = connection.open(MQOD(ObjectName=queue), _BROWSE | ahead)
        start, browsed = time.monotonic(), 0
        while get_or_none(connection, handle, GetOptions(Options=cmqc.MQGMO_BROWSE_NEXT)) is not None:
            browsed += 1
        seconds[name] = max(time.monotonic() - start, 1e-9)
        connection.close(handle)
        if browsed != number:
            raise Failed(f"{browsed} of {number} messages browsed {name} read ahead", "set read_ahead: false")
    ratio = seconds["without"] / seconds["with"]
    if ratio > 1.5:
        advice = "the bridge delivers many messages in one round trip"
    else:
        advice = (
            "read ahead has little effect, as on a local connection. Over a network, check that SHARECNV of the channel is"
            " not 0 and DEFREADA of the transmission queue is not DISABLED"
        )
    rates = " and ".join(f"{number / value:,.0f}/s {name}" for name, value in seconds.items())
    return Finding(f"browsed {rates} read ahead", advice)


def asynchronous_put1(connection: Connection, queue: str, message: Callable[[bytes], Message]) -> Finding:
    """Compare MQPUT1 with and without MQPMO_ASYNC_RESPONSE. Raises MQError, Failed."""
    rates = {}
    for name, asynchronous in (("with", cmqc.MQPMO_ASYNC_RESPONSE), ("without", cmqc.MQPMO_SYNC_RESPONSE)):
        options = cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_NEW_MSG_ID | cmqc.MQPMO_FAIL_IF_QUIESCING | asynchronous
        start = time.monotonic()
        for _ in range(UNIT):
            connection.put1(MQOD(ObjectName=queue), message(b"x" * 200), options)
        connection.commit()
        rates[name] = UNIT / max(time.monotonic() - start, 1e-9)
    handle = connection.open(MQOD(ObjectName=queue), cmqc.MQOO_INQUIRE)
    (depth,) = connection.inquire(handle, [cmqc.MQIA_CURRENT_Q_DEPTH])[0]
    connection.close(handle)
    if depth < 2 * UNIT:
        raise Failed(f"{depth} of {2 * UNIT} messages arrived", "set asynchronous_puts: false")
    status = put_statistics(connection)
    if status.PutFailureCount:
        raise Failed(f"{status.PutFailureCount} asynchronous puts failed: {cmqc.reason_name(status.Reason)}")
    return Finding(
        " and ".join(f"{rate:,.0f}/s {name} MQPMO_ASYNC_RESPONSE" for name, rate in rates.items()),
        "each publication to a topic without an open handle costs about one MQPUT1",
    )


def marked_browse(connection: Connection, queue: str) -> Finding:
    """Measure whether a browse from the front becomes slower with more marked messages at the front. Raises MQError."""
    handle = connection.open(MQOD(ObjectName=queue), _BROWSE | cmqc.MQOO_NO_READ_AHEAD)
    times = []
    while True:
        start = time.monotonic()
        try:
            connection.get(handle, GetOptions(Options=_MARKING, MaxLength=100))
        except MQError as error:
            if error.reason != cmqc.MQRC_NO_MSG_AVAILABLE:
                raise
            break
        times.append(time.monotonic() - start)
    connection.close(handle)
    edge = max(1, min(EDGE, len(times) // 2))
    first, last = (sum(some) / edge * 1000 for some in (times[:edge], times[-edge:]))
    growth = (last - first) / max(1, len(times)) * 1000
    return Finding(
        f"{first:.3f} ms without marked messages at the front, {last:.3f} ms with {len(times)}",
        f"each browse from the front takes about {max(0.0, growth):.3f} ms longer per 1,000 messages of absent clients",
    )


def message_of(expiry: int) -> Callable[[bytes], Message]:
    """Return a function that makes non-persistent messages with an expiry in tenths of a second."""
    return lambda data: Message(MQMD(Persistence=cmqc.MQPER_NOT_PERSISTENT, Expiry=expiry), data)
