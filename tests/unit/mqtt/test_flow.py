"""The tables of QoS 1 and 2: each phase of a delivery, or none, with each acknowledgement, and the states of the receiver."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mqtt.flow import (
    ARRIVALS,
    FAILED_PUBREC,
    PUBACK,
    PUBCOMP,
    PUBREC,
    STEPS,
    Arrival,
    Delivery,
    Phase,
    Receiver,
    SenderWindow,
    Step,
    WrongAcknowledgement,
)
from bridge.telemetry.backlog import Backlog
from bridge.telemetry.outbox import Outbox, Outgoing
from tests.helpers.connected import connected

NOTHING, PUBREL = Step.NOTHING, Step.PUBREL
#: The column of STEPS, by the name of a test.
COLUMNS = {"PUBACK": PUBACK, "PUBREC": PUBREC, "PUBCOMP": PUBCOMP, "failed PUBREC": FAILED_PUBREC}
#: rules of MQTT 3.1.1 and 5.0. "4.3.2" and similar are the sections that the packet violates
SPECIFIED: list[tuple[Phase | None, Any, Any, Any, Any]] = [
    # phase, PUBACK, PUBREC, PUBCOMP, PUBREC with a reason code of failure
    (None, NOTHING, PUBREL, NOTHING, NOTHING),
    (Phase.AWAITING_PUBACK, Phase.ACKNOWLEDGED, "4.3.2", "4.3.2", "4.3.2"),
    (Phase.ACKNOWLEDGED, NOTHING, "4.3.2", "4.3.2", "4.3.2"),
    (Phase.AWAITING_PUBREC, "4.3.3", Phase.RELEASING, "4.3.3", Phase.ACKNOWLEDGED),
    (Phase.RELEASING, "4.3.3", NOTHING, "4.3.3", NOTHING),
    (Phase.AWAITING_PUBCOMP, "4.3.3", PUBREL, Phase.COMPLETED, NOTHING),
    (Phase.COMPLETED, "4.3.3", NOTHING, NOTHING, NOTHING),
]
UNACKNOWLEDGED = (Phase.AWAITING_PUBACK, Phase.AWAITING_PUBREC)
FINISHED = (Phase.ACKNOWLEDGED, Phase.COMPLETED)


def test_each_phase_is_specified() -> None:
    assert {phase for phase, *_ in SPECIFIED} == {None, *Phase} == set(STEPS)


def counted(window: SenderWindow[Delivery]) -> None:
    phases = [delivery.phase for delivery in window.deliveries.values()]
    assert window.unacknowledged == sum(phase in UNACKNOWLEDGED for phase in phases)
    assert window.unfinished == sum(phase not in FINISHED for phase in phases)


@pytest.mark.parametrize(
    ("phase", "packet", "step"),
    [
        pytest.param(phase, packet, step, id=f"{phase.name if phase is not None else 'unknown'}-{packet}")
        for phase, *steps in SPECIFIED
        for packet, step in zip(COLUMNS, steps, strict=True)
    ],
)
def test_acknowledgement(phase: Phase | None, packet: str, step: Phase | Step | str) -> None:
    window: SenderWindow[Delivery] = SenderWindow()
    delivery = None if phase is None else Delivery(phase)
    if delivery is not None:
        window.add(1, delivery)
    counted(window)
    if isinstance(step, str):
        name = packet.removeprefix("failed ")
        with pytest.raises(WrongAcknowledgement, match=rf"^{name} for message id 1: MQTT 3.1.1 section {step}"):
            window.answered(COLUMNS[packet], 1)
    else:
        assert window.answered(COLUMNS[packet], 1) == (delivery, step)
    if delivery is not None:
        assert delivery.phase is (step if isinstance(step, Phase) else phase)
    counted(window)
    window.free([1, 2])
    assert (window.unacknowledged, window.unfinished, window.deliveries) == (0, 0, {})


def test_limits_in_flight() -> None:
    """The size counts unacknowledged messages, the Receive Maximum unfinished ones (MQTT 5.0 section 4.9)."""
    window: SenderWindow[Delivery] = SenderWindow(2, 3)
    rooms = [window.room]
    for identifier in (1, 2):
        window.add(identifier, Delivery(Phase.AWAITING_PUBREC))
        rooms.append(window.room)
    for packet in (PUBREC, PUBREC, PUBCOMP):
        window.answered(packet, 1)
        rooms.append(window.room)
        window.move(window.deliveries[1], max(window.deliveries[1].phase, Phase.AWAITING_PUBCOMP))
    assert rooms == [2, 1, 0, 1, 1, 1]
    window.receive_maximum = 0
    assert window.room == -1
    window.clear()
    assert (window.unacknowledged, window.unfinished) == (0, 0)


@pytest.mark.parametrize("phase", Phase)
def test_packets_that_are_sent_again(waiting: Any, packets: Any, phase: Phase) -> None:
    """PUBLISH with DUP, or PUBREL, if an answer is awaited (MQTT-4.4.0-1)."""
    protocol = connected()
    box = Outbox(10, Backlog("c"), durable=True)
    qos = 1 if phase in (Phase.AWAITING_PUBACK, Phase.ACKNOWLEDGED) else 2
    box.in_flight.add(1, Outgoing(waiting(1, qos), qos, b"\0\1t", b"x", False, phase))
    box.send_again(protocol, 5.0)
    kinds = [(type(packet).__name__, getattr(packet, "dup", None)) for packet in packets(protocol)]
    assert kinds == {
        Phase.AWAITING_PUBACK: [("Publish", True)],
        Phase.AWAITING_PUBREC: [("Publish", True)],
        Phase.AWAITING_PUBCOMP: [("Pubrel", False)],
    }.get(phase, [])


# Packet identifiers --------------------------------------------------------------------------------------------------


def window_with(identifiers: set[int]) -> SenderWindow[Delivery]:
    window: SenderWindow[Delivery] = SenderWindow()
    for identifier in identifiers:
        window.add(identifier, Delivery(Phase.AWAITING_PUBACK))
    return window


@pytest.mark.parametrize(
    ("number", "in_use", "expected"),
    [
        pytest.param(0x0000_0000_0001_002A, set(), 0x2A, id="table 5: Message ID, last two bytes of MsgId"),
        pytest.param(0xFFFF_FFFF_FFFF_FFFF, set(), 0xFFFF, id="table 5: Message ID, all ones"),
        pytest.param(0x0000_0000_0001_0000, set(), 1, id="table 5: Message ID, 0 is not a message id: the next"),
        pytest.param(0x1_0000, {1, 2}, 3, id="table 5: Message ID, 0 and the next two in flight"),
        pytest.param(42, {42}, 43, id="table 5: Message ID, in flight: the next"),
        pytest.param(42, {41, 43}, 42, id="table 5: Message ID, neighbours in flight"),
        pytest.param(0xFFFF, {0xFFFF}, 1, id="table 5: Message ID, the last one in flight: 1, without 0"),
        pytest.param(0xFFFE, {0xFFFE, 0xFFFF, 1}, 2, id="table 5: Message ID, past the end"),
        pytest.param(7, set(range(1, 65_536)) - {6}, 6, id="table 5: Message ID, a single one is free"),
    ],
)
def test_message_id(number: int, in_use: set[int], expected: int) -> None:
    assert window_with(in_use).free_identifier(number & 0xFFFF) == expected


def test_all_message_ids_in_flight() -> None:
    with pytest.raises(ValueError, match="65535"):
        window_with(set(range(1, 65_536))).free_identifier(1)
    with pytest.raises(ValueError, match="9"):
        window_with({*range(1, 8), 9}).free_identifier(1, {8}, 9)


@given(
    st.integers(0, 2**64 - 1),
    st.sets(st.integers(1, 65_535), max_size=50),
    st.sets(st.integers(1, 65_535), max_size=50),
    st.integers(60_000, 65_535),
)
def test_a_message_id_is_valid_and_free_and_the_prescribed_one_if_possible(
    number: int, in_use: set[int], reserved: set[int], highest: int
) -> None:
    candidate = number & 0xFFFF
    identifier = window_with(in_use).free_identifier(candidate, reserved, highest)
    assert 1 <= identifier <= highest
    assert identifier not in in_use | reserved
    if 0 < candidate <= highest and candidate not in in_use | reserved:
        assert identifier == candidate


# Receiver ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [False, True])
def test_receiver(known: bool) -> None:
    assert {False: Arrival.NEW, True: Arrival.REPEATED} == ARRIVALS
    receiver = Receiver([1] if known else [])
    assert receiver.arrival(1) is ARRIVALS[known]
    assert receiver.identifiers == {1}
    assert receiver.release(2) is False
    assert receiver.release(1) is True
    assert receiver.identifiers == set()


def test_limit_of_a_receiver() -> None:
    """The limit concerns new packet identifiers only. A repeated one is always answered."""
    receiver = Receiver(limit=1)
    assert [receiver.arrival(identifier) for identifier in (1, 2, 1)] == [
        Arrival.NEW,
        Arrival.TOO_MANY,
        Arrival.REPEATED,
    ]
    assert receiver.identifiers == {1}
