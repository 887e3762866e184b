"""Retained publications through mappings: as-published, never and always, for existing and for later subscribers, in both
directions, with MQTT 5 and 3.1.1, and their clearing.

An MQTT 5 subscriber with Retain As Published sees the flag of live publications. A later subscriber sees the retained ones.
(The bridge's own clients use 3.1.1: no live publication has the flag, MQTT-3.3.1-9.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.helpers.mapping_site import MappingSite, folders
from tests.helpers.mosquitto import Subscriber, publish
from tests.helpers.paho_clients import PahoSubscriber
from tests.helpers.patience import eventually

# Other tests of mappings run on IBM MQ, and the contract suite covers the calls that these need.
pytestmark = pytest.mark.queue_managers("embedded")

MODES = ("as-published", "never", "always")
#: How it is published, and which of it is retained.
RETAINED = {
    ("as-published", False): False,
    ("as-published", True): True,
    ("never", False): False,
    ("never", True): False,
    ("always", False): True,
    ("always", True): True,
}
CASES = [f"{mode}/{'retained' if retain else 'live'}" for mode, retain in RETAINED]
KEPT = {case for case, is_retained in zip(CASES, RETAINED.values(), strict=True) if is_retained}


def config(port: int) -> dict[str, Any]:
    mappings: dict[str, Any] = {}
    for mode in MODES:
        attributes = {"attributes": {"retained": mode}}
        mappings |= {
            f"in-{mode}": {"from": {"mqtt": f"in/{mode}/{{x}}", "link": "l"}, "to": {"topic": f"here/{mode}/{{x}}"}},
            f"in311-{mode}": {
                "from": {"mqtt": f"in3/{mode}/{{x}}", "link": "l3"},
                "to": {"topic": f"here3/{mode}/{{x}}"},
            },
            f"out-{mode}": {"from": {"topic": f"out/{mode}/{{x}}"}, "to": {"mqtt": f"there/{mode}/{{x}}", "link": "l"}},
            f"out311-{mode}": {
                "from": {"topic": f"out3/{mode}/{{x}}"},
                "to": {"mqtt": f"there3/{mode}/{{x}}", "link": "l3"},
            },
            f"queue-{mode}": {"from": {"mqtt": f"queue/{mode}/{{x}}", "link": "l"}, "to": {"queue": "Q"}},
            f"back-{mode}": {
                "from": {"queue": f"B.{mode.upper().replace('-', '.')}"},
                "to": {"mqtt": f"back/{mode}/{{usr.x}}", "link": "l"},
            },
        }
        for name in (f"{kind}-{mode}" for kind in ("in", "in311", "out", "out311", "queue", "back")):
            mappings[name] |= attributes
        mappings[f"feed-{mode}"] = {
            "from": {"mqtt": f"feed/{mode}/{{x}}", "link": "l"},
            "to": {"queue": f"B.{mode.upper().replace('-', '.')}"},
            "attributes": {"properties": {"x": "{x}"}},
        }
    broker = {"host": "127.0.0.1", "port": port}
    return {"links": {"l": broker, "l3": {**broker, "version": "3.1.1"}}, "mappings": mappings}


@pytest.fixture(scope="module")
def site(queue_manager: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MappingSite]:
    mqsc = [f"DEFINE QLOCAL({name})" for name in ("Q", "B.AS.PUBLISHED", "B.NEVER", "B.ALWAYS")]
    with MappingSite(tmp_path_factory.mktemp("retained"), queue_manager, config, mqsc) as site:
        yield site


def publish_cases(port: int, root: str, payload: str = "x") -> None:
    """Publish each variant once, in the order of the table."""
    for case in CASES:
        publish(port, f"{root}/{case}", payload, *(["-r"] if case.endswith("retained") else []), qos=1)


def late_at_broker(site: MappingSite, root: str) -> set[str]:
    """Return the topics with a retained publication at the broker, for a new subscriber."""
    return late(lambda: PahoSubscriber(site.broker.port, f"{root}/#"), site.broker.port, root)


def late_here(site: MappingSite, root: str) -> set[str]:
    """Return the same for the bridge's own clients."""
    return late(lambda: Subscriber(site.bridge.port, f"{root}/#", qos=1), site.bridge.port, root)


def late(subscribe: Callable[[], PahoSubscriber | Subscriber], port: int, root: str) -> set[str]:
    topics = set()
    with subscribe() as subscriber:
        publish(port, f"{root}/end", "end", qos=1)
        while (publication := topic_and_retained(subscriber.message()))[0] != f"{root}/end":
            if publication[1]:  # otherwise it has just arrived
                topics.add(publication[0].removeprefix(f"{root}/"))
    return topics


def topic_and_retained(message: Any) -> tuple[str, bool]:
    if isinstance(message, dict):
        return message["topic"], bool(message["retain"])
    return message.topic, message.retain


def live(subscriber: PahoSubscriber | Subscriber, root: str) -> dict[str, bool]:
    """Return one message of each case: whether it arrived as a retained one."""
    messages = [topic_and_retained(subscriber.message()) for _ in CASES]
    return {topic.removeprefix(f"{root}/"): retained for topic, retained in messages}


# IBM MQ does not tell a subscriber whether a live publication was put as retained.
@pytest.mark.queue_managers("embedded")
@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_from_own_clients_to_a_broker(site: MappingSite, version: str) -> None:
    """A link with 3.1.1 retains the same publications at the broker as a link with 5."""
    source, target = ("out", "there") if version == "5" else ("out3", "there3")
    with PahoSubscriber(site.broker.port, f"{target}/#") as subscriber:
        publish_cases(site.bridge.port, source)
        assert live(subscriber, target) == dict(zip(CASES, RETAINED.values(), strict=True))
        assert late_at_broker(site, target) == KEPT
        # A message that clears a topic here also clears it there: as-published with RETAIN, always with any empty payload,
        # never not at all.
        publish_cases(site.bridge.port, source, "")
        eventually(lambda: late_at_broker(site, target), set())


@pytest.mark.queue_managers("embedded", "ibmmq")
def test_from_a_broker_to_own_clients(site: MappingSite) -> None:
    with Subscriber(site.bridge.port, "here/#", qos=1) as subscriber:
        publish_cases(site.broker.port, "in")
        assert live(subscriber, "here") == dict.fromkeys(CASES, False)
        eventually(lambda: late_here(site, "here"), KEPT)
    publish_cases(site.broker.port, "in", "")
    eventually(lambda: late_here(site, "here"), set())


def test_from_a_broker_of_3_1_1(site: MappingSite) -> None:
    """The broker reports the flag to a 3.1.1 subscriber only for retained messages, so as-published retains no live ones."""
    with Subscriber(site.bridge.port, "here3/#", qos=1) as subscriber:
        publish_cases(site.broker.port, "in3")
        assert live(subscriber, "here3") == dict.fromkeys(CASES, False)
    eventually(lambda: late_here(site, "here3"), {"always/live", "always/retained"})


def test_never_retained_does_not_clear_a_retained_publication(site: MappingSite) -> None:
    publish(site.bridge.port, "here/never/own", "own", "-r", qos=1)
    with Subscriber(site.bridge.port, "here/never/#", qos=1) as subscriber:
        assert subscriber.message()["topic"] == "here/never/own"
        publish(site.broker.port, "in/never/own", "", "-r", qos=1)
        assert subscriber.message() == {"topic": "here/never/own", "payload": None, "qos": 1, "retain": 0}
    eventually(lambda: late_here(site, "here"), {"never/own"})


def test_from_a_broker_to_a_queue(site: MappingSite) -> None:
    """mqps.Ret is set, and an empty body clears."""
    for payload in ("x", ""):
        publish_cases(site.broker.port, "queue", payload)
        site.bridge.wait_for_depth("Q", len(CASES))
        retained = {}
        for message in site.bridge.mq_json("get", "Q", "--limit", "0"):
            mqps = folders(message)["mqps"]
            assert message["body"] == payload
            retained[mqps["Top"].removeprefix("queue/")] = mqps.get("Ret", False)
        assert retained == dict(zip(CASES, RETAINED.values(), strict=True))


def test_from_a_queue_to_a_broker(site: MappingSite) -> None:
    """By mqps.Ret of the message on the queue."""
    with PahoSubscriber(site.broker.port, "back/#") as subscriber:
        publish_cases(site.broker.port, "feed")
        assert live(subscriber, "back") == dict(zip(CASES, RETAINED.values(), strict=True))
        assert late_at_broker(site, "back") == KEPT
        publish_cases(site.broker.port, "feed", "")
        eventually(lambda: late_at_broker(site, "back"), set())


def test_retained_messages_from_before_the_mapping_come_first(site: MappingSite) -> None:
    """A new subscription, with either version, receives retained messages with the flag."""
    config = site.bridge.config
    assert config is not None
    for topic in ("before/5", "before/3.1.1"):
        publish(site.broker.port, topic, "since long", "-r", qos=1)
    publish(site.bridge.port, "before/own", "since long", "-r", qos=1)
    before = config.read_text(encoding="utf-8")
    more = (
        '"new-5": {"from": {"mqtt": "before/5", "link": "l"}, "to": {"queue": "Q"}},'
        ' "new-311": {"from": {"mqtt": "before/3.1.1", "link": "l3"}, "to": {"queue": "Q"}},'
        ' "new-out": {"from": {"topic": "before/own"}, "to": {"mqtt": "since/{topic}", "link": "l"}}, '
    )
    config.write_text(before.replace("mappings: {", "mappings: {" + more), encoding="utf-8")
    site.bridge.restart()
    site.bridge.wait_for_depth("Q", 2)
    topics = [folders(message)["mqps"] for message in site.bridge.mq_json("get", "Q", "--limit", "0")]
    retained = {mqps["Top"]: mqps.get("Ret") for mqps in topics}
    assert retained == {"before/5": True, "before/3.1.1": True}
    eventually(lambda: late_at_broker(site, "since"), {"before/own"})
