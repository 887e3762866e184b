"""The table of acknowledgements on a link: every phase of a publication, and no publication, with every acknowledgement."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from bridge.link.client import Answer
from bridge.link.outbox import Outbox
from bridge.link.state import Limits, LinkCounters, Refusal
from bridge.mqtt.flow import STEPS, Phase, Step, WrongAcknowledgement
from bridge.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel
from bridge.mqtt.reader import Decoder
from bridge.telemetry.message import Publication
from tests.helpers.patience import PATIENCE, until

ACKNOWLEDGEMENTS: dict[str, Callable[[int], Answer]] = {"PUBACK": Puback, "PUBREC": Pubrec, "PUBCOMP": Pubcomp}
#: Phases of a publication on a link: it needs no commit between an acknowledgement and what follows, but where the worker
#: says when PUBREL goes out.
PHASES = (None, Phase.AWAITING_PUBACK, Phase.AWAITING_PUBREC, Phase.RELEASING, Phase.AWAITING_PUBCOMP)


class Link:
    """An outbox with a connection, and a worker's thread."""

    def __init__(self, worker: ThreadPoolExecutor) -> None:
        self._worker = worker
        self._decoder = Decoder()
        self.sent: list[object] = []
        self.counters = LinkCounters()
        self.box = Outbox(10, False, self.counters, self._submit, lambda generation, error: None)
        self.box.begin(1, Limits(), False)

    def _submit(self, generation: int, packets: bytes) -> None:
        self.sent += self._decoder.feed(packets)
        self.box.written(lambda: True)

    def publish(self, qos: int, *, held: bool = False) -> Future[dict[int, Refusal]]:
        """Publish with message id 1, and return when PUBLISH is sent."""
        publications = [Publication(topic="t", payload=b"x", qos=qos)]
        call = self._worker.submit(self.box.publish, publications, [1], False, held, PATIENCE)
        until(lambda: any(isinstance(one, Publish) for one in self.sent))
        return call

    def in_phase(self, phase: Phase | None) -> Future[dict[int, Refusal]] | None:
        """Bring message id 1 to a phase; return the call that waits, if one does."""
        if phase is None:
            return None
        call = self.publish(1 if phase is Phase.AWAITING_PUBACK else 2, held=phase is Phase.RELEASING)
        if phase in (Phase.RELEASING, Phase.AWAITING_PUBCOMP):
            self.box.answered([Pubrec(1)])
        if phase is Phase.RELEASING:
            assert call.result(PATIENCE) == {}
        self.sent.clear()
        return call


@pytest.fixture
def link() -> Iterator[Link]:
    with ThreadPoolExecutor(1) as worker:
        made = Link(worker)
        yield made
        made.box.lost("the test is over")


@pytest.mark.parametrize(("phase", "name"), list(itertools.product(PHASES, ACKNOWLEDGEMENTS)))
def test_acknowledgement(link: Link, phase: Phase | None, name: str) -> None:
    step = STEPS[phase][list(ACKNOWLEDGEMENTS).index(name)]
    call = link.in_phase(phase)
    ended = call is not None and call.done()
    answer = ACKNOWLEDGEMENTS[name](1)
    if isinstance(step, str):
        with pytest.raises(WrongAcknowledgement, match=f"{name} for message id 1: {step}"):
            link.box.answered([answer])
        return
    link.box.answered([answer])
    releases = (step is Step.PUBREL and phase is not None) or step is Phase.RELEASING
    assert link.sent == ([Pubrel(1)] if releases else [])
    if step in (Phase.ACKNOWLEDGED, Phase.COMPLETED):
        assert call is not None
        assert call.result(PATIENCE) == {}
        assert link.counters.sent == 1
    elif call is not None:
        assert call.done() is ended
