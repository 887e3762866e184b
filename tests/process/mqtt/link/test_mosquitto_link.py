"""Links to a real mosquitto: both directions, both versions, TLS, and restarts of the broker."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.link import attempts
from bridge.link.outbox import LinkOutbox as LinkOutbox
from bridge.link.state import LinkLost, LinkPhase
from bridge.telemetry.message import Publication
from tests.helpers.certificate_authority import make
from tests.helpers.mosquitto import Mosquitto, Subscriber, tls_settings
from tests.helpers.patience import PATIENCE
from tests.helpers.publications import publication_of_fields
from tests.helpers.tested_link import LinkFactory, ready

MosquittoFactory = Callable[..., Mosquitto]

OPTION = {"3.1.1": "mqttv311", "5": "mqttv5"}


def batch(number: int, qos: int) -> list[Publication]:
    return [Publication(topic="t/x", payload=str(index).encode(), qos=qos) for index in range(number)]


def test_all_properties_of_mqtt_5(mosquitto: MosquittoFactory, link: LinkFactory) -> None:
    port = mosquitto().port
    receiver = ready(link(port, "5", "in", topic_filter="#", qos=1))
    sender = ready(link(port, "5", "out"))
    sent = publication_of_fields(
        topic="a/b",
        payload=b"\0\xff",
        qos=1,
        retain=True,
        client_id="sensor",
        expiry=100.0,
        response_topic="re/ply",
        correlation_data=b"\0\1",
        content_type="text/plain",
        users={"site": "Köln", "": "empty name"},
        hops=("QM1/one", "QM2/two"),
    )
    sender.publish([sent])
    (received,) = receiver.take_all(1)
    sent.packet_id = received.packet_id
    # Retain As Published: the flag is that of the publisher.
    assert received.publication == sent


@pytest.mark.parametrize(("options", "retained"), [({}, False), ({"bridge_bit": True}, True)])
def test_live_publications_of_mqtt_3_1_1_keep_retain_with_the_bridge_bit(
    mosquitto: MosquittoFactory, link: LinkFactory, options: dict[str, bool], retained: bool
) -> None:
    port = mosquitto().port
    receiver = ready(link(port, "3.1.1", "in", topic_filter="#", qos=1, **options))
    sender = ready(link(port, "5", "out"))
    sender.publish(
        [Publication(topic="a", payload=b"1", qos=1, retain=True), Publication(topic="a", payload=b"2", qos=1)]
    )
    received = receiver.take_all(2)
    assert [(message.publication.payload, message.publication.retain) for message in received] == [
        (b"1", retained),
        (b"2", False),
    ]


def test_only_mqtt_5_reports_a_publication_that_the_acl_rejects(
    mosquitto: MosquittoFactory, link: LinkFactory, version: str, tmp_path: Path
) -> None:
    acl = tmp_path / "acl"
    acl.write_text("topic readwrite allowed/#\n")
    acl.chmod(0o644)
    # With max_queued_messages 0, mosquitto 2.0.11 closes the connection instead.
    port = mosquitto("allow_anonymous true", f"acl_file {acl}", "max_queued_messages 1000").port
    sender = ready(link(port, version, "out"))
    reported = sender.publish([Publication(topic="forbidden", payload=b"1", qos=qos) for qos in (1, 2)])
    assert set(reported) == (set() if version == "3.1.1" else {0, 1})


def test_exactly_once_to_a_subscriber(
    mosquitto: MosquittoFactory, link: LinkFactory, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repeated on a new connection with the same message ids and DUP, and released twice, each arrives once."""
    monkeypatch.setattr(attempts, "FIRST_PAUSE", 1e6)
    monkeypatch.setattr(attempts, "LONGEST_PAUSE", 1e6)
    port = mosquitto().port
    with Subscriber(port, "t/#", qos=2, version=OPTION[version]) as subscriber:
        first = ready(link(port, version, "exactly"))
        assert first.publish_exactly(batch(3, 2), [5, 6, 7]) == {}
        # A connection with the same identifier disconnects the first one, which does not return, as if it were killed.
        second = ready(link(port, version, "exactly"))
        assert second.session_present
        assert second.publish_exactly(batch(3, 2), [5, 6, 7], dup=True) == {}
        second.release([5, 6, 7])
        second.release([5, 6, 7])
        assert second.publish([Publication(topic="t/end", payload=b"end", qos=2)]) == {}
        assert [subscriber.message()["payload"] for _ in range(4)] == ["0", "1", "2", "end"]


@pytest.mark.parametrize("qos", [1, 2])
def test_mosquitto_stops_and_returns(
    mosquitto: MosquittoFactory, link: LinkFactory, version: str, qos: int, impatient: None
) -> None:
    broker = mosquitto()
    receiver = ready(link(broker.port, version, "in", topic_filter="t/#", qos=qos))
    sender = ready(link(broker.port, version, "out"))
    assert sender.publish(batch(3, qos)) == {}
    unacknowledged = receiver.take_all(3)
    broker.stop()
    receiver.state_where(LinkPhase.WAITING)
    sender.state_where(LinkPhase.WAITING)
    with pytest.raises(LinkLost):
        sender.publish(batch(1, 0))
    broker.start()
    ready(receiver)
    assert receiver.session_present
    # All unacknowledged messages are repeated with the same message ids and DUP.
    again = receiver.take_all(3)
    assert [(message.packet_id, message.dup) for message in again] == [
        (message.packet_id, True) for message in unacknowledged
    ]
    receiver.acknowledge(unacknowledged)
    receiver.acknowledge(again)
    if qos == 2:
        receiver.complete(receiver.released_all(3))
    assert ready(sender).publish(batch(1, qos)) == {}
    assert receiver.take_all(1)[0].dup is False
    assert (receiver.counters.reconnects, sender.counters.reconnects) == (1, 1)


def test_passwords(
    mosquitto: MosquittoFactory, link: LinkFactory, version: str, tmp_path: Path, impatient: None
) -> None:
    users = tmp_path / "users"
    if shutil.which("mosquitto_passwd") is None:
        pytest.fail("mosquitto_passwd is not installed; it belongs to mosquitto")
    subprocess.run(["mosquitto_passwd", "-b", "-c", str(users), "maria", "s3cret"], check=True)
    port = mosquitto(f"password_file {users}", "allow_anonymous false").port
    ready(link(port, version, "right", user="maria", password="s3cret"))
    wrong = link(port, version, "wrong", user="maria", password="secret")
    # mosquitto 2.0 answers a wrong password with Not authorized.
    assert "Not authorized" in wrong.state_where(LinkPhase.WAITING).error


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    make(directory)
    return directory


def test_tls(mosquitto: MosquittoFactory, link: LinkFactory, version: str, certificates: Path) -> None:
    port = mosquitto(*tls_settings(certificates, "allow_anonymous true")).port
    tls = {"ca_file": certificates / "ca.pem"}
    receiver = ready(link(port, version, "in", host="localhost", topic_filter="t", qos=1, tls=tls))
    sender = ready(link(port, version, "out", host="localhost", tls=tls))
    assert receiver.certificate_expiry == pytest.approx(time.time() + 2 * 86_400, abs=3_600)
    sizes = [1, 3_000_000, 0, 16384, 16385, 70_000]
    assert sender.publish([Publication(topic="t", payload=b"x" * size, qos=1) for size in sizes]) == {}
    assert [len(message.publication.payload) for message in receiver.take_all(len(sizes))] == sizes


@pytest.mark.parametrize(
    ("host", "tls", "why"),
    [
        pytest.param("localhost", {}, "certificate was rejected: self-signed", id="authority of nobody's trust"),
        pytest.param("127.0.0.1", {"ca_file": "ca.pem"}, "IP address mismatch", id="another host name"),
        pytest.param("localhost", {"ca_file": "none.pem"}, "tls.ca_file", id="no such file"),
        pytest.param("localhost", {"ca_file": "server.key"}, "tls.ca_file", id="no certificate"),
        pytest.param("localhost", {"certificate_file": "client.key"}, "tls.certificate_file", id="no own certificate"),
        pytest.param(
            "localhost",
            {"certificate_file": "client.pem", "key_file": "client.key"},
            "tls.key_password_variable",
            id="no password",
        ),
        pytest.param(
            "localhost",
            {"certificate_file": "client.pem", "key_file": "client.key", "key_password_variable": "LINK_UNSET"},
            "LINK_UNSET",
            id="no variable",
        ),
    ],
)
def test_tls_errors_are_reported(
    mosquitto: MosquittoFactory,
    link: LinkFactory,
    certificates: Path,
    host: str,
    tls: dict[str, str],
    why: str,
    impatient: None,
) -> None:
    port = mosquitto(*tls_settings(certificates, "allow_anonymous true")).port
    files = {name: certificates / value if name.endswith("file") else value for name, value in tls.items()}
    assert why in link(port, host=host, tls=files).state_where(LinkPhase.WAITING).error


def test_tls_without_verification_of_the_host_name(
    mosquitto: MosquittoFactory, link: LinkFactory, certificates: Path
) -> None:
    port = mosquitto(*tls_settings(certificates, "allow_anonymous true")).port
    ready(link(port, host="127.0.0.1", tls={"ca_file": certificates / "ca.pem", "check_host_name": False}))


def test_tls_with_a_client_certificate(
    mosquitto: MosquittoFactory, link: LinkFactory, certificates: Path, monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    monkeypatch.setenv("LINK_KEY", "p4ss")
    port = mosquitto(*tls_settings(certificates, "allow_anonymous true", "require_certificate true")).port
    trust = {"ca_file": certificates / "ca.pem"}
    own = {"certificate_file": certificates / "client.pem", "key_file": certificates / "client.key"}
    ready(link(port, "5", "with", host="localhost", tls=trust | own | {"key_password_variable": "LINK_KEY"}))
    assert link(port, "5", "without", host="localhost", tls=trust).state_where(LinkPhase.WAITING).error


def test_a_changed_filter_delivers_once(mosquitto: MosquittoFactory, link: LinkFactory, version: str) -> None:
    """The old filter is unsubscribed together with the new subscription, in the durable session. No message is lost."""
    port = mosquitto().port
    receiver = ready(link(port, version, "in", topic_filter="plant/#", qos=2))
    receiver.stop(PATIENCE)
    sender = ready(link(port, version, "out"))
    sender.publish([Publication(topic="plant/a", payload=b"before", qos=2)])
    receiver = link(port, version, "in", topic_filter="plant/+/#", qos=2, former=("plant/#",))
    ready(receiver)
    sender.publish([Publication(topic="plant/a", payload=b"%d" % number, qos=2) for number in range(20)])
    payloads: list[Any] = []
    while len(payloads) < 21:
        arrivals = receiver.take(100, 1 << 20, PATIENCE)
        payloads += [message.publication.payload for message in arrivals]
        receiver.acknowledge(arrivals)
        receiver.complete(receiver.released())
    sender.publish([Publication(topic="plant/a", payload=b"last", qos=2)])
    (last,) = receiver.take_all(1)
    assert payloads == [b"before", *(b"%d" % number for number in range(20))]
    assert last.publication.payload == b"last"
