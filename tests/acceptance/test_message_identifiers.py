"""Order and packet identifiers on IBM MQ, whose MsgIds are unique, but have neither an order nor different last bytes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bridge.mqtt.packets import ConnectProperties, Puback, Pubcomp, Publish, Pubrec, Pubrel
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work, bridge_on
from tests.helpers.mqtt_5_client import client_of, subscribe
from tests.helpers.raw_client import RawClient
from tests.ibm_standin.message_identifiers import VARIABLE

# The embedded queue manager numbers its messages: see tests/unit/mqtt/test_delivery_model.py.
pytestmark = pytest.mark.queue_managers("ibmmq", slow="pymqi")
#: More messages than IBM MQ on Linux puts with one block number.
MESSAGES = 200
_QUICK = [("linux", "nothing", 1), ("linux", "kill", 2), ("aix", "stop", 2)]
CASES = [
    pytest.param(*case, marks=[] if case in _QUICK else [pytest.mark.slow])
    for case in itertools.product(["linux", "aix"], ["nothing", "kill", "stop"], [1, 2])
]
EVERYTHING = ConnectProperties(session_expiry_interval=600)
FEW = ConnectProperties(session_expiry_interval=600, receive_maximum=7)


@pytest.fixture
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The form of MsgIds on the queue manager."""
    monkeypatch.setenv(VARIABLE, request.param)


@contextmanager
def waiting(bridge: BridgeProcess, qos: int) -> Iterator[dict[bytes, int]]:
    """Return the packet identifiers of messages that a client has received and not acknowledged, by payload, in order."""
    payloads = [b"%d" % number for number in range(MESSAGES)]
    with client_of(bridge, "c", clean=False, properties=EVERYTHING) as client, client_of(bridge, "p") as publisher:
        subscribe(client, "t", qos)
        numbered = list(enumerate(payloads, start=1))
        publisher.send(*(Publish("t", payload, qos, False, False, at) for at, payload in numbered))
        for at, _ in numbered:
            if qos == 1:
                publisher.wait_for(Puback)
            else:
                publisher.wait_for(Pubrec)
                publisher.send(Pubrel(at))
        packet_ids = {
            publication.payload: publication.packet_id for publication in (client.wait_for(Publish) for _ in payloads)
        }
    assert list(packet_ids) == payloads and len(set(packet_ids.values())) == MESSAGES
    yield packet_ids


def took_all(client: RawClient, qos: int) -> list[Publish]:
    """Receive and acknowledge all messages."""
    publications = []
    for _ in range(MESSAGES):
        publication = client.wait_for(Publish)
        publications.append(publication)
        if qos == 1:
            client.send(Puback(publication.packet_id))
        else:
            client.send(Pubrec(publication.packet_id))
            client.wait_for(Pubrel)
            client.send(Pubcomp(publication.packet_id))
    return publications


@pytest.mark.parametrize(("form", "ends", "qos"), CASES, indirect=["form"])
def test_a_smaller_receive_maximum_keeps_order_and_packet_identifiers(
    queue_manager: str, tmp_path: Path, form: None, ends: str, qos: int
) -> None:
    """MQTT-4.4.0-1 and 4.6.0-1, also after the bridge was stopped or killed."""
    with at_work(bridge_on(queue_manager, tmp_path / "data", config="limits: {in_flight: 1000}\n")) as bridge:
        with waiting(bridge, qos) as sent:
            if ends == "kill":
                bridge.kill()
            elif ends == "stop":
                bridge.stop()
        if ends != "nothing":
            bridge.start()
        with client_of(bridge, "c", clean=False, properties=FEW) as client:
            publications = took_all(client, qos)
            client.ping()
            assert not client.inbox
    assert {publication.payload: publication.packet_id for publication in publications} == sent
    assert [publication.payload for publication in publications] == list(sent)
    assert all(publication.dup for publication in publications)
