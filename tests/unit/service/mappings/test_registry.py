"""The mappings of a running bridge are added, changed, removed, disabled and enabled, without affecting the others."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from bridge.administration.mapping_status import RunnerState, UnfinishedSession
from bridge.administration.protocol import Refused, Unavailable
from bridge.config.models import Configuration
from bridge.config.queue_manager import MAPPING_STATE_QUEUE, EmbeddedQueueManagerConfig
from bridge.link import connection as links
from bridge.link.state import LinkPhase
from bridge.mq.embedded.host import EmbeddedHost
from bridge.mq.link_sessions import LinkSessions
from bridge.mq.message_consumer import mapping_subscriptions
from bridge.mq.mqi import MQError
from bridge.service.mappings import registry
from bridge.service.mappings.environment import MappingEnvironment
from bridge.service.mappings.registry import Mappings
from bridge.service.mappings.unfinished_sessions import UnfinishedSessions
from bridge.wire import cmqc
from tests.helpers.mapping_scene import LINK, OWNER, Scene, mapping_config
from tests.helpers.patience import PATIENCE, happens

LINKS = {"L": LINK}
A = mapping_config({"mqtt": "a/#"}, {"queue": "OUT"})
B = mapping_config({"mqtt": "b/#", "link": "L"}, {"queue": "IN"}, guarantee="exactly-once")
C = mapping_config({"mqtt": "c/#"}, {"queue": "OUT"})


def disabled(config: Any) -> Any:
    return config.model_copy(update={"enabled": False})


def threads(mappings: Mappings) -> dict[str, object]:
    return {name: entry.runner for name, entry in mappings._entries.items()}


def running(mappings: Mappings, *names: str) -> bool:
    states = {status.name: status.state for status in mappings.statuses()}
    return all(states[name] is RunnerState.RUNNING for name in names)


CHANGES = [
    ("added", {"a": A, "c": C}, ["mapping c added"], {"a"}),
    ("added, disabled", {"a": A, "c": disabled(C)}, ["mapping c added, disabled"], {"a"}),
    ("removed", {}, ["mapping a removed"], set()),
    ("changed", {"a": A.model_copy(update={"backouts": 9})}, ["mapping a changed"], set()),
    ("disabled", {"a": disabled(A)}, ["mapping a disabled; its messages wait"], set()),
    ("nothing", {"a": A}, ["no mapping has changed"], {"a"}),
    ("both", {"c": C}, ["mapping a removed", "mapping c added"], set()),
]


@pytest.mark.parametrize(
    ("now", "lines", "unchanged"), [case[1:] for case in CHANGES], ids=[case[0] for case in CHANGES]
)
async def test_a_change_affects_the_changed_mappings_only(
    scene: Scene, now: dict[str, Any], lines: list[str], unchanged: set[str]
) -> None:
    mappings = Mappings(scene.environment)
    await mappings.start({"a": A, "b": B}, LINKS)
    before = threads(mappings)
    assert await mappings.apply({**now, "b": B}, LINKS) == lines
    after = threads(mappings)
    assert {name for name in before if after.get(name) is before[name] is not None} == {*unchanged, "b"}
    enabled = [name for name, config in {**now, "b": B}.items() if config.enabled]
    await happens(lambda: running(mappings, *enabled))
    assert [status.name for status in mappings.statuses() if status.state is RunnerState.DISABLED] == [
        name for name, config in now.items() if not config.enabled
    ]
    await mappings.stop()
    assert all(status.state in (RunnerState.STOPPED, RunnerState.DISABLED) for status in mappings.statuses())


async def test_a_mapping_is_paused_and_resumed(scene: Scene) -> None:
    """Messages for a paused mapping wait, also over a reload that does not change it. It processes them after resume."""
    mappings = Mappings(scene.environment)
    await mappings.start({"a": A, "b": B}, LINKS)
    await happens(lambda: running(mappings, "a", "b"))
    other = threads(mappings)["b"]
    assert await mappings.pause("a") == "mapping a paused; its messages wait"
    states = {status.name: status.state for status in mappings.statuses()}
    assert states == {"a": RunnerState.PAUSED, "b": RunnerState.RUNNING}
    scene.publish("a/1", b"1", Persistence=1)
    assert await mappings.apply({"a": A, "b": B}, LINKS) == ["no mapping has changed"]
    assert mappings.statuses()[0].state is RunnerState.PAUSED
    assert scene.depth("OUT") == 0
    assert await mappings.resume("a") == "mapping a resumed"
    await happens(lambda: scene.depth("OUT") == 1)
    assert threads(mappings)["b"] is other
    await mappings.stop()
    assert {status.state for status in mappings.statuses()} == {RunnerState.STOPPED}


async def test_a_mapping_has_its_subscription_after_the_start(scene: Scene) -> None:
    """Also after a reload that adds it. Otherwise, it would miss the first publications."""
    mappings = Mappings(scene.environment)
    await mappings.start({"a": A}, LINKS)
    assert mapping_subscriptions(scene.application, OWNER) == {"a"}
    await mappings.apply({"a": A, "c": C}, LINKS)
    assert mapping_subscriptions(scene.application, OWNER) == {"a", "c"}
    await mappings.stop()


async def test_a_queue_manager_that_does_not_answer_delays_the_start_by_a_limited_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "FIRST_ATTEMPTS", 0.1)
    answers = threading.Event()
    connect = scene.environment.connect

    def hang(purpose: str) -> Any:
        if purpose == "mapping a":
            answers.wait(PATIENCE)
        return connect(purpose)

    monkeypatch.setattr(scene.environment, "connect", hang)
    mappings = Mappings(scene.environment)
    await asyncio.wait_for(mappings.start({"a": A}, LINKS), PATIENCE / 2)
    assert mapping_subscriptions(scene.application, OWNER) == set()
    answers.set()
    await happens(lambda: running(mappings, "a"))
    await mappings.stop()


async def test_a_stop_does_not_wait_for_the_first_attempt_of_a_mapping(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue manager does not answer, and a reload waits for the subscription of a new mapping."""
    monkeypatch.setattr(registry, "FIRST_ATTEMPTS", 10 * PATIENCE)
    monkeypatch.setattr(registry, "STOP_TIMEOUT", 0.1)
    mappings = Mappings(scene.environment)
    await mappings.start({"a": A}, LINKS)
    is_hanging, answers = threading.Event(), threading.Event()
    connect = scene.environment.connect

    def hang(purpose: str) -> Any:
        if purpose == "mapping c":
            is_hanging.set()
            answers.wait(PATIENCE)
        return connect(purpose)

    monkeypatch.setattr(scene.environment, "connect", hang)
    reload = asyncio.ensure_future(mappings.apply({"a": A, "c": C}, LINKS))
    await happens(is_hanging.is_set)
    await asyncio.wait_for(mappings.stop(), PATIENCE / 2)
    assert await reload == ["mapping c added"]
    answers.set()


async def test_a_stop_does_not_wait_for_calls_of_a_queue_manager_that_does_not_answer(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bridge was looking for former sessions of mappings, and a reload was removing a mapping."""
    monkeypatch.setattr(registry, "STOP_TIMEOUT", 0.1)
    is_hanging, answers = threading.Event(), threading.Event()

    def hang(*_: Any) -> None:
        is_hanging.set()
        answers.wait(3 * PATIENCE)

    monkeypatch.setattr(UnfinishedSessions, "settle", hang)
    mappings = Mappings(scene.environment)
    await mappings.start({"a": A, "b": B}, LINKS)
    await happens(is_hanging.is_set)
    is_hanging.clear()
    monkeypatch.setattr(UnfinishedSessions, "leave", hang)
    reload = asyncio.ensure_future(mappings.apply({"a": A}, LINKS))
    await happens(is_hanging.is_set)
    await asyncio.wait_for(mappings.stop(), PATIENCE / 2)
    assert mappings.statuses()[0].state is RunnerState.STOPPED
    reload.cancel()
    answers.set()


async def test_a_reload_that_changes_a_paused_mapping_starts_it(scene: Scene) -> None:
    """A changed mapping is meant to run."""
    mappings = Mappings(scene.environment)
    await mappings.start({"a": A}, {})
    await happens(lambda: running(mappings, "a"))
    await mappings.pause("a")
    assert await mappings.apply({"a": A.model_copy(update={"backouts": 9})}, {}) == ["mapping a changed"]
    await happens(lambda: running(mappings, "a"))
    await mappings.stop()


async def test_mappings_that_cannot_be_paused_or_resumed(scene: Scene) -> None:
    """Each error names the state of the mapping."""
    mappings = Mappings(scene.environment)
    await mappings.start({"a": A, "off": disabled(C)}, {})
    await happens(lambda: running(mappings, "a"))
    for call, words in (
        (mappings.pause("off"), "mapping off is already disabled"),
        (mappings.resume("off"), "mapping off is not paused: it is disabled"),
        (mappings.resume("a"), "mapping a is not paused: it is running"),
        (mappings.pause("none"), "there is no mapping none"),
        (mappings.resume("none"), "there is no mapping none"),
    ):
        with pytest.raises(Refused, match=f"^{words}$"):
            await call
    await mappings.pause("a")
    with pytest.raises(Refused, match="mapping a is already paused"):
        await mappings.pause("a")
    await mappings.stop()


@pytest.mark.parametrize(
    ("reason", "kind"), [(cmqc.MQRC_CONNECTION_BROKEN, Unavailable), (cmqc.MQRC_NOT_AUTHORIZED, Refused)]
)
async def test_giving_up_a_session_fails_with_the_error_of_the_queue_manager(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, reason: int, kind: type[Refused]
) -> None:
    mappings = Mappings(scene.environment)
    mappings._unfinished.listed = [UnfinishedSession(mapping="b", client_id="b", address="broker", since=0.0)]

    def connect(purpose: str) -> Any:
        raise MQError(reason, purpose)

    monkeypatch.setattr(scene, "connect", connect)
    with pytest.raises(Refused, match=f"queue manager QM1: .*{cmqc.reason_name(reason)}") as raised:
        await mappings.give_up("b")
    assert raised.type is kind


async def test_connections_of_links_are_listed(scene: Scene) -> None:
    """Each has its mapping and its state: connected or, if the mapping is paused, not. Mappings of local clients
    have none.
    """
    mappings = Mappings(scene.environment)
    await mappings.start({"a": A, "b": B}, LINKS)
    await happens(lambda: running(mappings, "a", "b"))
    ((mapping, connection),) = mappings.links()
    assert (mapping, connection.name, connection.state.phase) == ("b", "L", LinkPhase.CONNECTED)
    await mappings.pause("b")
    assert mappings.links()[0][1].state.phase is LinkPhase.STOPPED
    await mappings.stop()


async def test_messages_for_a_disabled_mapping_wait(scene: Scene) -> None:
    mappings = Mappings(scene.environment)
    await mappings.start({"a": A}, {})
    await happens(lambda: running(mappings, "a"))
    scene.publish("a/1", b"1", Persistence=1)
    await happens(lambda: scene.depth("OUT") == 1)
    await mappings.apply({"a": disabled(A)}, {})
    scene.publish("a/1", b"2", b"3", Persistence=1)
    assert scene.depth("OUT") == 1
    await mappings.apply({"a": A}, {})
    await happens(lambda: scene.depth("OUT") == 3)
    # Its counters continue.
    await happens(lambda: mappings.statuses()[0].moved == 3)
    await mappings.stop()
    # Also over a restart of the bridge.
    scene.publish("a/1", b"4", Persistence=1)
    again = Mappings(scene.environment)
    await again.start({"a": disabled(A)}, {})
    await again.apply({"a": A}, {})
    await happens(lambda: scene.depth("OUT") == 4)
    await again.stop()
    assert scene.bodies("OUT") == [b"1", b"2", b"3", b"4"]


async def test_a_changed_mapping_continues_at_its_position(scene: Scene) -> None:
    """Under load, no message is lost, duplicated or out of order."""
    numbers = [b"%d" % number for number in range(200)]
    mappings = Mappings(scene.environment)
    await mappings.start({"a": A}, {})
    await happens(lambda: running(mappings, "a"))
    publishing = asyncio.create_task(asyncio.to_thread(scene.publish, "a/1", *numbers, Persistence=1))
    for backouts in range(5):
        await mappings.apply({"a": A.model_copy(update={"backouts": backouts})}, {})
    await publishing
    await happens(lambda: scene.depth("OUT") >= len(numbers))
    await mappings.stop()
    assert scene.bodies("OUT") == numbers


CHANGES_ONLY = mapping_config({"mqtt": "a/#"}, {"queue": "OUT"}, changes={"per": "{topic}", "of": "{$.v}"})


def with_other_names(config: Any) -> Any:
    """Return the mapping in a configuration with another queue that its templates must not choose."""
    config = config.model_copy()
    config._names = config.names._replace(queues=frozenset(["REQUESTS"]))
    return config


async def test_a_mapping_with_unchanged_options_remembers_reported_values(scene: Scene) -> None:
    """Also after a pause. A mapping with changed options reports each value again."""
    mappings = Mappings(scene.environment)
    await mappings.start({"a": CHANGES_ONLY}, {})
    await happens(lambda: running(mappings, "a"))

    async def publish(value: int, passed: int) -> None:
        taken_before = mappings.statuses()[0].taken
        scene.publish("a/1", b'{"v": %d}' % value, Persistence=1)
        await happens(lambda: mappings.statuses()[0].taken == taken_before + 1)
        assert scene.depth("OUT") == passed

    await publish(1, 1)
    assert await mappings.apply({"a": with_other_names(CHANGES_ONLY)}, {}) == ["mapping a changed"]
    await publish(1, 1)
    await publish(2, 2)
    await mappings.pause("a")
    await mappings.resume("a")
    await publish(2, 2)
    await mappings.apply({"a": CHANGES_ONLY.model_copy(update={"backouts": 9})}, {})
    await publish(2, 3)
    await mappings.stop()


@pytest.mark.parametrize("at_once", [True, False], ids=["while it runs", "while the bridge is down"])
async def test_a_removed_mapping_leaves_nothing_behind(scene: Scene, at_once: bool) -> None:
    mappings = Mappings(scene.environment)
    await mappings.start({"a": A, "b": B}, LINKS)
    await happens(lambda: running(mappings, "a", "b"))
    assert mapping_subscriptions(scene.application, OWNER) == {"a"}
    assert scene.depth(MAPPING_STATE_QUEUE) > 0
    if at_once:
        assert await mappings.apply({}, LINKS) == ["mapping a removed", "mapping b removed"]
        assert scene.depth(MAPPING_STATE_QUEUE) == 0
    await mappings.stop()
    if not at_once:
        mappings = Mappings(scene.environment)
        await mappings.start({}, LINKS)
    assert mapping_subscriptions(scene.application, OWNER) == set()
    assert mappings.statuses() == []


@pytest.mark.parametrize("at_once", [True, False], ids=["while it runs", "while the bridge is down"])
@pytest.mark.parametrize(
    "source",
    [({"queue": "IN"}, {"mqtt": "a"}), ({"mqtt": "b/#", "link": "L"}, {"queue": "OUT"})],
    ids=["queue", "link"],
)
async def test_the_subscription_of_a_mapping_that_reads_another_kind_of_source_is_removed(
    scene: Scene, source: tuple[dict[str, str], dict[str, str]], at_once: bool
) -> None:
    changed = {"a": mapping_config(*source), "c": C}
    mappings = Mappings(scene.environment)
    await mappings.start({"a": A, "c": C}, LINKS)
    await happens(lambda: running(mappings, "a", "c"))
    if at_once:
        assert await mappings.apply(changed, LINKS) == ["mapping a changed"]
    else:
        await mappings.stop()
        mappings = Mappings(scene.environment)
        await mappings.start(changed, LINKS)
    assert mapping_subscriptions(scene.application, OWNER) == {"c"}
    await mappings.stop()


async def test_a_removed_mapping_is_cleaned_up_if_authorities_are_enforced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = EmbeddedQueueManagerConfig(authorities="enforced", data_directory=tmp_path)
    for mappings in ({"a": A}, {}):
        host = EmbeddedHost(Configuration(queue_manager=settings), asyncio.get_running_loop())
        registry = Mappings(MappingEnvironment(host, OWNER))
        await registry.start(mappings, {})
        if mappings:
            await happens(lambda registry=registry: running(registry, "a"))  # type: ignore[misc]
        await registry.stop()
        assert await asyncio.to_thread(mapping_subscriptions, host.connect("clean-up"), OWNER) == {*mappings}
        await host.stop()
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == []


async def test_objects_of_another_bridge_on_the_same_queue_manager_are_not_touched(scene: Scene) -> None:
    other = MappingEnvironment(scene, "OTHER.XMITQ")
    for environment in (other, scene.environment):
        mappings = Mappings(environment)
        await mappings.start({"a" if environment is other else "c": A if environment is other else C}, {})
        await happens(lambda mappings=mappings: running(mappings, *(status.name for status in mappings.statuses())))  # type: ignore[misc]
        # It is stopped and has nothing open, so only the name shows the owner of a subscription.
        await mappings.stop()
    assert mapping_subscriptions(scene.application, "OTHER.XMITQ") == {"a"}
    assert mapping_subscriptions(scene.application, OWNER) == {"c"}


async def test_link_connect_ends_the_pause_between_attempts_at_former_sessions(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[object] = []
    monkeypatch.setattr(registry, "SETTLE_INTERVAL", 10 * PATIENCE)
    monkeypatch.setattr(UnfinishedSessions, "settle", lambda *_: attempts.append(None))
    mappings = Mappings(scene.environment)
    await mappings.start({}, LINKS)
    await happens(lambda: len(attempts) == 1)
    assert mappings.connect_link("L") == (0, 0)
    await happens(lambda: len(attempts) == 2)
    await mappings.stop()


async def test_a_stop_directly_after_the_start_does_not_wait(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "SETTLE_INTERVAL", 10 * PATIENCE)
    mappings = Mappings(scene.environment)
    await mappings.start({}, {})
    async with asyncio.timeout(PATIENCE):
        await mappings.stop()


# Moved, and renamed -----------------------------------------------------------------------------------------------------

ELSEWHERE = LINK.model_copy(update={"port": 1884})


@pytest.mark.parametrize("first", ["link", "local"])
async def test_a_topic_mapping_with_another_link_keeps_waiting_messages(scene: Scene, first: str) -> None:
    """The subscription and its messages still belong to the mapping."""
    from_local = mapping_config({"topic": "a/#"}, {"mqtt": "b"})
    to_link = mapping_config({"topic": "a/#"}, {"mqtt": "b", "link": "L"})
    before, links = (to_link, LINKS) if first == "link" else (from_local, {"L": ELSEWHERE})
    mappings = Mappings(scene.environment)
    await mappings.start({"a": before}, links)
    await happens(lambda: running(mappings, "a"))
    await mappings.apply({"a": disabled(before)}, links)
    scene.publish("a/1", b"1", b"2", b"3", Persistence=1)
    await mappings.apply({"a": to_link}, {"L": ELSEWHERE})
    await happens(lambda: scene.broker.arrived == [b"1", b"2", b"3"])
    await mappings.stop()


TO_LINK = mapping_config({"topic": "a/#"}, {"mqtt": "b", "link": "L"}, guarantee="exactly-once")
FROM_QUEUE = mapping_config({"queue": "IN"}, {"mqtt": "b", "link": "L"}, guarantee="exactly-once")


@pytest.mark.parametrize(
    ("before", "after", "is_subscribed"),
    [
        (A, mapping_config({"queue": "IN"}, {"mqtt": "a"}), False),
        (TO_LINK, FROM_QUEUE, False),
        (A, A, True),
        (TO_LINK, TO_LINK, True),
    ],
)
async def test_a_mapping_that_moves_to_another_shard_leaves_what_it_no_longer_uses(
    scene: Scene, before: Any, after: Any, is_subscribed: bool
) -> None:
    mappings = Mappings(scene.environment, 0)
    await mappings.start({"a": before, "c": C}, LINKS)
    await happens(lambda: running(mappings, "a", "c"))
    moved = after.model_copy(update={"shard": 1})
    assert await mappings.apply({"a": moved, "c": C}, LINKS) == ["mapping a moved to shard 1"]
    assert mapping_subscriptions(scene.application, OWNER) == ({"a", "c"} if is_subscribed else {"c"})
    await mappings.stop()


@pytest.mark.parametrize("is_entered", [True, False])
async def test_a_session_that_another_shard_has_entered_stays(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, is_entered: bool
) -> None:
    """The shard to which a mapping moves may be reloaded first."""
    ended: list[object] = []
    monkeypatch.setattr(links, "end_session", lambda *arguments: bool(ended.append(arguments)) or True)
    mappings, other = Mappings(scene.environment, 0), Mappings(MappingEnvironment(scene, "OTHER.XMITQ"), 1)
    await mappings.start({"b": B}, LINKS)
    await happens(lambda: running(mappings, "b"))
    moved = {"b": FROM_QUEUE.model_copy(update={"shard": 1})}
    sessions = LinkSessions(scene.application)
    if is_entered:
        await mappings.pause("b")
        await other.start(moved, LINKS)
        await happens(lambda: running(other, "b"))
        ended.clear()
    assert await mappings.apply(moved, LINKS) == ["mapping b moved to shard 1"]
    assert (sessions.load("b") is not None, bool(ended)) == (is_entered, not is_entered)
    await other.stop()
    await mappings.stop()


@pytest.mark.parametrize(("enabled", "is_settled"), [(True, False), (False, True)])
async def test_a_former_session_that_a_mapping_of_another_shard_may_use_is_not_settled(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, enabled: bool, is_settled: bool
) -> None:
    """Two bridges with one client identifier would end each other's connections."""
    ended: list[object] = []
    monkeypatch.setattr(links, "end_session", lambda *arguments: bool(ended.append(arguments)))
    mappings = Mappings(scene.environment, 0)
    configured_links = {"L": LINK.model_copy(update={"client_id": "plant"})}
    await mappings.start({"b": B}, configured_links)
    await happens(lambda: running(mappings, "b"))
    await mappings.apply({}, configured_links)
    await happens(lambda: bool(ended))
    unfinished = mappings._unfinished
    await happens(lambda: bool(unfinished.listed))
    moved = B.model_copy(update={"shard": 1, "enabled": enabled})
    await mappings.apply({"renamed": moved}, configured_links)
    ended.clear()
    others = mappings._of_other_shards()
    await asyncio.to_thread(unfinished.settle, configured_links, frozenset(), others, lambda: False)
    assert bool(ended) is is_settled
    await mappings.stop()


async def test_a_mapping_that_is_renamed_and_moved_keeps_its_session(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both names use the client identifier of the link."""
    ended: list[object] = []
    monkeypatch.setattr(links, "end_session", lambda *arguments: bool(ended.append(arguments)) or True)
    configured_links = {"L": LINK.model_copy(update={"client_id": "plant"})}
    mappings = Mappings(scene.environment, 0)
    await mappings.start({"b": B}, configured_links)
    await happens(lambda: running(mappings, "b"))
    moved = B.model_copy(update={"shard": 1})
    assert await mappings.apply({"renamed": moved}, configured_links) == ["mapping b removed"]
    assert not ended
    await mappings.stop()


async def test_a_link_with_another_address_leaves_its_session_at_the_old_one(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address may be another name of the same broker, so the messages in the session are not discarded."""
    ended: list[object] = []
    monkeypatch.setattr(links, "end_session", lambda *arguments: bool(ended.append(arguments)) or True)
    mappings = Mappings(scene.environment)
    await mappings.start({"b": B}, LINKS)
    await happens(lambda: running(mappings, "b"))
    await mappings.apply({"b": disabled(B)}, LINKS)
    scene.broker.send(b"1", b"2", topic="b/1")
    await mappings.apply({"b": B}, {"L": ELSEWHERE})
    await happens(lambda: scene.depth("IN") == 2)
    assert not ended
    await mappings.apply({}, {"L": ELSEWHERE})
    assert len(ended) == 1
    await mappings.stop()


async def test_a_changed_filter_unsubscribes_the_previous_one(scene: Scene) -> None:
    """With both in one durable session, a broker delivers twice. The record survives the bridge."""
    finer = mapping_config({"mqtt": "b/{x}/{rest...}", "link": "L"}, {"queue": "IN"}, guarantee="exactly-once")

    async def life(config: Any) -> None:
        mappings = Mappings(scene.environment)
        await mappings.start({"b": config}, LINKS)
        scene.broker.send(b"1", topic="b/1/2")
        await happens(lambda: scene.broker.quiet and running(mappings, "b"))
        await happens(lambda: not mappings._entries["b"].runner._unsure)
        await mappings.stop()

    for config in (B, B, finer, finer):
        await life(config)
    assert scene.broker.resumed == [([], False), ([], True), (["b/#"], False), ([], True)]


async def test_the_session_of_a_mapping_removed_while_the_bridge_was_stopped_is_ended(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[tuple[Any, ...]] = []
    monkeypatch.setattr(links, "end_session", lambda *arguments: bool(ended.append(arguments)) or True)

    async def life(mappings_of: dict[str, Any]) -> None:
        mappings = Mappings(scene.environment)
        await mappings.start(mappings_of, LINKS)
        await happens(lambda: running(mappings, *mappings_of))
        await mappings.stop()

    for mappings_of in ({"b": B}, {"a": A}, {"a": A}):
        await life(mappings_of)
    bridge = scene.environment.bridge_id(scene.application)
    assert [(mapping, link, client_id) for mapping, link, _, client_id in ended] == [("b", "L", f"mqbridge-{bridge}-b")]


def test_an_exactly_once_record_is_not_kept_for_later(scene: Scene) -> None:
    """A later publication may use the same message id."""
    exactly = mapping_config({"mqtt": "t/#", "link": "L"}, {"queue": "OUT"}, guarantee="exactly-once")
    at_least = mapping_config({"mqtt": "t/#", "link": "L"}, {"queue": "OUT"})
    scene.run(exactly, scene.settled)
    scene.recorded(received=[1])
    scene.broker.unreleased = {1}
    scene.run(at_least, lambda: scene.broker.quiet and scene.settled())
    scene.run(exactly, scene.settled)
    scene.broker.send(b"new")
    scene.run(exactly, lambda: scene.broker.quiet and scene.settled())
    assert scene.bodies("OUT") == [b"new"]


async def test_publications_name_their_publishers_only_while_a_mapping_needs_them(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[bool] = []

    def name_publishers(needed: bool) -> bool:
        wanted.append(needed)
        return True

    monkeypatch.setattr(scene, "name_publishers", name_publishers)
    from_topic = mapping_config({"mqtt": "a/#"}, {"queue": "OUT", "as": "publisher"})
    from_queue = mapping_config({"queue": "IN"}, {"mqtt": "a", "as": "publisher"})
    mappings = Mappings(scene.environment)
    await mappings.start({"c": C}, {})
    for config in (from_queue, from_topic, disabled(from_topic)):
        await mappings.apply({"a": config}, {})
    assert wanted == [False, False, True, False]
    assert scene.environment.names_publishers
    await mappings.stop()
