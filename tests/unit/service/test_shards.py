"""Shards: the clients that a bridge serves, its queues, and the configuration."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.config.models import Configuration
from bridge.config.queue_manager import BridgeQueues
from bridge.mq.ibm.requirements import requirements_of
from bridge.mq.ibm.transmission import subscription_destination
from bridge.telemetry.shard import UNDIVIDED, Shard


def configuration(**queue_manager: Any) -> Configuration:
    return Configuration(queue_manager={"type": "ibm", "name": "QM1", "mode": "bindings", **queue_manager})


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=48), st.integers(2, 1024))
def test_each_client_belongs_to_one_shard(client_id: str, of: int) -> None:
    number = zlib.crc32(client_id.encode()) % of
    assert Shard(number, of).owns(client_id) and not Shard((number + 1) % of, of).owns(client_id)
    assert Shard(0, of).shard_of(client_id) == number
    assert UNDIVIDED.owns(client_id)


# The first number that `printf dev-1 | gzip -c | tail -c8 | od -An -tu4` prints, and so on.
@pytest.mark.parametrize(("client_id", "crc"), [("dev-1", 2_279_632_790), ("Pumpe-ü", 3_716_253_376)])
def test_the_shard_is_the_remainder_of_the_crc_32_of_the_client_identifier_in_utf_8(client_id: str, crc: int) -> None:
    assert Shard(0, 16).shard_of(client_id) == crc % 16


def test_the_clients_of_a_shard_are_divided_into_equal_parts() -> None:
    """Threads that put publications get one part each, also if their number divides that of the shards."""
    shard = Shard(1, 8)
    parts = [shard.part_of(client_id, 4) for client_id in map(str, range(8_000)) if shard.owns(client_id)]
    assert all(abs(parts.count(part) - len(parts) / 4) < len(parts) / 10 for part in range(4)), parts
    assert UNDIVIDED.part_of("dev-1", 4) == 2_279_632_790 % 4


def test_an_assigned_client_identifier_belongs_to_the_shard() -> None:
    shard = Shard(3, 16)
    assert len({shard.assigned_client_id() for _ in range(20)}) == 20
    assert all(shard.owns(shard.assigned_client_id()) for _ in range(20))


def test_the_server_reference_names_the_shard_of_the_client() -> None:
    shard = Shard(0, 2, "mqtt-{shard}.example.com:8883")
    other = next(client_id for client_id in map(str, range(10)) if not shard.owns(client_id))
    assert shard.reference_for(other) == "mqtt-1.example.com:8883"
    assert Shard(0, 2).reference_for(other) is None


def test_the_queues_of_a_shard_have_its_number() -> None:
    plain, shard = configuration(), configuration(shard={"number": 3, "of": 16})
    assert plain.queues == BridgeQueues()
    assert shard.queues == BridgeQueues(
        "SYSTEM.MQTT.TRANSMIT.QUEUE.3",
        "SYSTEM.MQTT.PERSISTENT.STATE.3",
        "SYSTEM.MQTT.BRIDGE.LOCK.3",
        "SYSTEM.MQTT.TRANSMIT.QUEUE",
    )
    names = {queue.name for queue in requirements_of(shard).queues("")}
    assert {*shard.queues[:3]} <= names and names.isdisjoint(plain.queues)
    authorities = {
        (key.name, key.word) for key in (authority.key for authority in requirements_of(shard).authorities(""))
    }
    assert {("SYSTEM.MQTT.BRIDGE.LOCK.3", "GET"), ("SYSTEM.MQTT.PERSISTENT.STATE.3", "PUT")} <= authorities


def test_shard_0_forwards_messages_to_all_shards() -> None:
    requirements = requirements_of(configuration(shard={"number": 0, "of": 3}))
    assert "SYSTEM.MQTT.TRANSMIT.QUEUE" in {queue.name for queue in requirements.queues("")}
    authorities = {(authority.key.name, authority.key.word) for authority in requirements.authorities("")}
    assert {(f"SYSTEM.MQTT.TRANSMIT.QUEUE.{number}", "PUT") for number in range(3)} <= authorities
    assert ("SYSTEM.MQTT.TRANSMIT.QUEUE", "GET") in authorities


def test_the_destination_of_a_subscription_is_the_transmission_queue_of_the_shard() -> None:
    plain, shard = subscription_destination("c"), subscription_destination("c", "XMIT.3")
    assert (plain.ObjectName, plain.ObjectQMgrName) == ("SYSTEM.MQTT.PUBLICATION.QUEUE", "c")
    assert (shard.ObjectName, shard.ObjectQMgrName) == ("c", "XMIT.3")


@pytest.mark.parametrize(
    ("shard", "why"),
    [
        ({"number": 2, "of": 2}, "an integer from 0 to 1, because there are 2 shards"),
        ({"number": 0, "of": 1}, "an integer from 2 to 1024"),
        ({"number": -1, "of": 2}, "an integer from 0 to 1023"),
        ({"of": 2}, "Field required"),
        ({"number": 0, "of": 2, "server_reference": "a b"}, "a server such as"),
    ],
    ids=str,
)
def test_mistakes_are_reported(shard: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        configuration(shard=shard)


def test_an_embedded_queue_manager_has_no_shards() -> None:
    with pytest.raises(ValueError, match="shard"):
        Configuration(queue_manager={"shard": {"number": 0, "of": 2}})


def test_a_mapping_cannot_use_the_queues_of_any_shard() -> None:
    config = configuration(shard={"number": 0, "of": 2})
    mapping = {"from": {"mqtt": "t"}, "to": {"queue": "SYSTEM.MQTT.TRANSMIT.QUEUE.0"}}
    with pytest.raises(ValueError, match="a queue that the bridge does not use itself"):
        Configuration(queue_manager=config.queue_manager, mappings={"m": mapping})
