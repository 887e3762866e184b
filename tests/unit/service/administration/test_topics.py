"""Publishers of topics, routes of publications, and topics to which users may publish."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from bridge.administration.answers import AccessDecision, TopicRoute
from bridge.administration.protocol import Answer, Request, Unavailable, result_of
from bridge.administration.requests import ClearTopic, ExplainAccess, ListPublishers, Publish, RouteTopic
from bridge.config.models import Configuration
from bridge.mq.host import Host, TooManyWaiting
from bridge.mqtt.packets import Publish as PublishPacket
from bridge.service import topic_publishers
from bridge.service.administration import parts
from bridge.service.lifecycle import Bridge
from bridge.service.topic_publishers import MAX_CLIENTS, MAX_FILTERS
from tests.helpers.raw_client import RawClient
from tests.helpers.running_bridge import running
from tests.unit.service.test_client_journal import port_of
from tests.unit.service.test_problems import mqsc

MAPPINGS = {
    "temps": {
        "from": {"mqtt": "plant/{line}/temp"},
        "to": {"queue": "PLANT.{line|upper}"},
        "filter": {"json": "$.t > 30"},
    },
    "other": {"from": {"mqtt": "elsewhere/#"}, "to": {"queue": "ELSEWHERE"}},
    "forward": {"from": {"mqtt": "plant/#"}, "to": {"topic": "copy"}},
}


def configuration(tmp_path: Path, **more: Any) -> Configuration:
    channel = {"name": "A", "port": 0, "publish_topics": ["plant/#", "own/%c/#"]}
    queue_manager = {"data_directory": tmp_path / "data", **more.pop("queue_manager", {})}
    return Configuration(queue_manager=queue_manager, channels=[channel], **more)


async def ask(bridge: Bridge, request: Request[Any]) -> Any:
    answer: Answer = await bridge.answer(request, "maria")
    assert answer.ok, answer.lines
    return result_of(request, answer)


async def refused(bridge: Bridge, request: Request[Any]) -> str:
    answer: Answer = await bridge.answer(request, "maria")
    assert not answer.ok
    return answer.lines[0]


async def test_publishers_are_counted_while_they_are_requested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_publishers, "WINDOW", 0.0)
    async with running(configuration(tmp_path)) as bridge:
        with await asyncio.to_thread(RawClient.connected, port_of(bridge), "pump") as pump:
            await asyncio.to_thread(pump.publish, "plant/1", b"x", 1)
            request = ListPublishers(topic_filter="plant/#")
            (first,) = (await ask(bridge, request)).publishers
            assert (first.client_id, first.topic, first.count, first.rate) == ("pump", "plant/1", None, None)
            assert (await ask(bridge, ListPublishers(topic_filter="other/#"))).publishers == []
            for _ in range(3):
                await asyncio.to_thread(pump.publish, "plant/2", b"x", 1)
            (counted,) = (await ask(bridge, request)).publishers
            assert (counted.topic, counted.count) == ("plant/2", 3) and counted.rate > 0
            assert counted.last > first.last
        assert "not a valid topic filter" in await refused(bridge, ListPublishers(topic_filter="a/#/b"))
        for number in range(MAX_FILTERS):
            await ask(bridge, ListPublishers(topic_filter=f"f/{number}"))
        assert list(bridge.parts.publishers._filters) == [f"f/{number}" for number in range(MAX_FILTERS)]
        bridge.parts.publishers.end()
        assert bridge.parts.publishers._filters == {}


async def test_the_number_of_counted_clients_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_publishers, "MAX_CLIENTS", 1)
    assert MAX_CLIENTS > 1
    async with running(configuration(tmp_path)) as bridge:
        await ask(bridge, ListPublishers(topic_filter="plant/#"))
        for name in ("a", "b"):
            with await asyncio.to_thread(RawClient.connected, port_of(bridge), name) as client:
                await asyncio.to_thread(client.publish, "plant/1", b"x", 1)
        page = await ask(bridge, ListPublishers(topic_filter="plant/#"))
        assert ([publisher.client_id for publisher in page.publishers if publisher.count], page.more) == (["a"], True)


async def test_a_route_contains_all_destinations(tmp_path: Path) -> None:
    async with running(configuration(tmp_path, mappings=MAPPINGS)) as bridge:
        port = port_of(bridge)
        await mqsc(bridge, tmp_path, "DEFINE QLOCAL(PLANT.L1) MAXDEPTH(1)", "DEFINE QLOCAL(ELSEWHERE)")
        with (
            await asyncio.to_thread(RawClient.connected, port, "here") as here,
            await asyncio.to_thread(RawClient.connected, port, "away", clean=False) as away,
        ):
            await asyncio.to_thread(here.subscribe, ("plant/+/temp", 0))
            await asyncio.to_thread(away.subscribe, ("plant/#", 2), ("elsewhere", 1))
            await asyncio.to_thread(away.disconnect)
            route: TopicRoute = await ask(bridge, RouteTopic(topic="plant/l1/temp", payload=b'{"t": 31}', retain=True))
            receivers = {
                receiver.subscriber: (receiver.topic_filter, receiver.qos, receiver.state)
                for receiver in route.subscriptions
            }
            assert receivers == {"here": ("plant/+/temp", 0, "connected"), "away": ("plant/#", 1, "away")}
            mappings = {mapping.name: (mapping.takes, mapping.outcome) for mapping in route.mappings}
            assert mappings == {"temps": (True, "queue PLANT.L1"), "forward": (True, "topic copy")}
            assert {mapping.state for mapping in route.mappings} <= {"starting", "running"}
            assert [(queue.name, queue.depth, queue.problem) for queue in route.queues] == [("PLANT.L1", 0, "")]
            assert route.accepted
            assert [(rule.kind, rule.text) for rule in route.rules] == [
                ("topic object", "topic object SYSTEM.BASE.TOPIC has PUB(ENABLED)"),
                ("retained", "it becomes the retained publication"),
            ]
            route = await ask(bridge, RouteTopic(topic="plant/l1/temp", payload=b'{"t": 29}'))
            (temps,) = [mapping for mapping in route.mappings if mapping.name == "temps"]
            assert not temps.takes and temps.outcome.startswith("not taken: ")
            await asyncio.to_thread(here.ping)
            assert not any(isinstance(packet, PublishPacket) for packet in here.inbox), "nothing was published"
            # Rules of a client.
            route = await ask(bridge, RouteTopic(topic="secret", client_id="here"))
            assert not route.accepted and route.rules[-1].kind == "publish_topics"
            assert (await ask(bridge, RouteTopic(topic="own/here/x", client_id="here"))).accepted
            assert not (await ask(bridge, RouteTopic(topic="own/other/x", client_id="here"))).accepted
        assert "no session" in await refused(bridge, RouteTopic(topic="a", client_id="nobody"))
        assert "wildcards" in await refused(bridge, RouteTopic(topic="a/#"))
        # A full queue, and a topic object that permits no publications.
        await ask(bridge, Publish(topic="plant/l1/temp", payload=b'{"t": 31}', persistent=True))
        for _ in range(100):
            route = await ask(bridge, RouteTopic(topic="plant/l1/temp", payload=b'{"t": 31}'))
            if route.queues[0].problem:
                break
            await asyncio.sleep(0.05)
        assert (route.queues[0].depth, route.queues[0].problem) == (1, "it is full")
        await mqsc(bridge, tmp_path, "DEFINE TOPIC(PLANT) TOPICSTR('plant') PUB(DISABLED)")
        route = await ask(bridge, RouteTopic(topic="plant/l1/temp"))
        assert not route.accepted
        assert route.rules[0].text == "topic object PLANT has PUB(DISABLED)"


async def test_a_retained_publication_is_cleared(tmp_path: Path) -> None:
    async with running(configuration(tmp_path)) as bridge:
        await ask(bridge, Publish(topic="plant/1", payload=b"x", retain=True))
        with await asyncio.to_thread(RawClient.connected, port_of(bridge), "here") as here:
            await asyncio.to_thread(here.subscribe, ("plant/1", 0))
            assert (await asyncio.to_thread(here.take)).payload == b"x"
            answer = await bridge.answer(ClearTopic(topic="plant/1"), "maria")
            assert answer.lines == ["deleted the retained publication of plant/1"]
            await asyncio.to_thread(here.ping)
            assert not any(isinstance(packet, PublishPacket) for packet in here.inbox), "subscribers receive nothing"
            await asyncio.to_thread(here.subscribe, ("plant/+", 0))
            await asyncio.to_thread(here.ping)
            assert not any(isinstance(packet, PublishPacket) for packet in here.inbox)
        assert "wildcards" in await refused(bridge, ClearTopic(topic="#"))


RECORDS = [
    {"channel": "*", "type": "BLOCKADDR", "address_list": ["10.0.0.9"]},
    {"channel": "A", "type": "USERMAP", "client_user": "mapped", "user_source": "MAP", "mcauser": "mqmapped"},
    {"channel": "A", "type": "USERMAP", "client_user": "barred", "user_source": "NOACCESS"},
    {"channel": "A", "type": "BLOCKUSER", "user_list": ["blocked"]},
]


@pytest.mark.parametrize(
    ("question", "permitted", "kind", "text"),
    [
        ({"user": "pump", "topic": "plant/1"}, True, "authority", "grants PUB to PRINCIPAL 'pump'"),
        (
            {"user": "nobodys", "topic": "plant/1"},
            False,
            "authority",
            "no authority record grants PUB for topic object PLANT",
        ),
        ({"user": "pump", "topic": "secret/1"}, False, "publish_topics", "does not permit the topic"),
        ({"user": "pump", "topic": "own/c1/x", "client_id": "c1"}, False, "authority", "no authority record"),
        ({"user": "pump", "topic": "own/c2/x", "client_id": "c1"}, False, "publish_topics", "own/%c/#"),
        ({"user": "mapped", "topic": "plant/1"}, True, "authority", "grants PUB to PRINCIPAL 'mqmapped'"),
        ({"user": "barred", "topic": "plant/1"}, False, "channel authentication", "no access"),
        ({"user": "blocked", "topic": "plant/1"}, False, "channel authentication", "user 'blocked' is blocked"),
        (
            {"user": "pump", "topic": "plant/1", "address": "10.0.0.9"},
            False,
            "channel authentication",
            "address is blocked",
        ),
        ({"user": "a-user-with-a-long-name", "topic": "plant/1"}, False, "channel", "longer than 12 bytes"),
        ({"user": "pump", "topic": "plant/closed/1"}, False, "topic object", "topic object CLOSED has PUB(DISABLED)"),
    ],
)
async def test_a_decision_states_whether_a_user_may_publish(
    tmp_path: Path, question: dict[str, str], permitted: bool, kind: str, text: str
) -> None:
    manager = {"authorities": "enforced"}
    sections = {"channel_authentication": RECORDS, "queue_manager": manager}
    async with running(configuration(tmp_path, **sections)) as bridge:
        await mqsc(
            bridge,
            tmp_path,
            "DEFINE TOPIC(PLANT) TOPICSTR('plant')",
            "DEFINE TOPIC(CLOSED) TOPICSTR('plant/closed') PUB(DISABLED)",
            "SET AUTHREC PROFILE(PLANT) OBJTYPE(TOPIC) PRINCIPAL('pump') AUTHADD(PUB)",
            "SET AUTHREC PROFILE(PLANT) OBJTYPE(TOPIC) PRINCIPAL('mqmapped') AUTHADD(PUB)",
        )
        decision: AccessDecision = await ask(bridge, ExplainAccess(channel="A", **question))
        assert (decision.permitted, decision.rules[-1].kind) == (permitted, kind)
        assert text in decision.rules[-1].text
        assert all(rule.permits for rule in decision.rules[:-1])
        assert "no channel" in await refused(bridge, ExplainAccess(channel="NONE", user="x", topic="t"))


@pytest.mark.parametrize("changes", [False, True])
async def test_a_silent_queue_manager_is_unavailable(monkeypatch: pytest.MonkeyPatch, changes: bool) -> None:
    monkeypatch.setattr(parts, "TIMEOUT", 0.01)
    with pytest.raises(Unavailable, match=r"did not answer within 0\.01 s") as raised:
        await parts.answer_of(cast(Host, None), asyncio.get_running_loop().create_future(), changes=changes)
    assert ("may still be performed" in str(raised.value)) is changes


async def test_too_many_inquiries_are_unavailable() -> None:
    answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    answer.set_exception(TooManyWaiting("too many"))
    with pytest.raises(Unavailable, match=r"^too many$"):
        await parts.answer_of(cast(Host, None), answer)
