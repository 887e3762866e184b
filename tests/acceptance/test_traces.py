"""Traces: a publication, its put and its delivery are one trace, over restarts, mappings and links."""

from __future__ import annotations

import itertools
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.collector import CollectedSpan, Collector
from tests.helpers.line_process import suspend
from tests.helpers.mosquitto import Mosquitto, free_port
from tests.helpers.paho_clients import PahoSubscriber, publish_all
from tests.helpers.patience import PATIENCE, until

# tests/contract/backend shows that contexts pass through each queue manager.
pytestmark = pytest.mark.queue_managers("embedded", slow="ibmmq")

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"
MANY = 500


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    running = Mosquitto(tmp_path).start()
    yield running
    running.stop()


def configured(collector: Collector | str, sample: float = 1, **more: Any) -> str:
    """A configuration file with traces; flow style of YAML is JSON."""
    traces = {"endpoint": collector if isinstance(collector, str) else collector.endpoint, "sample": sample}
    sections = {"traces": traces | more.pop("traces", {}), **more}
    return "".join(f"{name}: {json.dumps(section)}\n" for name, section in sections.items())


def said(*pairs: tuple[str, str]) -> Properties:
    properties = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = list(pairs)
    return properties


def user_properties(message: paho.MQTTMessage) -> dict[str, str]:
    return dict(getattr(message.properties, "UserProperty", []))


@contextmanager
def durable(port: int) -> Iterator[None]:
    """A subscriber whose session stays, connected; it has subscribed to plant/# with QoS 2."""
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="sleeper", protocol=paho.MQTTv5)  # type: ignore[attr-defined]
    kept = Properties(PacketTypes.CONNECT)
    kept.SessionExpiryInterval = 3_600
    subscribed = threading.Event()
    client.on_connect = lambda client, *_: client.subscribe("plant/#", 2)
    client.on_subscribe = lambda *_: subscribed.set()
    client.connect("127.0.0.1", port, clean_start=False, properties=kept)
    client.loop_start()
    assert subscribed.wait(PATIENCE), "no SUBACK"
    yield
    client.disconnect()
    client.loop_stop()


def chain(*spans: CollectedSpan) -> None:
    """Each span is the child of the one before, in the same trace."""
    for parent, child in itertools.pairwise(spans):
        assert (child.trace_id, child.parent_id) == (parent.trace_id, parent.span_id), (parent, child)


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_a_publication_its_put_and_its_delivery_are_one_trace(
    new_bridge: Callable[..., BridgeProcess], collector: Collector, version: str
) -> None:
    """The bridge begins it, and the subscriber gets its context; publisher and subscriber need know nothing of it."""
    bridge = new_bridge(config=configured(collector, traces={"service_name": "site 7"})).start()
    with PahoSubscriber(bridge.port, "plant/#", 1) as subscriber:
        publish_all(bridge.port, [("plant/1", b"21.5", 1, False, said(("unit", "C")))], version=version)
        message = subscriber.message()
        publish, put, deliver = collector.named("publish", "put", "deliver")
    chain(publish, put, deliver)
    assert publish.parent_id == ""
    assert [one.kind for one in (publish, put, deliver)] == ["server", "producer", "consumer"]
    assert {one.service for one in (publish, put, deliver)} == {"site 7"}
    assert publish.start <= put.start <= put.end <= publish.end
    assert deliver.start <= deliver.end
    assert deliver.events == ["sent"]
    assert publish.attributes == {
        "messaging.system": "mqtt",
        "messaging.operation.name": "publish",
        "messaging.destination.name": "plant/1",
        "messaging.client.id": "publisher",
        "messaging.message.id": "1",
        "messaging.message.body.size": 4,
        "mqtt.qos": 1,
        "mqtt.retain": False,
    }
    assert (deliver.attributes["messaging.destination.name"], deliver.attributes["mqtt.qos"]) == ("plant/1", 1)
    assert user_properties(message)["traceparent"] == put.traceparent
    assert ("unit" in user_properties(message)) == (version == "5")


# The context is in the message: it waits on the queue manager.
@pytest.mark.queue_managers("embedded", "ibmmq")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_waited_over_restarts_is_in_its_trace(
    new_bridge: Callable[..., BridgeProcess], collector: Collector, qos: int
) -> None:
    """Its delivery is the child of its put, though client and bridge were away meanwhile, and tracestate goes with it."""
    bridge = new_bridge(config=configured(collector)).start()
    with durable(bridge.port):
        pass
    context = said(("traceparent", SAMPLED), ("tracestate", "vendor=1"))
    publish_all(bridge.port, [("plant/1", b"21.5", qos, False, context)])
    publish, put = collector.named("publish", "put")
    bridge.restart()
    with durable(bridge.port):
        (deliver,) = collector.named("deliver")
    assert (publish.trace_id, publish.parent_id) == (TRACE, SPAN)
    assert [one.state for one in (publish, put, deliver)] == ["vendor=1"] * 3
    chain(publish, put, deliver)
    assert deliver.attributes["mqtt.qos"] == qos
    # It begins with its put, before the restart.
    assert deliver.start <= publish.end


def test_a_delivery_with_qos_0(new_bridge: Callable[..., BridgeProcess], collector: Collector) -> None:
    """It has a span, too, which ends when the message is written."""
    bridge = new_bridge(config=configured(collector)).start()
    with PahoSubscriber(bridge.port, "plant/#", 0) as subscriber:
        publish_all(bridge.port, [("plant/1", b"", 0, False, said())])
        subscriber.message()
        spans = collector.named("publish", "put", "deliver")
    chain(*spans)
    assert [one.attributes["mqtt.qos"] for one in (spans[0], spans[2])] == [0, 0]


def test_a_sender_decides_whether_its_messages_are_traced(
    new_bridge: Callable[..., BridgeProcess], collector: Collector
) -> None:
    """With sample 0 none begins a trace, one with a sampled parent is traced, and one with another is passed on as it is."""
    bridge = new_bridge(config=configured(collector, 0)).start()
    with PahoSubscriber(bridge.port, "plant/#", 1) as subscriber:
        publish_all(
            bridge.port,
            [
                ("plant/none", b"", 1, False, said(("a", "b"))),
                ("plant/unsampled", b"", 1, False, said(("traceparent", UNSAMPLED))),
                ("plant/malformed", b"", 1, False, said(("traceparent", "00-x"))),
                ("plant/several", b"", 1, False, said(("traceparent", SAMPLED), ("traceparent", SAMPLED))),
                ("plant/sampled", b"", 1, False, said(("traceparent", SAMPLED))),
            ],
        )
        given = {message.topic: user_properties(message) for message in (subscriber.message() for _ in range(5))}
        # The messages are traced in order, so the last one arrives last.
        publish, put, deliver = collector.named("publish", "put", "deliver")
    assert publish.attributes["messaging.destination.name"] == "plant/sampled"
    assert publish.trace_id == TRACE
    chain(publish, put, deliver)
    assert given == {
        "plant/none": {"a": "b"},
        "plant/unsampled": {"traceparent": UNSAMPLED},
        "plant/malformed": {"traceparent": "00-x"},
        "plant/several": {"traceparent": SAMPLED},
        "plant/sampled": {"traceparent": put.traceparent},
    }


def test_a_malformed_context_is_replaced(new_bridge: Callable[..., BridgeProcess], collector: Collector) -> None:
    """A new trace starts, without the received tracestate. The publication is processed as usual."""
    bridge = new_bridge(config=configured(collector)).start()
    malformed = said(("traceparent", SAMPLED.upper()), ("tracestate", "vendor=1"), ("unit", "C"))
    with PahoSubscriber(bridge.port, "plant/#", 1) as subscriber:
        publish_all(bridge.port, [("plant/1", b"", 1, False, malformed)])
        message = subscriber.message()
        publish, put = collector.named("publish", "put")
    assert publish.trace_id != TRACE
    assert (publish.parent_id, publish.state) == ("", "")
    assert user_properties(message) == {"unit": "C", "traceparent": put.traceparent}


def test_traces_without_names(new_bridge: Callable[..., BridgeProcess], collector: Collector) -> None:
    """Where names are not to leave, no span has a topic or client identifier, not even one that failed."""
    bridge = new_bridge(config=configured(collector, traces={"names": False})).start()
    with PahoSubscriber(bridge.port, "secret/#", 1) as subscriber:
        publish_all(bridge.port, [("secret/1", b"", 1, False, said())])
        subscriber.message()
        spans = collector.named("publish", "put", "deliver")
    assert "secret" not in repr(spans)
    assert "publisher" not in repr(spans)


def test_headers_come_from_a_file(
    new_bridge: Callable[..., BridgeProcess], collector: Collector, tmp_path: Path
) -> None:
    """Each request has them, and no log does."""
    file = tmp_path / "headers"
    file.write_text("# of the collector\nAuthorization: Bearer s3cret\n\nX-Scope: plant\n")
    bridge = new_bridge(config=configured(collector, traces={"headers_file": str(file)})).start()
    publish_all(bridge.port, [("plant/1", b"", 1, False, said())])
    collector.named("publish", "put")
    assert [(one["authorization"], one["x-scope"]) for one in collector.headers][:1] == [("Bearer s3cret", "plant")]
    assert bridge.stop() == 0
    assert "s3cret" not in bridge.log


def test_a_mapping_continues_the_trace(new_bridge: Callable[..., BridgeProcess], collector: Collector) -> None:
    """A publication that a mapping puts to a queue, and another takes from there to a topic, is one trace to its end."""
    mappings = {
        "out": {"from": {"mqtt": "up/+"}, "to": {"queue": "PLANT"}},
        "back": {"from": {"queue": "PLANT"}, "to": {"mqtt": "down/1"}},
    }
    bridge = new_bridge(config=configured(collector, 0, mappings=mappings))
    bridge.start()
    bridge.mqsc("DEFINE QLOCAL(PLANT)\n")
    with PahoSubscriber(bridge.port, "down/#", 1) as subscriber:
        publish_all(bridge.port, [("up/1", b"{}", 1, False, said(("traceparent", SAMPLED), ("unit", "C")))])
        message = subscriber.message()
        spans = collector.named("publish", "put", "mapping out", "mapping back", "deliver")
    assert spans[0].trace_id == TRACE
    chain(*spans)
    assert user_properties(message) == {"unit": "C", "traceparent": spans[3].traceparent}


@pytest.mark.queue_managers("embedded", "ibmmq")
def test_an_application_and_a_link_are_in_the_trace(
    new_bridge: Callable[..., BridgeProcess], collector: Collector, broker: Mosquitto
) -> None:
    """What an application has put comes to a broker, and from there to a queue, with the same trace."""
    mappings = {
        "out": {"from": {"queue": "OUT"}, "to": {"mqtt": "site/1", "link": "broker"}},
        "in": {"from": {"mqtt": "site/+", "link": "broker"}, "to": {"queue": "IN"}},
    }
    links = {"broker": {"host": "127.0.0.1", "port": broker.port}}
    bridge = new_bridge(config=configured(collector, 1, mappings=mappings, links=links)).start()
    bridge.mqsc("DEFINE QLOCAL(OUT)\nDEFINE QLOCAL(IN)\n")
    with PahoSubscriber(broker.port, "site/#", 1) as subscriber:
        bridge.mq("put", "OUT", "21.5")
        message = subscriber.message()
        out, into = collector.named("mapping out", "mapping in")
    chain(out, into)
    assert out.parent_id == ""
    assert user_properties(message)["traceparent"] == out.traceparent
    (got,) = bridge.mq_json("get", "IN", "--wait", f"{PATIENCE:g}")
    assert into.traceparent in json.dumps(got)


def test_a_rejected_publication_has_a_reason(new_bridge: Callable[..., BridgeProcess], collector: Collector) -> None:
    """The spans of a publication that the queue manager refuses have its reason."""
    bridge = new_bridge(config=configured(collector)).start()
    bridge.mqsc("DEFINE TOPIC(SHUT) TOPICSTR('shut') PUB(DISABLED)\n")
    publish_all(bridge.port, [("shut/1", b"", 1, False, said())])
    publish, put = collector.named("publish", "put")
    chain(publish, put)
    assert publish.error == put.error
    assert publish.error.startswith("MQRC_")


def test_a_rejecting_collector_is_reported_once(new_bridge: Callable[..., BridgeProcess], collector: Collector) -> None:
    """The failure and the recovery are each logged once."""
    collector.status = 400
    bridge = new_bridge(config=configured(collector)).start()
    publish_all(bridge.port, [(f"plant/{number}", b"", 1, False, said()) for number in range(5)])
    until(lambda: collector.headers, lambda: "no request")
    until(lambda: "MQB9301W" in bridge.log, lambda: bridge.log)
    requests = len(collector.headers)
    publish_all(bridge.port, [("plant/6", b"", 1, False, said())])
    until(lambda: len(collector.headers) > requests, lambda: "no second request")
    collector.status = 200
    publish_all(bridge.port, [("plant/7", b"", 1, False, said())])
    until(lambda: "MQB9302I" in bridge.log, lambda: bridge.log)
    assert bridge.log.count("MQB9301W") == 1
    assert "opentelemetry" not in bridge.log


@pytest.mark.parametrize("collector_is", ["away", "hung"])
def test_messages_do_not_wait_for_the_collector(new_bridge: Callable[..., BridgeProcess], collector_is: str) -> None:
    """With a collector that does not answer, all messages come, spans are dropped, and the bridge ends as always."""
    port, hung = free_port(), None
    if collector_is == "hung":
        hung = subprocess.Popen([sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)])
        until(lambda: _listens(port), lambda: "the server does not listen")
        suspend(hung.pid)
    try:
        bridge = new_bridge(config=configured(f"http://127.0.0.1:{port}/v1/traces", traces={"waiting": 50})).start()
        with PahoSubscriber(bridge.port, "plant/#", 1) as subscriber:
            publish_all(bridge.port, [(f"plant/{number}", b"", 1, False, said()) for number in range(MANY)])
            assert subscriber.until(f"plant/{MANY - 1}") == [f"plant/{number}" for number in range(MANY)]
        until(lambda: "MQB9301W" in bridge.log, lambda: bridge.log)
        assert bridge.stop() == 0
    finally:
        if hung is not None:
            hung.kill()
            hung.wait()
    assert bridge.log.count("MQB9301W") == 1
    assert "MQB9303W" in bridge.log


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
