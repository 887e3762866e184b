"""`/metrics` of a running bridge: promtool accepts it, and the values match the actions of clients."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.config.models import Configuration
from bridge.mq.embedded.host import EmbeddedHost
from bridge.mqtt.packets import Connack, Connect, Disconnect, Publish
from bridge.mqtt.writer import encode
from bridge.service.events import Published
from bridge.service.lifecycle import Bridge
from bridge.service.metric_catalogue import CATALOGUE
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.certificate_authority import Authority
from tests.helpers.mosquitto import Mosquitto
from tests.helpers.patience import eventually
from tests.helpers.raw_client import ConnectionClosed, RawClient
from tests.helpers.scrape import OPEN_METRICS, Scrape, admin_url, ask, promtool

CHANNEL = "PLAIN.MQTT"
VERSIONS = {3: "3.1", 4: "3.1.1", 5: "5"}
#: Metrics of the process and of Python are prometheus_client's.
FOREIGN = ("process_", "python_")


#: The first channel is for all tests, each of the others for one.
CONFIG = """
admin: {{port: 0}}
channels:
  - {{name: PLAIN.MQTT, port: 0}}
  - {{name: STRICT, port: 0, publish_topics: [allowed/#]}}
  - {{name: LENIENT, port: 0, publish_topics: [allowed/#], refused_to_dead_letters: [MQRC_NOT_AUTHORIZED]}}
  - {{name: GUARDED, port: 0, authentication: [{{method: password, file: {0}/passwords}}]}}
  - {{name: SMALL, port: 0, max_clients: 1}}
  - {{name: TLS, port: 0, tls: {{certificate_file: {0}/server.pem, key_file: {0}/server.key}}}}
mappings:
  m: {{from: {{queue: SOURCE}}, to: {{mqtt: out}}, enabled: false}}
  n: {{from: {{queue: N}}, to: {{mqtt: out}}}}
"""


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    """A bridge with an admin port, which all tests share."""
    directory = tmp_path_factory.mktemp("metrics")
    (directory / "passwords").touch(0o600)
    Authority(directory).issue("server")
    with at_work(BridgeProcess(directory / "data", config=CONFIG.format(directory))) as process:
        yield process


def exchange(port: int, level: int, qos: int, messages: int, payload: bytes) -> None:
    """Publish from a client to itself. Return when the bridge has received the last acknowledgement."""
    with RawClient.connected(port, f"v{level}q{qos}", level=level) as client:
        client.subscribe((f"metrics/{level}/{qos}", qos))
        for _ in range(messages):
            client.publish(f"metrics/{level}/{qos}", payload, qos)
            client.acknowledge(client.wait_for(Publish))
        client.ping()
        client.disconnect()


def test_promtool_reports_no_problem(bridge: BridgeProcess) -> None:
    """`promtool check metrics` accepts a scrape of a bridge with clients, without warnings about bad practices."""
    exchange(bridge.port, 4, 1, 1, b"x")
    status, text = ask(f"{admin_url(bridge.announced)}/metrics")
    assert status == 200
    assert promtool("check", "metrics", text=text) == ""


def test_the_accept_header_determines_the_format(bridge: BridgeProcess) -> None:
    url = f"{admin_url(bridge.announced)}/metrics"
    assert ask(url, OPEN_METRICS)[1].endswith("# EOF\n")
    assert "# EOF" not in ask(url)[1]
    assert "# EOF" not in ask(url, "text/html,*/*")[1]


def test_a_scrape_contains_the_metrics_of_the_catalogue(bridge: BridgeProcess) -> None:
    exchange(bridge.port, 4, 1, 1, b"x")
    families = {family.name: family for family in Scrape(bridge).families if not family.name.startswith(FOREIGN)}
    suffix = {"counter": "_total", "info": "_info"}
    expected = {metric.name.removesuffix(suffix.get(metric.kind, "")): metric for metric in CATALOGUE.values()}
    assert families.keys() == expected.keys()
    for name, metric in expected.items():
        family = families[name]
        assert (family.type, family.documentation) == (metric.kind, metric.meaning)
        for sample in family.samples:
            assert sample.labels.keys() - {"le"} == set(metric.labels), name


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("level", VERSIONS)
def test_publications_are_counted(bridge: BridgeProcess, level: int, qos: int) -> None:
    messages, payload = 3, b"x" * 1000
    labels = {"channel": CHANNEL, "version": VERSIONS[level], "qos": str(qos)}
    before = Scrape(bridge)
    exchange(bridge.port, level, qos, messages, payload)

    def counted() -> dict[str, float]:
        now = Scrape(bridge)
        wanted = [
            *((f"mqbridge_publications_total {way}", {"direction": way}) for way in ("in", "out")),
            *((f"mqbridge_publication_bytes_total {way}", {"direction": way}) for way in ("in", "out")),
            *((f"mqbridge_{step}_seconds_count", {}) for step in ("put", "acknowledgement", "delivery")),
        ]
        return {
            name: now.total(name.split()[0], **labels, **more) - before.total(name.split()[0], **labels, **more)
            for name, more in wanted
        }

    eventually(
        counted,
        {
            "mqbridge_publications_total in": messages,
            "mqbridge_publications_total out": messages,
            "mqbridge_publication_bytes_total in": messages * len(payload),
            "mqbridge_publication_bytes_total out": messages * len(payload),
            "mqbridge_put_seconds_count": messages,
            # QoS 0 has no acknowledgement.
            "mqbridge_acknowledgement_seconds_count": messages if qos else 0,
            "mqbridge_delivery_seconds_count": messages,
        },
    )


def test_connected_clients_are_counted(bridge: BridgeProcess) -> None:
    labels = {"channel": CHANNEL, "version": "5"}
    before = Scrape(bridge)
    with RawClient.connected(bridge.port, "comes-and-goes", level=5) as client:
        now = Scrape(bridge)
        assert now.get("mqbridge_clients", **labels) == before.total("mqbridge_clients", **labels) + 1
        assert now.get("mqbridge_connects_total", **labels) == before.total("mqbridge_connects_total", **labels) + 1
        assert now.total("mqbridge_connections", channel=CHANNEL) >= 1
        client.disconnect()
    eventually(lambda: Scrape(bridge).get("mqbridge_clients", **labels), before.total("mqbridge_clients", **labels))


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (Connect("x" * 49, "MQTT", 4), "client_identifier_not_valid"),
        (Connect("c", "MQTT", 7), "unsupported_protocol_version"),
        (Connect("x" * 49, "MQTT", 5), "client_identifier_not_valid"),
    ],
)
def test_rejected_connects_are_counted_by_reason(bridge: BridgeProcess, packet: Connect, reason: str) -> None:
    labels = {"channel": CHANNEL, "reason": reason}
    before = Scrape(bridge).total("mqbridge_connects_refused_total", **labels)
    with RawClient(bridge.port, "c", level=packet.protocol_level if packet.protocol_level in VERSIONS else 4) as client:
        client.send(packet)
        client.expect(Connack)
        assert Scrape(bridge).get("mqbridge_connects_refused_total", **labels) == before + 1


def test_messages_that_are_sent_again_are_counted(bridge: BridgeProcess) -> None:
    before = Scrape(bridge).total("mqbridge_messages_resent_total")
    with RawClient.connected(bridge.port, "again", clean=False) as client:
        client.subscribe(("again", 1))
        client.publish("again", b"x", 1)
        assert not client.wait_for(Publish).dup
    with RawClient(bridge.port, "again", clean=False) as client:
        client.connect()
        again = client.wait_for(Publish)
        assert again.dup
        client.acknowledge(again)
        client.ping()
        eventually(lambda: Scrape(bridge).total("mqbridge_messages_resent_total", channel=CHANNEL), before + 1)
        client.unsubscribe("again")


def test_the_depth_and_age_of_the_transmission_queue_are_measured(bridge: BridgeProcess, tmp_path: Path) -> None:
    queue = {"qmgr": "MQB1", "platform": "UNIX", "queue": "SYSTEM.MQTT.TRANSMIT.QUEUE", "usage": "XMITQ"}
    with RawClient.connected(bridge.port, "away", clean=False) as client:
        client.subscribe(("away", 1))
        client.disconnect()
    with RawClient.connected(bridge.port, "sends") as sender:
        for _ in range(3):
            sender.publish("away", b"x", 1)
    now = Scrape(bridge)
    assert now.get("ibmmq_queue_depth", **queue) == now.get("mqbridge_transmission_queue_depth") == 3
    age = now.get("ibmmq_queue_oldest_message_age", **queue)
    assert age is not None and age > 0
    with RawClient(bridge.port, "away", clean=True) as client:
        client.connect()
    eventually(lambda: Scrape(bridge).get("ibmmq_queue_depth", **queue), 0)
    assert Scrape(bridge).get("ibmmq_queue_oldest_message_age", **queue) == 0
    assert Scrape(bridge).total("mqbridge_messages_discarded_total", reason="session_ended") >= 3


def test_commits_are_timed(bridge: BridgeProcess) -> None:
    before = Scrape(bridge)
    with RawClient.connected(bridge.port, "durable", clean=False) as client:
        client.disconnect()
    now = Scrape(bridge)
    for name in (
        "mqbridge_commit_seconds_count",
        "mqbridge_committed_units_of_work_total",
        "mqbridge_recovery_log_written_bytes_total",
    ):
        assert now.total(name) > before.total(name), name
    assert now.total("mqbridge_commits_failed_total") == 0
    assert now.total("mqbridge_recovery_log_file_bytes", file="database") > 0


def test_names_of_clients_and_topics_create_no_series(bridge: BridgeProcess) -> None:
    exchange(bridge.port, 4, 0, 1, b"x")

    async def come_and_go(number: int, turn: asyncio.Semaphore) -> None:
        name = f"flood-{number}"
        async with turn:
            reader, writer = await asyncio.open_connection("127.0.0.1", bridge.port)
            packets = (Connect(name, "MQTT", 4), Publish(f"flood/{name}", b"x", 0, False, False, 0), Disconnect())
            writer.write(b"".join(encode(packet) for packet in packets))
            await reader.read()  # until the bridge closes the connection
            writer.close()

    async def flood() -> None:
        turn = asyncio.Semaphore(50)
        await asyncio.gather(*(come_and_go(number, turn) for number in range(2_000)))

    before = Scrape(bridge)
    asyncio.run(flood())
    now = Scrape(bridge)
    connects = {"channel": CHANNEL, "version": "3.1.1"}
    assert (
        now.total("mqbridge_connects_total", **connects) >= before.total("mqbridge_connects_total", **connects) + 2_000
    )
    assert not [labels for _, labels in now.values if any("flood" in value for _, value in labels)]
    # Sessions of other tests may add series to the gauges of sessions, which are updated every 10 s at most.
    assert len(now.values.keys() - before.values.keys()) < 20


def test_rejected_publications_and_dead_letters_are_counted(bridge: BridgeProcess) -> None:
    for channel in ("STRICT", "LENIENT"):
        with RawClient.connected(bridge.ports[channel], channel, level=5) as client:
            client.publish("allowed/t", b"x", 1)
            client.publish("forbidden/t", b"x", 1)
    now = Scrape(bridge)
    reason = "MQRC_NOT_AUTHORIZED"
    assert now.get("mqbridge_publications_refused_total", channel="STRICT", reason=reason) == 1
    assert now.total("mqbridge_publications_refused_total", channel="LENIENT") == 0
    assert now.get("mqbridge_dead_letters_total", direction="in", reason=reason) == 1


def test_failed_authentications_are_counted(bridge: BridgeProcess) -> None:
    with RawClient(bridge.ports["GUARDED"], "c", user_name="u", password=b"wrong") as client:
        assert client.connect().return_code == 4
    now = Scrape(bridge)
    assert now.get("mqbridge_authentications_failed_total", channel="GUARDED") == 1
    assert now.get("mqbridge_connects_refused_total", channel="GUARDED", reason="bad_user_name_or_password") == 1


async def test_without_an_admin_port_nothing_is_counted(tmp_path: Path) -> None:
    configuration = Configuration(
        queue_manager={"data_directory": tmp_path / "data"}, channels=[{"name": "A", "port": 0}]
    )
    bridge = Bridge(configuration, announce=lambda _: None)
    await bridge.start()
    assert bridge.metrics is None
    assert Published not in bridge.parts.service.events._handlers
    assert isinstance(bridge.host, EmbeddedHost)
    assert bridge.host.queue_manager.recovery_log.commits is None
    await bridge.stop()


def test_connections_beyond_max_clients_are_counted(bridge: BridgeProcess) -> None:
    port = bridge.ports["SMALL"]
    with RawClient.connected(port, "first") as first:
        with pytest.raises(ConnectionClosed), RawClient(port, "second") as second:
            second.expect(Connack)
            second.receive()
        first.ping()
        assert Scrape(bridge).get("mqbridge_connections_refused_total", channel="SMALL") == 1


def test_mappings_and_links_are_measured(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path).start()
    config = f"admin: {{port: 0}}\nlinks: {{plant: {{host: 127.0.0.1, port: {broker.port}}}}}\nmappings:\n"
    config += "  up: {from: {topic: up/#}, to: {mqtt: '{mqps.Top}', link: plant}, filter: {json: $.keep}}\n"
    bridge = BridgeProcess(tmp_path / "data", config=config).start()
    try:
        link, mapping = {"link": "plant", "mapping": "up"}, {"mapping": "up"}
        eventually(lambda: Scrape(bridge).get("mqbridge_link_up", **link), 1)
        eventually(lambda: Scrape(bridge).get("mqbridge_mapping_state", state="running", **mapping), 1)
        with RawClient.connected(bridge.port, "c") as client:
            client.publish("up/1", b'{"keep": 1}', 1)
            client.publish("up/2", b"{}", 1)
        eventually(lambda: Scrape(bridge).get("mqbridge_mapping_messages_total", outcome="moved", **mapping), 1)
        eventually(lambda: Scrape(bridge).get("mqbridge_mapping_messages_total", outcome="filtered", **mapping), 1)
        assert Scrape(bridge).get("mqbridge_link_publications_total", direction="out", **link) == 1
    finally:
        broker.stop()
    eventually(lambda: Scrape(bridge).get("mqbridge_link_up", **link), 0)
    eventually(lambda: Scrape(bridge).get("mqbridge_mapping_state", state="waiting for the link", **mapping), 1)
    assert bridge.stop() == 0


def test_disconnects_are_counted_by_reason(bridge: BridgeProcess) -> None:
    def ends() -> dict[str, float]:
        scrape = Scrape(bridge)
        reasons = ("disconnected_by_client", "connection_lost", "protocol_error", "session_taken_over")
        return {
            reason: scrape.total("mqbridge_disconnects_total", channel=CHANNEL, reason=reason) for reason in reasons
        }

    before = ends()
    RawClient.connected(bridge.port, "polite").disconnect()
    with RawClient.connected(bridge.port, "gone"):
        pass
    with RawClient.connected(bridge.port, "twice"), RawClient.connected(bridge.port, "twice") as second:
        second.send(second.packet)  # a second CONNECT
        second.expect_closed()
    eventually(lambda: {reason: count - before[reason] for reason, count in ends().items()}, dict.fromkeys(before, 1))


def test_failed_handshakes_are_counted(bridge: BridgeProcess) -> None:
    with socket.create_connection(("127.0.0.1", bridge.ports["TLS"])) as plain:
        plain.sendall(b"this is no TLS")
        plain.recv(1000)
    eventually(lambda: Scrape(bridge).total("mqbridge_handshakes_failed_total", channel="TLS"), 1)


def test_the_disk_and_the_backlog_of_a_mapping_are_measured(bridge: BridgeProcess) -> None:
    bridge.mqsc("DEFINE QLOCAL(SOURCE)\nDEFINE QLOCAL(N)\n")
    for queue in ("SOURCE", "SOURCE", "N"):
        bridge.mq("put", queue, "x")
    eventually(lambda: Scrape(bridge).total("mqbridge_mapping_backlog_messages", mapping="m"), 2)
    eventually(lambda: Scrape(bridge).total("mqbridge_mapping_unit_of_work_seconds_count", mapping="n"), 1)
    scrape = Scrape(bridge)
    assert 0 < scrape.total("mqbridge_disk_free_bytes") <= scrape.total("mqbridge_disk_size_bytes")
