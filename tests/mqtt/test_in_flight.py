"""The table of acknowledgements: every phase of a message, and no message at all, with every acknowledgement."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.mqtt.flow import STEPS, Phase, Step, WrongAcknowledgement
from bridge.telemetry.in_flight import InFlight, Outgoing
from tests.support.connected import connected

NOTHING, PUBREL = Step.NOTHING, Step.PUBREL
#: what MQTT 3.1.1 says; "4.3.2" and the like are the sections that the packet breaks
SPECIFIED: list[tuple[Phase | None, int, Any, Any, Any]] = [
    # phase, QoS, PUBACK, PUBREC, PUBCOMP
    (None, 0, NOTHING, PUBREL, NOTHING),
    (Phase.RECORDING, 1, NOTHING, PUBREL, NOTHING),
    (Phase.RECORDING, 2, NOTHING, PUBREL, NOTHING),
    (Phase.AWAITING_PUBACK, 1, Phase.ACKNOWLEDGED, "4.3.2", "4.3.2"),
    (Phase.ACKNOWLEDGED, 1, NOTHING, "4.3.2", "4.3.2"),
    (Phase.AWAITING_PUBREC, 2, "4.3.3", Phase.RELEASING, "4.3.3"),
    (Phase.RELEASING, 2, "4.3.3", NOTHING, "4.3.3"),
    (Phase.AWAITING_PUBCOMP, 2, "4.3.3", PUBREL, Phase.COMPLETED),
    (Phase.COMPLETED, 2, "4.3.3", NOTHING, NOTHING),
]


def test_every_phase_is_specified() -> None:
    assert {phase for phase, *_ in SPECIFIED} == {None, *Phase} == set(STEPS)


@pytest.mark.parametrize(
    ("phase", "qos", "packet", "step"),
    [
        pytest.param(phase, qos, packet, step, id=f"{phase.name if phase is not None else 'unknown'}-{qos}-{packet}")
        for phase, qos, *steps in SPECIFIED
        for packet, step in zip(("PUBACK", "PUBREC", "PUBCOMP"), steps, strict=True)
    ],
)
def test_acknowledgement(waiting: Any, phase: Phase | None, qos: int, packet: str, step: Phase | Step | str) -> None:
    box = InFlight()
    message = waiting(1, qos)
    if phase is not None:
        box.add(1, Outgoing(message, qos, b"\0\1t", b"", False, phase))
    before = box.unacknowledged
    verb = {"PUBACK": box.acknowledge, "PUBREC": box.receive, "PUBCOMP": box.complete}[packet]
    if isinstance(step, str):
        with pytest.raises(WrongAcknowledgement, match=rf"^{packet} for message id 1: MQTT 3.1.1 section {step}"):
            verb(1)
        assert box[1].phase is phase
        return
    result = verb(1)
    if isinstance(step, Phase):
        assert box[1].phase is step
        awaited = {"PUBACK": message, "PUBREC": (box[1], message), "PUBCOMP": True}
        assert result == awaited[packet]
        assert box.unacknowledged == before - (packet != "PUBCOMP")
        return
    assert phase is None or box[1].phase is phase
    assert box.unacknowledged == before
    if packet == "PUBREC":
        outgoing, removed = result
        assert removed is None
        assert (outgoing is None) is (step is PUBREL)
    else:
        assert not result


@pytest.mark.parametrize("phase", Phase)
def test_what_is_sent_again(waiting: Any, packets: Any, phase: Phase) -> None:
    """PUBLISH with DUP, or PUBREL, where an answer is awaited (MQTT-4.4.0-1)."""
    box, protocol = InFlight(), connected()
    qos = 1 if phase in (Phase.AWAITING_PUBACK, Phase.ACKNOWLEDGED) else 2
    box.add(1, Outgoing(waiting(1, qos), qos, b"\0\1t", b"x", False, phase))
    box.send_again(protocol, 5.0)
    found = [(type(one).__name__, getattr(one, "dup", None)) for one in packets(protocol)]
    assert found == {
        Phase.AWAITING_PUBACK: [("Publish", True)],
        Phase.AWAITING_PUBREC: [("Publish", True)],
        Phase.AWAITING_PUBCOMP: [("Pubrel", False)],
    }.get(phase, [])
