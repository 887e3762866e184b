"""Exactly-once with changes during an unfinished exchange with a broker: state belongs to a session.

A broker breaks one connection at a chosen step. Then the configuration changes, by reload, or between a kill and a start,
while that address is unreachable. Later messages must not wait for it, or be confused with others, and messages in flight are
completed when it is reachable again.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bridge.administration.mapping_status import RunnerState
from bridge.config.link import LinkConfig
from bridge.config.queue_manager import MAPPING_STATE_QUEUE
from bridge.link import connection as links
from bridge.mq.message_consumer import mapping_subscriptions
from bridge.service.mappings import link_runner, registry
from bridge.service.mappings.environment import MappingEnvironment
from bridge.service.mappings.registry import Mappings
from bridge.service.mappings.runner import Runner
from bridge.wire import cmqc
from tests.helpers.broker_network import BrokerNetwork
from tests.helpers.mapping_broker import Broker, LinkFault
from tests.helpers.mapping_scene import DEAD_LETTERS, OWNER, Scene, mapping_config
from tests.helpers.patience import PATIENCE
from tests.helpers.session_changes import CHANGES, ENDED, ONCE, STATES, STAYS, THERE, TWICE, markdown, results

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

A, B = "a.invalid:1883", "b.invalid:1883"
LINK = LinkConfig(host="a.invalid", client_id="id-{mapping}", in_flight=4)
OLD, NEW = [b"old 1", b"old 2"], [b"newer 1", b"newer 2", b"newer 3"]
END_SESSION = links.end_session
BATCH = {"messages": 2, "time": "1 s"}


class Setting(msgspec.Struct, frozen=True):
    """The configuration: the link, the name of the mapping, and the mapping."""

    link: LinkConfig = LINK
    name: str = "map"
    mapping: Any = None


def mapping(to: bool, **keys: Any) -> Any:
    source, destination = {"queue": "IN"}, {"mqtt": "t/a", "link": "L"}
    if not to:
        source, destination = {"mqtt": "t/#", "link": "L"}, {"queue": "OUT"}
    source = keys.pop("source", source)
    return mapping_config(source, destination, **{"guarantee": "exactly-once", "batch": BATCH} | keys)


def changed(change: str, to: bool) -> list[Setting | None]:
    """Return the successive settings. None: no mapping."""
    plain = mapping(to)
    moved, renamed = (LINK.model_copy(update=update) for update in ({"host": "b.invalid"}, {"client_id": "other"}))
    settings: dict[str, list[Setting | None]] = {
        "address of the link": [Setting(moved, mapping=plain)],
        "address, and back": [Setting(moved, mapping=plain), Setting(mapping=plain)],
        "`client_id`": [Setting(renamed, mapping=plain)],
        "`client_id`, and back": [Setting(renamed, mapping=plain), Setting(mapping=plain)],
        "`guarantee`": [Setting(mapping=mapping(to, guarantee="at-least-once"))],
        "`from`": [Setting(mapping=mapping(to, source={"queue": "IN2"} if to else {"mqtt": "t/{x}", "link": "L"}))],
        # A topic, then a queue. A topic of the broker, then one of the bridge's clients.
        "`from` of another kind": [Setting(mapping=mapping(to, source={"queue": "IN2"} if to else {"mqtt": "t/#"}))],
        "`filter`": [Setting(mapping=mapping(to, filter={"min_size": 6}))],
        "name of the mapping": [Setting(name="renamed", mapping=plain)],
        "mapping removed, and added again": [None, Setting(mapping=plain)],
        "another address of `failover`": [],
        "the broker loses the session": [],
    }
    return settings[change]


@pytest.fixture
def network(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> BrokerNetwork:
    broker_network = BrokerNetwork()
    monkeypatch.setattr(links, "link_connection", broker_network.link_connection)
    monkeypatch.setattr(links, "end_session", END_SESSION)
    monkeypatch.setattr(links, "END_TIMEOUT", 0.01)
    monkeypatch.setattr(registry, "SETTLE_INTERVAL", 0.02)
    scene.mqsc("DEFINE QLOCAL(IN2) MAXDEPTH(100000)")
    return broker_network


class Bridge:
    """The mappings of one bridge, which can be killed."""

    def __init__(self, scene: Scene, network: BrokerNetwork) -> None:
        self.scene, self.network = scene, network
        self.mappings: Mappings | None = None

    async def configure(self, setting: Setting | None) -> None:
        mappings = {} if setting is None else {setting.name: setting.mapping}
        links_of = {"L": LINK if setting is None else setting.link, "M": LINK.model_copy(update={"host": "b.invalid"})}
        if self.mappings is None:
            self.scene.environment = MappingEnvironment(self.scene, OWNER)
            self.mappings = Mappings(self.scene.environment)
            await self.mappings.start(mappings, links_of)
        else:
            await self.mappings.apply(mappings, links_of)

    def runs(self) -> bool:
        """Whether the mapping runs."""
        assert self.mappings is not None
        return [status.state for status in self.mappings.statuses()] == [RunnerState.RUNNING]

    async def kill(self) -> None:
        """Kill the threads of the process, with their connections to the queue manager and to brokers."""
        killed, self.mappings = self.mappings, None
        assert killed is not None
        self.network.links.clear()
        self.scene.kill()
        await killed.stop()
        self.scene.killed = False


async def happens(condition: Callable[[], bool], report: Callable[[], object]) -> None:
    before = asyncio.get_running_loop().time() + PATIENCE
    while not condition():
        assert asyncio.get_running_loop().time() < before, report()
        await asyncio.sleep(0.002)


def arrivals(scene: Scene, network: BrokerNetwork, to: bool) -> Callable[[], Counter[bytes]]:
    """Return a function that counts the received messages, at the brokers or on the queue."""
    arrived: Counter[bytes] = Counter()

    def payload_counts() -> Counter[bytes]:
        if to:
            return released_payloads(network)
        arrived.update(scene.bodies("OUT"))
        return arrived

    return payload_counts


def released_payloads(network: BrokerNetwork) -> Counter[bytes]:
    return Counter(payload for broker in network.sessions.values() for payload in broker.released_payloads)


@pytest.mark.parametrize("killed", [False, True], ids=["reload", "kill"])
@pytest.mark.parametrize("state", range(5))
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("direction", STATES)
async def test_a_change(
    scene: Scene, network: BrokerNetwork, direction: str, change: str, state: int, killed: bool
) -> None:
    await run_change(scene, network, direction, change, state, killed=killed)


@pytest.mark.parametrize("killed", [False, True], ids=["reload", "kill"])
@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_while_the_broker_repeats_released_publications(
    scene: Scene, network: BrokerNetwork, change: str, killed: bool
) -> None:
    network.at(A, "id-map").repeats_released = True
    await run_change(scene, network, "from the broker", change, 4, killed=killed)


async def run_change(
    scene: Scene, network: BrokerNetwork, direction: str, change: str, state: int, *, killed: bool
) -> None:
    to = direction == "to the broker"
    call, moment = list(STATES[direction].values())[state]
    outcome = results(change, direction)[state]
    fails_over = change == "another address of `failover`"
    link = LINK.model_copy(update={"failover": [B]}) if fails_over else LINK
    first: Any = {"source": {"topic": "s"}} if change == "`from` of another kind" and to else {}
    before = Setting(link, mapping=mapping(to, **first))
    session = network.at(A, "id-map")
    bridge = Bridge(scene, network)
    payload_counts = arrivals(scene, network, to)

    def report() -> object:
        statuses = [] if bridge.mappings is None else bridge.mappings.statuses()
        return (
            payload_counts(),
            statuses,
            scene.depth("IN"),
            {key: vars(session_state) for key, session_state in network.sessions.items()},
        )

    def send(payloads: list[bytes], where: Broker, source: Any) -> None:
        if not to and source.link == "L":
            where.send(*payloads)
            return
        # At once, so that they are in one batch.
        topic = source.topic if to else "t/a"
        od = scene.topic(topic) if topic else scene.od(source.queue)
        handle = scene.application.open(od, cmqc.MQOO_OUTPUT)
        for payload in payloads:
            scene.application.put(handle, scene.message(payload, Persistence=1), cmqc.MQPMO_SYNCPOINT)
        scene.application.commit()
        scene.application.close(handle)

    await bridge.configure(before)
    await happens(bridge.runs, report)
    # The session exists even if nothing is in flight.
    send([b"first"], session, before.mapping.source)
    await happens(lambda: payload_counts()[b"first"] == 1 and session.quiet, report)
    network.fault, network.call = LinkFault(moment=moment), call
    send(OLD, session, before.mapping.source)
    if call:
        await happens(lambda: bool(network.fault.struck), report)
    else:
        await happens(lambda: payload_counts()[OLD[1]] == 1 and session.quiet, report)
        network.cut(A)
    if killed:
        await bridge.kill()

    # The change, while the broker at A is unreachable. Then further messages.
    settings = changed(change, to) or [before]
    if change == "the broker loses the session":
        session.session = False
        network.restore(A)
    setting = None
    for setting in settings:
        await bridge.configure(setting)
        if setting is not None and setting.link.host == "b.invalid" and len(settings) > 1:
            # Packet identifiers of the session at A are used at B, too.
            send(NEW, network.at(B, "id-map"), setting.mapping.source)
            await happens(lambda: all(payload_counts()[payload] == 1 for payload in NEW), report)
    assert setting is not None
    address = B if setting.link.host == "b.invalid" or fails_over else A
    client_id = setting.link.client_id.replace("{mapping}", setting.name)
    last = network.at(address, client_id)
    source = setting.mapping.source
    queue = getattr(source, "queue", None) or "IN"
    if address == B:
        # Nothing waits for A.
        send(NEW, last, source)
        await happens(lambda: all(payload_counts()[payload] == 1 for payload in NEW), report)
    network.restore(A)
    if outcome is ENDED and not to:
        await happens(lambda: not session.unacknowledged, report)
    if address == A:
        await happens(bridge.runs, report)
        send([b"newer 9"], last, source)
        await happens(lambda: payload_counts()[b"newer 9"] == 1, report)

    count = {ONCE: 1, THERE: 1, TWICE: 2, STAYS: 0, ENDED: 0, "new filter": 0}[outcome]
    await happens(lambda: all(payload_counts()[payload] >= count for payload in OLD), report)
    await happens(lambda: last.quiet and scene.depth(queue) == 0, report)
    if outcome in (ONCE, THERE) and to:
        await happens(lambda: session.quiet, report)
        assert bridge.mappings is not None
        await happens(lambda: not any(status.unfinished for status in bridge.mappings.statuses()), report)
    assert bridge.mappings is not None
    await bridge.mappings.stop()
    doubled = {payload for payload, number in payload_counts().items() if number > 1}
    assert doubled == ({*OLD} if outcome is TWICE else set()), report()
    assert all(payload_counts()[payload] == count for payload in OLD), report()
    if outcome is THERE:
        assert {*OLD} <= {*session.released_payloads}
    # The record of a former session is still valid when a mapping returns: only messages in flight are released.
    assert session.trace.count("PUBREL") < 20
    if outcome is STAYS:
        assert [publication.payload for publication in session.unacknowledged.values()] == OLD
    assert scene.depth(DEAD_LETTERS) == 0
    assert network.failures == []


async def test_link_connect_ends_the_pauses_of_mappings_that_wait_for_their_former_session(
    scene: Scene, network: BrokerNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_runner, "LONGEST_RETRY", 10 * PATIENCE)
    monkeypatch.setattr(registry, "SETTLE_INTERVAL", 10 * PATIENCE)
    pausing, pause = threading.Event(), Runner.pause
    monkeypatch.setattr(Runner, "pause", lambda self, seconds: (pausing.set(), pause(self, seconds)))
    bridge = Bridge(scene, network)

    def report() -> object:
        return bridge.mappings and bridge.mappings.statuses()

    await bridge.configure(Setting(mapping=mapping(False)))
    await happens(bridge.runs, report)
    network.cut(A)
    await bridge.configure(Setting(mapping=mapping(True)))
    assert bridge.mappings is not None
    await happens(pausing.is_set, report)
    network.restore(A)
    assert bridge.mappings.connect_link("M") == (0, 0)
    assert bridge.mappings.connect_link("L") == (1, 1)
    await happens(bridge.runs, report)
    assert bridge.mappings.connect_link("L") == (0, 1)
    await bridge.mappings.stop()


async def test_identifiers_of_removed_messages_are_released(scene: Scene, network: BrokerNetwork) -> None:
    """Otherwise the broker would treat the next messages with these identifiers as repetitions."""
    session, bridge = network.at(A, "id-map"), Bridge(scene, network)
    here = Setting(mapping=mapping(True))

    def report() -> object:
        return session.released_payloads, bridge.mappings and bridge.mappings.statuses(), vars(session)

    await bridge.configure(here)
    await happens(bridge.runs, report)
    network.fault, network.call = LinkFault(moment="after"), "publish_exactly"
    scene.put("IN", *OLD, Persistence=1)
    await happens(lambda: bool(network.fault.struck), report)
    await bridge.kill()
    assert scene.bodies("IN") == OLD
    await bridge.configure(Setting(LINK.model_copy(update={"host": "b.invalid"}), mapping=mapping(True)))
    await happens(bridge.runs, report)
    network.restore(A)
    await happens(lambda: session.quiet, report)
    await bridge.configure(here)
    scene.put("IN", *NEW, Persistence=1)
    await happens(lambda: {*NEW} <= {*session.released_payloads}, report)
    assert bridge.mappings is not None
    await bridge.mappings.stop()
    assert Counter(session.released_payloads) == Counter([*session.arrived])
    assert session.trace.count("PUBREL") < 20
    assert network.failures == []


@pytest.mark.parametrize("client_id", ["id-{mapping}", "id"])
@pytest.mark.parametrize("back", ["while the broker is away", "afterwards"])
@pytest.mark.parametrize("state", range(1, 5))
@pytest.mark.parametrize("direction", STATES)
async def test_a_mapping_is_renamed_and_renamed_back(
    scene: Scene, network: BrokerNetwork, direction: str, state: int, back: str, client_id: str
) -> None:
    """Each time while the bridge is stopped. The session of the first name contains messages that the broker may have."""
    to = direction == "to the broker"
    call, moment = list(STATES[direction].values())[state]
    first = Setting(LINK.model_copy(update={"client_id": client_id}), mapping=mapping(to))
    second = msgspec.structs.replace(first, name="renamed")
    session, bridge = network.at(A, client_id.replace("{mapping}", "map")), Bridge(scene, network)
    payload_counts = arrivals(scene, network, to)

    def report() -> object:
        return payload_counts(), bridge.mappings and bridge.mappings.statuses(), vars(session)

    def send(setting: Setting, *payloads: bytes) -> None:
        if to:
            scene.put("IN", *payloads, Persistence=1)
        else:
            network.at(A, setting.link.client_id.replace("{mapping}", setting.name)).send(*payloads)

    async def start(setting: Setting) -> None:
        await bridge.kill()
        await bridge.configure(setting)

    await bridge.configure(first)
    await happens(bridge.runs, report)
    send(first, b"first")
    await happens(lambda: payload_counts()[b"first"] == 1 and session.quiet, report)
    network.fault, network.call = LinkFault(moment=moment), call
    send(first, *OLD)
    await happens(lambda: bool(network.fault.struck), report)
    await start(second)
    if back == "afterwards":
        network.restore(A)
        await happens(bridge.runs, report)
        send(second, b"renamed")
        await happens(lambda: payload_counts()[b"renamed"] == 1, report)
        network.cut(A)
    await start(first)
    network.restore(A)
    await happens(bridge.runs, report)
    send(first, b"newer 1", b"newer 2")
    await happens(lambda: payload_counts()[b"newer 2"] == 1 and session.quiet, report)
    assert bridge.mappings is not None
    await happens(lambda: not any(status.unfinished for status in bridge.mappings.statuses()), report)
    await bridge.mappings.stop()
    # The session of the other name ends with messages that only the broker has.
    ended = not to and state == 1 and client_id != "id"
    assert [payload_counts()[payload] for payload in OLD] == ([0, 0] if ended else [1, 1]), report()
    assert max(payload_counts().values()) == 1, report()
    assert scene.depth(DEAD_LETTERS) == 0
    assert network.failures == []


#: Changes of the source of a mapping to a broker (None: the mapping is removed).
SOURCES: dict[str, list[dict[str, str] | None]] = {
    "topic, then a queue": [{"topic": "s"}, {"queue": "IN2"}],
    "topic, then a queue, and back": [{"topic": "s"}, {"queue": "IN2"}, {"topic": "s"}],
    "topic, removed": [{"topic": "s"}, None],
    "queue, then a topic": [{"queue": "IN"}, {"topic": "s"}],
    "queue, removed": [{"queue": "IN"}, None],
}


@pytest.mark.parametrize(
    ("killed", "blocked"),
    [(False, False), (False, True), (True, False)],
    ids=["reload", "reload, state queue blocked", "kill"],
)
@pytest.mark.parametrize("state", range(1, 5))
@pytest.mark.parametrize("change", SOURCES)
async def test_a_source_is_released_after_its_unfinished_messages_were_moved(
    scene: Scene, network: BrokerNetwork, change: str, state: int, killed: bool, blocked: bool
) -> None:
    """The bridge deletes the subscription of a mapping that no longer needs it, with the messages on its queue.

    As long as they cannot be moved, they stay there.
    """
    before, *others = SOURCES[change]
    assert before is not None
    call, moment = list(STATES["to the broker"].values())[state]
    session, bridge = network.at(A, "id-map"), Bridge(scene, network)

    def setting(source: dict[str, str]) -> Setting:
        to_broker = mapping_config(source, {"mqtt": "t/a", "link": "L"}, guarantee="exactly-once", batch=BATCH)
        return Setting(mapping=to_broker)

    def send(source: dict[str, str], payloads: list[bytes]) -> None:
        if "topic" in source:
            scene.publish("s", *payloads, Persistence=1)
        else:
            scene.put(source["queue"], *payloads, Persistence=1)

    def unfinished() -> list[object]:
        assert bridge.mappings is not None
        return [session_status for status in bridge.mappings.statuses() for session_status in status.unfinished]

    def report() -> object:
        return session.released_payloads, bridge.mappings and bridge.mappings.statuses(), vars(session)

    await bridge.configure(setting(before))
    # It has subscribed.
    await happens(bridge.runs, report)
    send(before, [b"first"])
    await happens(lambda: session.released_payloads == [b"first"] and session.quiet, report)
    network.fault, network.call = LinkFault(moment=moment), call
    send(before, OLD)
    await happens(lambda: bool(network.fault.struck), report)
    if killed:
        await bridge.kill()
    if blocked:
        scene.mqsc(f"ALTER QLOCAL({MAPPING_STATE_QUEUE}) PUT(DISABLED)")
    for after in others:
        await bridge.configure(None if after is None else setting(after))
    if blocked:
        scene.mqsc(f"ALTER QLOCAL({MAPPING_STATE_QUEUE}) PUT(ENABLED)")
    after = others[-1]
    await happens(lambda: bool(unfinished()) or after is not None, report)
    network.restore(A)
    # A message after the batch may have remained in the former source, which is no longer read.
    moved_payloads = OLD[:1]
    if after is not None:
        await happens(bridge.runs, report)
        send(after, [b"newer"])
        moved_payloads = [*moved_payloads, b"newer"]
    await happens(
        lambda: {*moved_payloads} <= {*session.released_payloads} and session.quiet and not unfinished(), report
    )
    subscribed = {"map"} if after is not None and "topic" in after else set()
    await happens(lambda: mapping_subscriptions(scene.application, OWNER) == subscribed, report)
    assert bridge.mappings is not None
    await bridge.mappings.stop()
    assert max(Counter(session.released_payloads).values()) == 1, report()
    assert scene.depth(DEAD_LETTERS) == 0
    assert network.failures == []


#: Changes of a mapping from a broker's topic to a queue.
ENDS: dict[str, tuple[dict[str, str], dict[str, str], str] | None] = {
    "to that broker": ({"queue": "IN2"}, {"mqtt": "t/a", "link": "L"}, "exactly-once"),
    "to that broker, at least once": ({"queue": "IN2"}, {"mqtt": "t/a", "link": "L"}, "at-least-once"),
    "to another broker": ({"queue": "IN2"}, {"mqtt": "t/a", "link": "M"}, "exactly-once"),
    "to another broker, at least once": ({"queue": "IN2"}, {"mqtt": "t/a", "link": "M"}, "at-least-once"),
    "to clients": ({"queue": "IN2"}, {"mqtt": "t/a"}, "exactly-once"),
    "from clients": ({"mqtt": "t/#"}, {"queue": "OUT"}, "exactly-once"),
    "removed": None,
}


@pytest.mark.parametrize("back", [False, True], ids=["", "and back"])
@pytest.mark.parametrize("killed", [False, True], ids=["reload", "kill"])
@pytest.mark.parametrize("state", [1, 3])
@pytest.mark.parametrize("change", ENDS)
async def test_a_session_whose_subscription_is_no_longer_read_is_ended(
    scene: Scene, network: BrokerNetwork, change: str, state: int, killed: bool, back: bool
) -> None:
    """Otherwise the broker would keep messages for it without limit."""
    call, moment = list(STATES["from the broker"].values())[state]
    session, bridge = network.at(A, "id-map"), Bridge(scene, network)
    before, after = Setting(mapping=mapping(False)), ENDS[change]
    arrived: Counter[bytes] = Counter()

    def payload_counts() -> Counter[bytes]:
        arrived.update(scene.bodies("OUT"))
        return arrived

    def report() -> object:
        return payload_counts(), bridge.mappings and bridge.mappings.statuses(), vars(session)

    await bridge.configure(before)
    await happens(bridge.runs, report)
    session.send(b"first")
    await happens(lambda: payload_counts()[b"first"] == 1 and session.quiet, report)
    network.fault, network.call = LinkFault(moment=moment), call
    session.send(*OLD)
    await happens(lambda: bool(network.fault.struck), report)
    if killed:
        await bridge.kill()
    await bridge.configure(
        None if after is None else Setting(mapping=mapping_config(*after[:2], guarantee=after[2], batch=BATCH))
    )
    if back:
        await bridge.configure(before)
    network.restore(A)
    if back:
        await happens(bridge.runs, report)
        session.send(b"newer")
        await happens(lambda: payload_counts()[b"newer"] == 1 and session.quiet, report)
    elif change.startswith("to that broker"):
        await happens(bridge.runs, report)
        scene.put("IN2", b"newer", Persistence=1)
        await happens(lambda: b"newer" in session.arrived and session.quiet, report)
    else:
        await happens(lambda: not session.session, report)
    assert bridge.mappings is not None
    await happens(lambda: not any(status.unfinished for status in bridge.mappings.statuses()), report)
    await bridge.mappings.stop()
    count = 0 if results("mapping removed, and added again", "from the broker")[state] is ENDED else 1
    assert [payload_counts()[payload] for payload in OLD] == [count, count], report()
    assert scene.depth(DEAD_LETTERS) == 0
    assert network.failures == []


def test_the_documentation_contains_the_table() -> None:
    page = Path(__file__).parents[4] / "docs/explanation/delivery-guarantees.md"
    assert markdown() in page.read_text()
