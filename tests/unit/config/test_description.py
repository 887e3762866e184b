"""Links and mappings in plain words, as `mqbridge check` prints them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.config.description import describe
from bridge.config.document import load

LINKS = {
    "{host: h, transport: websocket, failover: ['h2:9001', '[::1]:80'], tls: {alpn: [http/1.1, x]}}": (
        "MQTT 5 at h:443, h2:9001 or [::1]:80 over WebSocket /mqtt, TLS that trusts what this machine trusts, ALPN"
        " http/1.1 x, durable session 'mqbridge-{bridge}-{mapping}', at most 1000 publications in flight"
    ),
    "{host: h}": (
        "MQTT 5 at h:1883, no TLS, durable session 'mqbridge-{bridge}-{mapping}', at most 1000 publications in flight"
    ),
    "{host: '::1', version: 3.1.1, tls: , session: clean, client_id: me, in_flight: 1}": (
        "MQTT 3.1.1 at [::1]:8883, TLS that trusts what this machine trusts, clean session 'me',"
        " at most 1 publication in flight"
    ),
    "{host: h, port: 1, tls: {ca_file: /ca, certificate_file: /c, key_file: /k, check_host_name: false}, user: u,"
    " password_file: /pw}": (
        "MQTT 5 at h:1, TLS that trusts /ca, certificate /c, WHOSE HOST NAME IS NOT CHECKED, as user u, password in /pw,"
        " durable session 'mqbridge-{bridge}-{mapping}', at most 1000 publications in flight"
    ),
    "{host: h, version: 3.1.1, bridge_bit: true}": (
        "MQTT 3.1.1 at h:1883, no TLS, durable session 'mqbridge-{bridge}-{mapping}', at most 1000 publications in flight,"
        " connects as a bridge (bridge bit)"
    ),
    "{host: h, user: u, password_variable: PW}": (
        "MQTT 5 at h:1883, no TLS, as user u, password in the environment variable PW, durable session"
        " 'mqbridge-{bridge}-{mapping}', at most 1000 publications in flight"
    ),
    "{host: h, user: u}": (
        "MQTT 5 at h:1883, no TLS, as user u, no password, durable session 'mqbridge-{bridge}-{mapping}', at most 1000"
        " publications in flight"
    ),
}

MAPPINGS = {
    "{from: {mqtt: 'a/{b}'}, to: {queue: 'A.{b}'}}": (
        ": from MQTT topic a/{b} of the bridge's own clients to queue A.{b}, at-least-once"
    ),
    "{from: {mqtt: 'a/{b}'}, to: {queue: A, queue_manager: '{b}'}, allow: [QM2, 'client:*']}": (
        ": from MQTT topic a/{b} of the bridge's own clients to queue A at queue manager {b}, at-least-once\n"
        "  messages may also choose QM2 and client:*"
    ),
    "{from: {mqtt: a, link: l}, to: {queue: A, queue_manager: QM2}, enabled: no, guarantee: at-most-once}": (
        " (not enabled: its messages wait): from MQTT topic a of link l to queue A at queue manager QM2, at-most-once"
    ),
    "{from: {mqtt: a}, to: {queue: A, requests_queue: R}, attributes: {reply_to_queue: B}}": (
        ": from MQTT topic a of the bridge's own clients to queue A, whose requests are kept on queue R, at-least-once\n"
        "  reply_to_queue B"
    ),
    "{from: {queue: B, requests_queue: R}, to: {mqtt: '{responseTopic}', link: l}}": (
        ": from queue B, with answers to the requests kept on queue R, to MQTT topic {responseTopic} of link l,"
        " at-least-once"
    ),
    "{from: {topic: 'a/{b...}'}, to: {mqtt: '{b}', link: l}, guarantee: exactly-once}": (
        ": from MQ topic a/{b...} to MQTT topic {b} of link l, exactly-once"
    ),
    "{from: {mqtt: a}, to: {topic: b}, filter: {qos: [0, 2], retained: no, min_size: 1, max_size: 1 KiB,"
    " properties: {x: 5, y: , z: [a, true]}, json: $.a > 1}}": (
        ": from MQTT topic a of the bridge's own clients to MQ topic b, at-least-once\n"
        "  only messages with QoS 0 or 2\n"
        "  only messages with no retained flag\n"
        "  only messages with a payload of at least 1 B\n"
        "  only messages with a payload of at most 1 KiB\n"
        "  only messages with property x = 5\n"
        "  only messages with no property y\n"
        "  only messages with property z = a or true\n"
        "  only messages with a JSON payload where $.a > 1"
    ),
    "{from: {mqtt: a}, to: {queue: A}, filter: {qos: 1, retained: yes}, payload: {type: text, ccsid: 500},"
    " attributes: {persistence: {2: as-queue}, priority: 4, expiry: 5 min, rfh2: no, properties: {site: x}},"
    " batch: {messages: 1}, backouts: 0}": (
        ": from MQTT topic a of the bridge's own clients to queue A, at-least-once\n"
        "  only messages with QoS 1\n"
        "  only messages with the retained flag\n"
        "  payload: text, from UTF-8 to CCSID 500\n"
        "  persistence 0: not-persistent, 1: persistent and 2: as-queue\n"
        "  priority 4\n"
        "  expiry 5 min\n"
        "  rfh2 false\n"
        "  properties site: x\n"
        "  units of work of at most 1 message, 5 MiB, 10 ms\n"
        "  to the dead-letter queue after 0 backouts"
    ),
    "{from: {queue: A}, to: {mqtt: a}, payload: text, attributes: {qos: 1, retained: always}}": (
        ": from queue A to MQTT topic a of the bridge's own clients, at-least-once\n"
        "  payload: text, from the CCSID that the message has to UTF-8\n"
        "  qos 1\n"
        "  retained always"
    ),
    "{from: {queue: A}, to: {mqtt: a}, payload: {type: json, object: {value: '{text}', site: x}}}": (
        ": from queue A to MQTT topic a of the bridge's own clients, at-least-once\n"
        "  payload: a JSON object with value: {text} and site: x"
    ),
    "{from: {mqtt: a}, to: {queue: A}, payload: json, attributes: {expiry: as-published}}": (
        ": from MQTT topic a of the bridge's own clients to queue A, at-least-once\n"
        "  payload: JSON, from UTF-8 to UTF-8 (CCSID 1208)"
    ),
}


def described(directory: Path, text: str) -> list[str]:
    file = directory / "bridge.yaml"
    file.write_text(text)
    return describe(load(file))


@pytest.mark.parametrize(("link", "words"), LINKS.items())
def test_link(link: str, words: str, tmp_path: Path) -> None:
    assert f"link one: {words}" in described(tmp_path, f"links: {{one: {link}}}")


@pytest.mark.parametrize(("mapping", "words"), MAPPINGS.items())
def test_mapping(mapping: str, words: str, tmp_path: Path) -> None:
    lines = described(tmp_path, f"links: {{l: {{host: h}}}}\nmappings: {{one: {mapping}}}")
    first = next(index for index, line in enumerate(lines) if line.startswith("mapping "))
    last = next(index for index, line in enumerate(lines) if line.startswith("mqbridge reload"))
    assert "\n".join(lines[first:last]) == f"mapping one{words}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("queue_manager: {data_directory: /d}", "mqbridge reload and mqbridge mapping reach it at /d/control.sock"),
        ("control_socket: /run/c.sock", "mqbridge reload and mqbridge mapping reach it at /run/c.sock"),
        (
            "queue_manager: {type: ibm, name: Q, mode: bindings}",
            "no control socket: mappings are reloaded by SIGHUP only",
        ),
        (
            "queue_manager: {type: ibm, name: Q, mode: bindings}\ncontrol_socket: /c",
            "mqbridge reload and mqbridge mapping reach it at /c",
        ),
    ],
)
def test_control_socket(text: str, words: str, tmp_path: Path) -> None:
    mapping = "\nmappings: {one: {from: {mqtt: a}, to: {queue: A}}}"
    assert words in described(tmp_path, text + mapping)
    assert words not in described(tmp_path, text)


@pytest.mark.parametrize(
    ("archive", "words"),
    [
        ("directory: /kept", "with payloads, kept without limit; killing the archive process loses the last 10 s"),
        (
            "directory: /kept, payloads: false, retention_days: 30, roll: {time: 60}",
            "without payloads, kept 30 days; killing the archive process loses the last 1 min",
        ),
    ],
)
def test_archive(archive: str, words: str, tmp_path: Path) -> None:
    assert f"messages are archived in /kept, {words}" in described(tmp_path, f"archive: {{{archive}}}")
