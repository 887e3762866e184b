"""Traces: a publication, its put and its delivery are one trace, over restarts, mappings and links."""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work, bridge_on
from tests.helpers.collector import CollectedSpan, Collector
from tests.helpers.mosquitto import Mosquitto, free_port
from tests.helpers.paho_clients import PahoClient, PahoSubscriber, publish_all
from tests.helpers.patience import PATIENCE, until

# tests/contract/backend shows that contexts pass through each queue manager.
pytestmark = pytest.mark.queue_managers("embedded", slow="ibmmq")

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"
MANY = 300


@pytest.fixture(scope="module")
def collector(queue_manager: str) -> Iterator[Collector]:
    with Collector() as running:
        yield running


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    running = Mosquitto(tmp_path_factory.mktemp("broker")).start()
    yield running
    running.stop()


def configured(
    endpoint: str, sample: float = 1, traces: Mapping[str, object] = MappingProxyType({}), **more: Any
) -> str:
    """A configuration file with traces. Flow style YAML is JSON."""
    sections = {"traces": {"endpoint": endpoint, "sample": sample, **traces}, **more}
    return "".join(f"{name}: {json.dumps(section)}\n" for name, section in sections.items())


@pytest.fixture(scope="module")
def bridge(
    queue_manager: str, collector: Collector, broker: Mosquitto, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BridgeProcess]:
    """A bridge that traces everything, with mappings and a link."""
    directory = tmp_path_factory.mktemp("traced")
    (directory / "headers").write_text("# of the collector\nAuthorization: Bearer s3cret\n\nX-Scope: plant\n")
    config = configured(
        collector.endpoint,
        traces={"service_name": "site 7", "headers_file": str(directory / "headers")},
        links={"broker": {"host": "127.0.0.1", "port": broker.port}},
        mappings={
            "up": {"from": {"mqtt": "up/+"}, "to": {"queue": "PLANT"}},
            "down": {"from": {"queue": "PLANT"}, "to": {"mqtt": "down/1"}},
            "out": {"from": {"queue": "OUT"}, "to": {"mqtt": "site/1", "link": "broker"}},
            "in": {"from": {"mqtt": "site/+", "link": "broker"}, "to": {"queue": "IN"}},
        },
    )
    with at_work(bridge_on(queue_manager, directory / "data", config=config)) as running:
        running.mqsc("DEFINE QLOCAL(PLANT)\nDEFINE QLOCAL(OUT)\nDEFINE QLOCAL(IN)\n")
        yield running
        assert "s3cret" not in running.log


def publish_properties(*pairs: tuple[str, str]) -> Properties:
    properties = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = list(pairs)
    return properties


def user_properties(message: paho.MQTTMessage) -> dict[str, str]:
    return dict(getattr(message.properties, "UserProperty", []))


def chain(*spans: CollectedSpan) -> None:
    """Check that each span is the child of the previous one, in the same trace."""
    for parent, child in itertools.pairwise(spans):
        assert (child.trace_id, child.parent_id) == (parent.trace_id, parent.span_id), (parent, child)


def test_a_publication_its_put_and_its_delivery_are_one_trace(bridge: BridgeProcess, collector: Collector) -> None:
    """The bridge starts it, and the subscriber gets its context. Publisher and subscriber do not need to support traces."""
    versions, messages = ("3.1.1", "5"), {}
    with PahoSubscriber(bridge.port, "plant/#", 1) as subscriber:
        for version in versions:
            publish_all(
                bridge.port,
                [(f"plant/{version}", b"21.5", 1, False, publish_properties(("unit", "C")))],
                version=version,
            )
            messages[version] = subscriber.message()
        publish_all(bridge.port, [("plant/qos-0", b"", 0, False, publish_properties())])
        subscriber.message()
        traces = {version: collector.trace(f"plant/{version}", "publish", "put", "deliver") for version in versions}
        # A delivery with QoS 0 has a span, too, which ends when the message is written.
        spans = collector.trace("plant/qos-0", "publish", "put", "deliver")
    chain(*spans)
    assert [span.attributes["mqtt.qos"] for span in (spans[0], spans[2])] == [0, 0]
    for version, (publish, put, deliver) in traces.items():
        chain(publish, put, deliver)
        assert publish.parent_id == ""
        assert [span.kind for span in (publish, put, deliver)] == ["server", "producer", "consumer"]
        assert {span.service for span in (publish, put, deliver)} == {"site 7"}
        assert publish.start <= put.start <= put.end <= publish.end
        assert deliver.start <= deliver.end
        assert deliver.events == ["sent"]
        assert [span.name for span in (publish, put, deliver)] == [
            f"{operation} plant/{version}" for operation in ("publish", "put", "deliver")
        ]
        types = [span.attributes["messaging.operation.type"] for span in (publish, put, deliver)]
        assert types == ["receive", "send", "process"]
        topic = f"plant/{version}"
        assert publish.attributes == {
            "messaging.system": "mqtt",
            "messaging.operation.name": "publish",
            "messaging.operation.type": "receive",
            "messaging.destination.name": topic,
            "messaging.client.id": "publisher",
            "messaging.message.id": "1",
            "messaging.message.body.size": 4,
            "mqtt.qos": 1,
            "mqtt.retain": False,
        }
        assert (deliver.attributes["messaging.destination.name"], deliver.attributes["mqtt.qos"]) == (topic, 1)
        properties = user_properties(messages[version])
        assert properties["traceparent"] == put.traceparent
        assert ("unit" in properties) == (version == "5")
    # Each request has the headers of the file.
    assert {(headers["authorization"], headers["x-scope"]) for headers in collector.headers} == {
        ("Bearer s3cret", "plant")
    }


# The context is in the message, which waits on the queue manager.
@pytest.mark.queue_managers("embedded", "ibmmq")
def test_a_message_that_waited_over_restarts_belongs_to_its_trace(bridge: BridgeProcess, collector: Collector) -> None:
    """Its delivery is the child of its put, although client and bridge were stopped meanwhile. tracestate is preserved."""
    with PahoClient(bridge.port, "sleeper", paho.MQTTv5, clean=False) as sleeper:
        sleeper.subscribe(("waits/#", 2))
    context = publish_properties(("traceparent", SAMPLED), ("tracestate", "vendor=1"))
    before = {}
    for qos in (1, 2):
        publish_all(bridge.port, [(f"waits/{qos}", b"21.5", qos, False, context)])
    for qos in (1, 2):
        before[qos] = collector.trace(f"waits/{qos}", "publish", "put")
    bridge.restart()
    with PahoClient(bridge.port, "sleeper", paho.MQTTv5, clean=False):
        for qos, (publish, put) in before.items():
            (deliver,) = collector.trace(f"waits/{qos}", "deliver")
            assert (publish.trace_id, publish.parent_id) == (TRACE, SPAN)
            assert [span.state for span in (publish, put, deliver)] == ["vendor=1"] * 3
            chain(publish, put, deliver)
            assert deliver.attributes["mqtt.qos"] == qos
            # It starts with its put, before the restart.
            assert deliver.start <= publish.end


def test_a_malformed_context_is_replaced(bridge: BridgeProcess, collector: Collector) -> None:
    """A new trace starts, without the received tracestate. The publication is processed as usual."""
    malformed = publish_properties(("traceparent", SAMPLED.upper()), ("tracestate", "vendor=1"), ("unit", "C"))
    with PahoSubscriber(bridge.port, "malformed", 1) as subscriber:
        publish_all(bridge.port, [("malformed", b"", 1, False, malformed)])
        message = subscriber.message()
        publish, put = collector.trace("malformed", "publish", "put")
    assert publish.trace_id != TRACE
    assert (publish.parent_id, publish.state) == ("", "")
    assert user_properties(message) == {"unit": "C", "traceparent": put.traceparent}


def test_a_mapping_continues_the_trace(bridge: BridgeProcess, collector: Collector) -> None:
    """A publication that a mapping puts to a queue, and another one publishes from there, is one trace."""
    trace = "5" * 32
    context = publish_properties(("traceparent", f"00-{trace}-{SPAN}-01"), ("unit", "C"))
    with PahoSubscriber(bridge.port, "down/#", 1) as subscriber:
        publish_all(bridge.port, [("up/1", b"{}", 1, False, context)])
        message = subscriber.message()
        spans = collector.trace("up/1", "publish", "put", "mapping up")
        spans += collector.trace("down/1", "mapping down", "deliver")
    assert spans[0].trace_id == trace
    chain(*spans)
    assert user_properties(message) == {"unit": "C", "traceparent": spans[3].traceparent}


@pytest.mark.queue_managers("embedded", "ibmmq")
def test_an_application_and_a_link_belong_to_the_trace(
    bridge: BridgeProcess, collector: Collector, broker: Mosquitto
) -> None:
    """A message of an application reaches a broker, and from there a queue, in the same trace."""
    with PahoSubscriber(broker.port, "site/#", 1) as subscriber:
        bridge.mq("put", "OUT", "21.5")
        message = subscriber.message()
        out, into = collector.trace("site/1", "mapping out", "mapping in")
    chain(out, into)
    assert out.parent_id == ""
    assert user_properties(message)["traceparent"] == out.traceparent
    (got_message,) = bridge.mq_json("get", "IN", "--wait", f"{PATIENCE:g}")
    assert into.traceparent in json.dumps(got_message)


def test_a_rejected_publication_has_a_reason(bridge: BridgeProcess, collector: Collector) -> None:
    """The spans of a publication that the queue manager rejects contain the reason."""
    bridge.mqsc("DEFINE TOPIC(SHUT) TOPICSTR('shut') PUB(DISABLED)\n")
    publish_all(bridge.port, [("shut/1", b"", 1, False, publish_properties())])
    publish, put = collector.trace("shut/1", "publish", "put")
    chain(publish, put)
    assert publish.error == put.error
    assert publish.error.startswith("MQRC_")


def test_a_rejecting_collector_is_reported_once(bridge: BridgeProcess, collector: Collector) -> None:
    """The failure and the recovery are each logged once."""
    begin, requests = len(bridge.log), len(collector.headers)
    collector.status = 400
    try:
        publish_all(bridge.port, [(f"plant/{number}", b"", 1, False, publish_properties()) for number in range(5)])
        until(lambda: len(collector.headers) > requests, lambda: "no request")
        until(lambda: "MQB9301W" in bridge.log[begin:], lambda: bridge.log)
        requests = len(collector.headers)
        publish_all(bridge.port, [("plant/6", b"", 1, False, publish_properties())])
        until(lambda: len(collector.headers) > requests, lambda: "no second request")
    finally:
        collector.status = 200
    publish_all(bridge.port, [("plant/7", b"", 1, False, publish_properties())])
    until(lambda: "MQB9302I" in bridge.log[begin:], lambda: bridge.log)
    assert bridge.log[begin:].count("MQB9301W") == 1
    assert "opentelemetry" not in bridge.log


def test_the_sender_decides_whether_its_messages_are_traced(new_bridge: Callable[..., BridgeProcess]) -> None:
    """With sample 0, no message starts a trace, a message with a sampled parent is traced, and others are propagated
    unchanged.

    Without `names`, no span has a topic or client identifier.
    """
    with Collector() as collector:
        bridge = new_bridge(config=configured(collector.endpoint, 0, {"names": False})).start()
        contexts = {
            "none": [("a", "b")],
            "unsampled": [("traceparent", UNSAMPLED)],
            "malformed": [("traceparent", "00-x")],
            "several": [("traceparent", SAMPLED), ("traceparent", SAMPLED)],
            "sampled": [("traceparent", SAMPLED)],
        }
        with PahoSubscriber(bridge.port, "secret/#", 1) as subscriber:
            publish_all(
                bridge.port,
                [(f"secret/{name}", b"", 1, False, publish_properties(*pairs)) for name, pairs in contexts.items()],
            )
            contexts_of_messages = {
                message.topic: user_properties(message) for message in (subscriber.message() for _ in contexts)
            }
            # The messages are traced in order, so the last one arrives last.
            spans = collector.trace(None, "publish", "put", "deliver")
        assert len(collector.spans) == 3 and spans[0].trace_id == TRACE
    chain(*spans)
    assert "secret" not in repr(spans) and "publisher" not in repr(spans)
    assert contexts_of_messages == {
        "secret/none": {"a": "b"},
        "secret/unsampled": {"traceparent": UNSAMPLED},
        "secret/malformed": {"traceparent": "00-x"},
        "secret/several": {"traceparent": SAMPLED},
        "secret/sampled": {"traceparent": spans[1].traceparent},
    }


def test_messages_do_not_wait_for_the_collector(new_bridge: Callable[..., BridgeProcess]) -> None:
    """If the collector is unreachable or hangs, all messages arrive, spans are dropped, and the bridge ends normally."""
    port = free_port()
    bridge = new_bridge(config=configured(f"http://127.0.0.1:{port}/v1/traces", traces={"waiting": 50})).start()

    def publish_many() -> None:
        publish_all(bridge.port, [(f"plant/{number}", b"", 1, False, publish_properties()) for number in range(MANY)])
        assert subscriber.until(f"plant/{MANY - 1}") == [f"plant/{number}" for number in range(MANY)]

    with PahoSubscriber(bridge.port, "plant/#", 1) as subscriber:
        publish_many()
        until(lambda: "MQB9301W" in bridge.log, lambda: bridge.log)
        with socket.create_server(("127.0.0.1", port)):  # no process accepts its connections
            publish_many()
            assert bridge.stop() == 0
    assert bridge.log.count("MQB9301W") == 1
    assert "MQB9303W" in bridge.log
