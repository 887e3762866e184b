"""Admission of clients: the queue manager is asked before CONNACK."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.config.authentication import ChannelAuthenticationConfig
from bridge.mqtt.packets import Connack, Connect, Puback, Publish, Suback, Subscribe, Will
from tests.helpers.service_bridge import ACCEPTED, PRESENT, answers

NOT_AUTHORIZED, NOT_CONNECTED = 2035, 2009


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(("reason", "code"), [(NOT_AUTHORIZED, 5), (NOT_CONNECTED, 3), (2087, 3)])
async def test_a_client_that_may_not_receive_messages(
    bridge: Any, caplog: pytest.LogCaptureFixture, reason: int, code: int, at_once: bool
) -> None:
    """MQTT 3.1.1 table 3.1: 5 is "not authorized", 3 that the server is unavailable."""
    async with bridge() as running:
        running.backend.outsiders["carol"] = reason
        running.backend.admits_at_once = at_once
        assert await answers(running, Connect("c", user_name="carol")) == [Connack(code)]
        assert not running.service.sessions and not running.backend.units
    (line,) = [record.getMessage() for record in caplog.records if "CONNACK" in record.getMessage()]
    assert "'carol'" in line and "SYSTEM.MQTT.TRANSMIT.QUEUE" in line and f"({reason})" in line


@pytest.mark.parametrize(
    ("config", "user"),
    [({}, "carol"), ({"mcauser": "mca"}, "mca"), ({"use_client_id": True}, "c"), ({"mcauser": None}, "carol")],
)
async def test_the_user_whose_authority_is_checked(bridge: Any, config: dict[str, Any], user: str) -> None:
    async with bridge(**config) as running:
        await running.connect("c", user_name="carol")
        assert running.backend.admitted == [("c", user)]


@pytest.mark.parametrize(
    ("config", "packet", "excess"),
    [
        ({}, Connect("c", user_name="temperature-sensor-1"), "its user name 'temperature-sensor-1'"),
        ({}, Connect("c", user_name="elevenbytes\u00e9"), "its user name 'elevenbytes\u00e9'"),
        ({"mcauser": "mca", "use_client_id": True}, Connect("temperature-1", user_name="u"),
         "its client identifier 'temperature-1'"),
    ],
    ids=["user name", "13 bytes", "client identifier"],
)  # fmt: skip
async def test_a_client_whose_name_is_too_long_for_an_mq_user_is_rejected(
    bridge: Any, caplog: pytest.LogCaptureFixture, config: dict[str, Any], packet: Connect, excess: str
) -> None:
    """Truncated to 12 bytes, several names could be the same user of the queue manager."""
    async with bridge(**config) as running:
        assert await answers(running, packet) == [Connack(5)]
        assert not running.backend.admitted
    (line,) = [record.getMessage() for record in caplog.records if "CONNACK" in record.getMessage()]
    assert packet.client_id in line and f"{excess} is longer than 12 bytes" in line


@pytest.mark.parametrize("mcauser", ["mca", None])
async def test_a_long_user_name_is_accepted_if_the_client_acts_as_another_user(
    bridge: Any, mcauser: str | None
) -> None:
    async with bridge(mcauser=mcauser) as running:
        if mcauser is None:
            record = {"type": "USERMAP", "client_user": "temperature-sensor-1", "mcauser": "mca"}
            running.service.channel_authentication.use_file([ChannelAuthenticationConfig.model_validate(record)])
        await running.connect("c", user_name="temperature-sensor-1")
        assert running.backend.admitted == [("c", "mca")]


@pytest.mark.parametrize("clean_session", [False, True])
async def test_a_rejected_client_does_not_affect_another(bridge: Any, clean_session: bool) -> None:
    """Neither the connection nor the session of its client identifier ends."""
    async with bridge() as running:
        running.backend.outsiders["carol"] = NOT_AUTHORIZED
        first = await running.connect("c", clean_session=False, user_name="alice", will=Will("will", b""))
        first.send(Subscribe(1, (("t", 1),)))
        assert await first.receive() == Suback(1, (1,))
        assert await answers(running, Connect("c", clean_session=clean_session, user_name="carol")) == [Connack(5)]
        await first.silent()
        running.backend.deliver(running.backend.publication(1, 1))
        assert await first.receive() == Publish("t", b"1", 1, False, False, 1)
        assert not running.backend.unsubscribed and not running.backend.payloads()


async def test_a_client_that_disconnects_before_it_is_admitted(bridge: Any) -> None:
    """It does not take over a session, and leaves nothing behind."""
    async with bridge() as running:
        first = await running.connect("c", clean_session=False)
        running.backend.admits_at_once = running.backend.automatic = False
        client = await running.open()
        client.send(Connect("c", will=Will("will", b"")))
        await running.backend.until(lambda: bool(running.backend.waiting))
        client.vanish()
        await running.until(lambda: len(running.channel.connections) == 1)
        running.backend.complete_all()
        running.backend.automatic = True
        await first.silent()
        assert running.service.sessions["c"].durable and not running.backend.payloads()


async def test_two_clients_with_one_identifier_wait_to_be_admitted(bridge: Any) -> None:
    """The second takes over from the first, as without waiting (MQTT-3.1.4-2)."""
    async with bridge() as running:
        running.backend.admits_at_once = running.backend.automatic = False
        first, second = await running.open(), await running.open()
        for number, client in enumerate((first, second), 1):
            client.send(Connect("c", clean_session=False))
            await running.backend.until(lambda number=number: len(running.backend.admitted) == number)
        running.backend.automatic = True
        running.backend.complete_all()
        assert await second.receive() in (ACCEPTED, PRESENT)
        assert [packet for packet in await first.rest() if packet not in (ACCEPTED, PRESENT)] == []
        await second.silent()


async def test_packets_sent_before_a_client_is_admitted(bridge: Any) -> None:
    async with bridge() as running:
        running.backend.admits_at_once = running.backend.automatic = False
        client = await running.open()
        client.send(Connect("c"), Publish("t", b"1", 1, False, False, 2))
        await running.backend.until(lambda: bool(running.backend.waiting))
        assert not running.backend.units
        running.backend.automatic = True
        running.backend.complete_all()
        assert [await client.receive() for _ in range(2)] == [ACCEPTED, Puback(2)]
