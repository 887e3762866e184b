"""The schemas of a channel: clients of all versions publish payloads that violate them, on real connections."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from bridge.mqtt.packets import (
    ConnectProperties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Will,
)
from bridge.mqtt.reason_codes import ReasonCode
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work, bridge_on
from tests.helpers.mosquitto import Subscriber, publish
from tests.helpers.patience import until
from tests.helpers.raw_client import RawClient
from tests.helpers.scrape import Scrape

READING = {
    "type": "object",
    "required": ["temp"],
    "properties": {"temp": {"type": "number", "maximum": 100}, "unit": {"type": "string"}},
}
VALID, INVALID = b'{"temp": 21.5}', b'{"temp": 500}'
VIOLATION = "the payload does not match reading.json: $.temp: 500 is greater than the maximum of 100"
LETTER = "MQRC_FORMAT_ERROR"
DEAD_LETTERS = "SYSTEM.DEAD.LETTER.QUEUE"
#: Protocol level and channel.
VERSIONS = [
    pytest.param(3, "OPEN", id="3.1"),
    pytest.param(4, "OPEN", id="3.1.1"),
    pytest.param(4, "LITTLE", id="little-endian"),
]


def config_of(directory: Path) -> str:
    schemas = {"+/readings": str(directory / "reading.json"), "+/readings/#": str(directory / "reading.json")}
    schemas |= {"both/readings": str(directory / "unit.json")}
    channels = [
        {"name": "OPEN", "port": 0, "schemas": schemas},
        {"name": "LITTLE", "port": 0, "byte_order": "little", "schemas": schemas},
        {"name": "LETTERS", "port": 0, "schemas": schemas, "refused_to_dead_letters": [LETTER]},
        {"name": "FREE", "port": 0},
    ]
    return yaml.safe_dump(
        {
            "channels": channels,
            "control_socket": str(directory / "control"),
            "admin": {"port": 0},
            "limits": {"dead_letter_bytes": 20_000},
        }
    )


@pytest.fixture(scope="module")
def shared(queue_manager: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    directory = tmp_path_factory.mktemp("schemas")
    (directory / "reading.json").write_text(json.dumps(READING))
    (directory / "unit.json").write_text(json.dumps({"required": ["unit"]}))
    with at_work(bridge_on(queue_manager, directory / "data", config=config_of(directory))) as process:
        yield process


@pytest.fixture
def bridge(shared: BridgeProcess) -> Iterator[BridgeProcess]:
    """The bridge of the file, without dead letters."""
    yield shared
    shared.run_mq("get", DEAD_LETTERS, "--limit", "0")  # fails if there are none


def letters(bridge: BridgeProcess, topic: str) -> list[dict[str, Any]]:
    """The dead letters for a topic."""
    return [letter for letter in bridge.messages(DEAD_LETTERS) if letter["dlh"]["DestQName"] == topic]


def client_of(bridge: BridgeProcess, name: str, level: int, channel: str = "OPEN", **options: Any) -> RawClient:
    order = "little" if channel == "LITTLE" else "big"
    return RawClient.connected(bridge.ports[channel], name, level=level, byte_order=order, **options)


@pytest.mark.parametrize(("level", "channel"), VERSIONS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_invalid_publications_of_older_clients_are_dead_lettered(
    bridge: BridgeProcess, unique: str, level: int, channel: str, qos: int
) -> None:
    topic = f"{unique}/readings"
    with (
        client_of(bridge, f"{unique}-w", 4) as witness,
        client_of(bridge, unique, level, channel) as client,
    ):
        witness.subscribe((topic, 2))
        for payload in (VALID, INVALID, b"no JSON", b"", VALID + b" "):
            client.publish(topic, payload, qos)
        client.ping()
        assert [witness.take().payload for _ in range(2)] == [VALID, VALID + b" "]
    dead_letters = letters(bridge, topic)
    assert [letter["dlh"]["ReasonName"] for letter in dead_letters] == [LETTER] * 3
    assert VIOLATION in bridge.log


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("asks", [True, False])
def test_clients_of_mqtt_5_learn_the_first_violation(bridge: BridgeProcess, unique: str, qos: int, asks: bool) -> None:
    """If they requested problem information, and in the order of their publications."""
    topic, kind = f"{unique}/readings/1", Puback if qos == 1 else Pubrec
    properties = ConnectProperties(request_problem_information=int(asks))
    with (
        client_of(bridge, f"{unique}-w", 5) as witness,
        client_of(bridge, unique, 5, properties=properties) as client,
    ):
        witness.subscribe((topic, 2))
        client.send(
            *(
                Publish(topic, payload, qos, False, False, 7 + index)
                for index, payload in enumerate((VALID, INVALID, VALID))
            )
        )
        answers = [client.expect(kind) for _ in range(3)]
        assert [answer.packet_id for answer in answers] == [7, 8, 9]
        codes = [answer.reason_code for answer in answers]
        assert codes == [ReasonCode.SUCCESS, ReasonCode.PAYLOAD_FORMAT_INVALID, ReasonCode.SUCCESS]
        reason = answers[1].properties.reason_string if answers[1].properties is not None else None
        assert reason == (VIOLATION if asks else None)
        assert [witness.take().payload for _ in range(2)] == [VALID, VALID]
        (details,) = Administrator(bridge).json("client", "show", unique)
        assert details["invalid_publications"] == 1
    assert letters(bridge, topic) == []


def test_a_repeated_publication_gets_the_same_answer(bridge: BridgeProcess, unique: str) -> None:
    """PUBREC with a failure ends the exchange: the packet identifier is free, and a valid payload may use it."""
    topic = f"{unique}/readings"
    with client_of(bridge, unique, 5) as client:
        for duplicate, payload in ((False, INVALID), (True, INVALID), (False, VALID)):
            client.send(Publish(topic, payload, 2, False, duplicate, 5))
            answer = client.expect(Pubrec)
            failed = answer.reason_code == ReasonCode.PAYLOAD_FORMAT_INVALID
            assert (answer.packet_id, failed) == (5, payload == INVALID)
        client.send(Pubrel(5))
        assert client.expect(Pubcomp).reason_code == ReasonCode.SUCCESS
    assert letters(bridge, topic) == []


def test_publications_of_mqtt_5_with_qos_0_are_dead_lettered(bridge: BridgeProcess, unique: str) -> None:
    topic = f"{unique}/readings"
    with client_of(bridge, unique, 5) as client:
        client.publish(topic, INVALID, 0)
        until(lambda: len(letters(bridge, topic)) == 1)


def test_a_channel_may_dead_letter_publications_of_all_clients(bridge: BridgeProcess, unique: str) -> None:
    topic = f"{unique}/readings"
    with client_of(bridge, unique, 5, "LETTERS") as client:
        client.send(Publish(topic, INVALID, 1, False, False, 1))
        # IBM MQ reports whether there are subscribers for accepted publications only.
        assert client.expect(Puback).reason_code == ReasonCode.SUCCESS
    assert len(letters(bridge, topic)) == 1


def test_retained_publications_are_checked_and_may_be_cleared(bridge: BridgeProcess, unique: str) -> None:
    topic = f"{unique}/readings"
    with client_of(bridge, unique, 4) as client:
        client.publish(topic, VALID, 1, retain=True)
        client.publish(topic, INVALID, 1, retain=True)
        client.subscribe((topic, 1))
        assert client.take().payload == VALID
        client.publish(topic, b"", 1, retain=True)
        assert client.take().payload == b""
    assert len(letters(bridge, topic)) == 1


def test_all_filters_that_match_apply(bridge: BridgeProcess) -> None:
    with client_of(bridge, "both", 5) as client:
        codes = []
        for payload in (b'{"temp": 1}', b'{"unit": "C"}', b'{"temp": 1, "unit": "C"}'):
            client.send(Publish("both/readings", payload, 1, False, False, 1))
            codes.append(client.expect(Puback).reason_code >= ReasonCode.UNSPECIFIED_ERROR)
    assert codes == [True, True, False]


def test_other_topics_and_channels_are_not_checked(bridge: BridgeProcess, unique: str) -> None:
    with client_of(bridge, unique, 5, "FREE") as free, client_of(bridge, f"{unique}-2", 5) as client:
        for publisher, topic in ((free, f"{unique}/readings"), (client, f"{unique}/others"), (client, "readings")):
            publisher.send(Publish(topic, INVALID, 1, False, False, 1))
            assert publisher.expect(Puback).reason_code < ReasonCode.UNSPECIFIED_ERROR


@pytest.mark.parametrize("level", [4, 5])
def test_an_invalid_will_is_dead_lettered(bridge: BridgeProcess, unique: str, level: int) -> None:
    topic = f"{unique}/readings"
    client_of(bridge, unique, level, will=Will(topic, INVALID, 1)).vanish()
    until(lambda: letters(bridge, topic))
    assert f"to {topic!r}: {VIOLATION}" in bridge.log
    with client_of(bridge, f"{unique}-w", 4) as witness:
        witness.subscribe((topic, 1))
        client_of(bridge, unique, level, will=Will(topic, VALID, 1)).vanish()
        assert witness.take().payload == VALID
    assert len(letters(bridge, topic)) == 1


def test_a_client_beyond_its_dead_letters_is_the_only_one_affected(bridge: BridgeProcess, unique: str) -> None:
    """Its publication is not acknowledged, and it is disconnected. An MQTT 5 client is answered as before."""
    topic, payload = f"{unique}/readings", b'{"temp": 500, "unit": "%s"}' % (b"C" * 9_000)
    with client_of(bridge, unique, 4) as greedy:
        greedy.publish(topic, payload, 1)
        greedy.send(Publish(topic, payload, 1, False, False, 9))
        greedy.expect_closed()
    with client_of(bridge, f"{unique}-2", 4) as other, client_of(bridge, f"{unique}-5", 5) as modern:
        other.publish(topic, INVALID, 1)
        other.publish(topic, VALID, 1)
        modern.send(Publish(topic, payload, 1, False, False, 9))
        assert modern.expect(Puback).reason_code == ReasonCode.PAYLOAD_FORMAT_INVALID
    assert len(letters(bridge, topic)) == 2


@pytest.mark.parametrize("version", ["mqttv31", "mqttv311", "mqttv5"])
def test_mosquitto_pub(bridge: BridgeProcess, unique: str, version: str) -> None:
    topic = f"{unique}/readings"
    with Subscriber(bridge.ports["OPEN"], topic, qos=1) as witness:
        for payload in (INVALID, VALID):
            publish(bridge.ports["OPEN"], topic, payload.decode(), qos=1, version=version)
        assert witness.message()["payload"] == VALID.decode()
    assert len(letters(bridge, topic)) == (version != "mqttv5")


def test_status_metrics_and_audit(bridge: BridgeProcess, unique: str) -> None:
    labels = {"channel": "OPEN", "filter": "+/readings", "schema": "reading.json"}
    before = Scrape(bridge).get("mqbridge_invalid_publications_total", **labels) or 0
    topic = f"{unique}/readings"
    with client_of(bridge, unique, 5) as client:
        for _ in range(3):
            client.send(Publish(topic, INVALID, 1, False, False, 1))
            client.expect(Puback)
        (problem,) = [
            problem
            for problem in json.loads(Administrator(bridge).run("status", "--json").stdout)["problems"]
            if problem["kind"] == "payloads" and problem["subject"] == "OPEN"
        ]
    assert re.match(
        rf"client '{unique}'(?: and \d+ more)? of channel OPEN published \d+ invalid payloads", problem["what"]
    )
    assert problem["what"].endswith(f"the last one to '{topic}': {VIOLATION}")
    assert Scrape(bridge).get("mqbridge_invalid_publications_total", **labels) == before + 3
    assert Scrape(bridge).get("mqbridge_invalid_publications_total", **labels | {"channel": "LITTLE"}) is not None


# Bridges of the test's own ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("released", [False, True])
def test_an_invalid_publication_is_dead_lettered_exactly_once(
    new_bridge: Callable[..., BridgeProcess], tmp_path: Path, released: bool
) -> None:
    """The client does not know whether PUBREC, or PUBCOMP, was for it, because the bridge was killed."""
    (tmp_path / "reading.json").write_text(json.dumps(READING))
    (tmp_path / "unit.json").write_text("{}")
    bridge = new_bridge(config=config_of(tmp_path)).start()
    with client_of(bridge, "c", 4, clean=False) as client:
        client.send(Publish("a/readings", INVALID, 2, False, False, 3))
        client.expect(Pubrec)
        if released:
            client.send(Pubrel(3))
            client.expect(Pubcomp)
    bridge.kill()
    bridge.start()
    with client_of(bridge, "c", 4, clean=False) as client:
        if not released:
            client.send(Publish("a/readings", INVALID, 2, False, True, 3))
            assert client.expect(Pubrec).packet_id == 3
        client.send(Pubrel(3))
        assert client.expect(Pubcomp).packet_id == 3
    assert len(letters(bridge, "a/readings")) == 1


def test_reload(new_bridge: Callable[..., BridgeProcess], tmp_path: Path) -> None:
    """A changed file applies to connected clients. An invalid one is rejected, and the previous schema still applies."""
    file = tmp_path / "reading.json"
    file.write_text(json.dumps(READING))
    (tmp_path / "unit.json").write_text("{}")
    bridge = new_bridge(config=config_of(tmp_path)).start()
    administrator = Administrator(bridge)

    def code(payload: bytes) -> int:
        client.send(Publish("a/readings", payload, 1, False, False, 1))
        return client.expect(Puback).reason_code

    with client_of(bridge, "c", 5) as client:
        assert code(INVALID) == ReasonCode.PAYLOAD_FORMAT_INVALID
        file.write_text('{"maximum": "high"}')
        refused = administrator.run("reload")
        assert refused.exit_code == 1, refused.output
        assert re.search(
            r"data\.yaml:\d+:\d+: channels\[0\]\.schemas\..* reading\.json is not a schema: ", refused.stderr
        )
        assert code(INVALID) == ReasonCode.PAYLOAD_FORMAT_INVALID
        file.write_text(json.dumps(READING | {"properties": {"temp": {"maximum": 1000}}}))
        assert "schemas of channel OPEN changed, for publications from now on" in administrator.does("reload")
        assert code(INVALID) < ReasonCode.UNSPECIFIED_ERROR
        assert code(b'{"temp": 2000}') == ReasonCode.PAYLOAD_FORMAT_INVALID
        assert "schemas of" not in administrator.does("reload")


def test_archive(new_bridge: Callable[..., BridgeProcess], tmp_path: Path) -> None:
    """The archive and the audit log contain the violation."""
    (tmp_path / "reading.json").write_text(json.dumps(READING))
    (tmp_path / "unit.json").write_text("{}")
    config = yaml.safe_load(config_of(tmp_path))
    config |= {"archive": {"directory": str(tmp_path / "archive")}, "audit_log": {"file": str(tmp_path / "audit.log")}}
    bridge = new_bridge(config=yaml.safe_dump(config)).start()
    for level in (4, 5):
        with client_of(bridge, f"c{level}", level) as client:
            client.send(Publish("a/readings", INVALID, 1, False, False, 1))
            client.expect(Puback)
    assert bridge.stop() == 0
    rows = [row for file in (tmp_path / "archive").rglob("*.parquet") for row in pq.read_table(file).to_pylist()]
    outcomes = {row["client_id"]: (row["outcome"], row["reason"]) for row in rows if row["topic"] == "a/readings"}
    reason = f"{LETTER} (2110): {VIOLATION}"
    assert outcomes == {"c4": ("refused", reason), "c5": ("refused", reason)}
    audit = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    events = {entry["event"]: entry for entry in audit if entry["event"].startswith("publication")}
    assert events["publication dead-lettered"]["why"] == events["publication refused"]["why"] == VIOLATION
