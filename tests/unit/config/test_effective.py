"""The effective configuration: it is equivalent to the file, and contains no secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge.config.authentication import PluginAuthenticationConfig
from bridge.config.channel import ChannelConfig
from bridge.config.document import load
from bridge.config.effective import described, effective, effective_yaml
from bridge.config.models import Configuration, default_configuration
from bridge.config.problems import ConfigurationError
from bridge.config.queue_manager import IbmQueueManagerConfig
from bridge.config.secrets import HIDDEN

ROOT = Path(__file__).parents[3]

LINKS = [
    "{host: h, transport: websocket, failover: ['h2:9001', '[::1]:80'], tls: {alpn: [http/1.1, x]}}",
    "{host: h}",
    "{host: '::1', version: 3.1.1, tls: , session: clean, client_id: me, in_flight: 1}",
    "{host: h, port: 1, tls: {ca_file: /ca, certificate_file: /c, key_file: /k, check_host_name: false}, user: u,"
    " password_file: /pw}",
    "{host: h, version: 3.1.1, bridge_bit: true}",
    "{host: h, user: u, password_variable: PW}",
    "{host: h, user: u}",
]
MAPPINGS = [
    "{from: {mqtt: a}, to: {queue: A}, payload: {keep: [$.device], transform: {v: '{$.temp}', n: null, l: [1, {x: yes}]}}}",
    "{from: {mqtt: a}, to: {queue: A}, attributes: {properties: {v: {value: '{$.temp}', type: double}, w: x}}}",
    "{from: {mqtt: 'a/{b}'}, to: {queue: 'A.{b}'}}",
    "{from: {mqtt: 'a/{b}'}, to: {queue: A, queue_manager: '{b}'}, allow: [QM2, 'client:*']}",
    "{from: {mqtt: a, link: l}, to: {queue: A, queue_manager: QM2}, enabled: no, guarantee: at-most-once}",
    "{from: {mqtt: a}, to: {queue: A, requests_queue: R}, attributes: {reply_to_queue: B}}",
    "{from: {queue: B, requests_queue: R}, to: {mqtt: '{responseTopic}', link: l}}",
    "{from: {topic: 'a/{b...}'}, to: {mqtt: '{b}', link: l}, guarantee: exactly-once}",
    "{from: {mqtt: a}, to: {topic: b}, filter: {qos: [0, 2], retained: no, min_size: 1, max_size: 1 KiB,"
    " properties: {x: 5, y: , z: [a, true]}, json: $.a > 1}}",
    "{from: {mqtt: a}, to: {queue: A}, filter: {qos: 1, retained: yes}, payload: {type: text, ccsid: 500},"
    " attributes: {persistence: {2: as-queue}, priority: 4, expiry: 5 min, rfh2: no,"
    " properties: {site: x}}, batch: {messages: 1}, backouts: 0}",
    "{from: {queue: A}, to: {mqtt: a}, payload: text, attributes: {qos: 1, retained: always}}",
    "{from: {queue: A}, to: {mqtt: a}, payload: {type: json, object: {value: '{text}', site: x}}}",
    "{from: {mqtt: a}, to: {queue: A}, payload: json, attributes: {expiry: as-published}}",
    "{from: {mqtt: a}, to: {queue: A}, payload: {copybook: c.cpy, ccsid: 37, encoding: s390, default: {a.b: 1, c: x},"
    " redefines: {d: e, f: {field: g, items: {1: h, 'Y': i}, other: f}}, round: down, truncate: yes, unknown: ignore}}",
    "{from: {queue: A}, to: {mqtt: a}, payload: {type: record, copybook: c.cpy, names: camel, numbers: string,"
    " record: R-1}}",
]
CHANNELS = [
    "{}",
    "{address: 10.0.0.1, authentication: [{method: password, file: f}]}",
    "{address: 10.0.0.1, authentication: [{method: password, file: f}], session_expiry: }",
    "{socket: /run/mqtt.sock, session_expiry: 1 h, publish_topics: [], websocket: {}, protocols: [MQTTV3]}",
    "{port: 8883, tls: {certificate_file: c, key_file: k, ca_file: ca, client_certificates: required}}",
]
PIPELINES = [
    "{from: {mq: {queue: Q}}, payload: {type: record, copybook: c.cpy, redefines: {a: {field: b}}}, select: S,"
    " to: {mq: {queue: R, record: {copybook: c.cpy, ccsid: 37, default: {a: 0.5}}}}}",
    "{from: {mq: {queue: Q}}, select: S, to: {mq: {queue: R, persistence: as-queue}}}",
    "{from: {mqtt: a/+}, select: S, to: {mqtt: 'b/{x}', archive: /out}, trigger: availableNow, enabled: no}",
    "{from: {mq: {topic: t}}, select: S, to: {mq: {}}, payload: text, trigger: 0, tables: {t: /t.csv},"
    " changes: {key: [a], of: [b, c]}, dead_letters: {queue: DEAD}, late: {archive: /late, window: 1 min}}",
]
SECTIONS = [
    *(f"links: {{l: {link}}}" for link in LINKS),
    *(f"links: {{l: {{host: h}}}}\nmappings: {{m: {mapping}}}" for mapping in MAPPINGS),
    *(f"channels: [{{name: A, {channel[1:]}]" for channel in CHANNELS),
    *(f"pipelines: {{p: {pipeline}}}" for pipeline in PIPELINES),
    "queue_manager: {data_directory: /d, scripts: [/a.mqsc], authorities: enforced,"
    " listener: {address: 10.0.0.1, allow_anonymous_remote: true}}",
    "queue_manager: {type: ibm, name: '*Q', ccdt_url: 'file:///c', token_file: /t, tls: {key_repository: /k, fips: yes}}",
    "queue_manager: {type: ibm, name: Q, channel: C, connections: ['a(1)', 'b(2)'], publishers: 1, asynchronous_puts: no,"
    " dead_letter_queue: D, client_identifiers: escaped, tls: {key_repository: /k, cipher_spec: ANY, peer_name: CN=Q}}",
    "queue_manager: {type: ibm, name: Q, channel: C, connections: 'mq1(1414)', user: u}",
    "queue_manager: {type: ibm, name: Q, mode: bindings}\ncontrol_socket: /c",
    "queue_manager: {type: ibm, name: Q, mode: bindings, standby_delay: 10 s, shard: {number: 1, of: 2}}",
    "queue_manager: {type: ibm, name: Q, mode: bindings, shard: {number: 1, of: 2, server_reference: 'mqtt-{shard}'}}",
    "limits: {waiting_total: 10%, retry_interval: 1 min, pending_bytes: 2 MiB}",
    "archive: {directory: /kept, payloads: false, retention_days: 30, roll: {time: 60}}",
    "channel_authentication: [{channel: '*', type: ADDRESSMAP, address: '10.*', mcauser: u}]",
    "log:\nadmin:\n",
]


def loaded(directory: Path, text: str) -> Configuration:
    file = directory / "bridge.yaml"
    file.write_text(text)
    return load(file)


@pytest.mark.parametrize("text", SECTIONS)
def test_it_is_equivalent_to_the_file(text: str, tmp_path: Path) -> None:
    configuration = loaded(tmp_path, text)
    assert loaded(tmp_path, "\n".join(described(configuration))) == configuration


@pytest.mark.parametrize(
    "file",
    sorted((ROOT / "mappings").glob("*.yaml")),
    ids=lambda file: file.stem,
)
def test_shipped_mappings_are_equivalent(file: Path, tmp_path: Path) -> None:
    configuration = load(file)
    assert loaded(tmp_path, "\n".join(described(configuration))) == configuration


def test_only_the_sections_of_the_file_are_described(tmp_path: Path) -> None:
    assert described(loaded(tmp_path, "")) == []
    lines = described(loaded(tmp_path, "archive: {directory: /a}\nlog: {format: json}\n"))
    assert [line for line in lines if not line.startswith(" ")] == ["archive:", "log:"]
    assert {"  directory: /a", "  payloads: true", "  level: info"} <= set(lines)


def test_defaults_are_included_and_missing_values_are_not() -> None:
    (channel,) = effective(default_configuration())["channels"]
    assert (channel["address"], channel["port"], channel["max_clients"]) == ("127.0.0.1", 1883, 10_000)
    assert not {"tls", "socket", "proxies"} & set(channel)
    assert "session_expiry: null" in effective_yaml(ChannelConfig(name="A", session_expiry=None))


def test_secrets_are_hidden() -> None:
    settings: dict[str, Any] = {"name": "QM1", "user": "u", "password_file": Path("/p")}
    configuration = Configuration(
        queue_manager=IbmQueueManagerConfig(**settings, ccdt_url="https://u:hunter2@mq/ccdt.json")
    )
    text = effective_yaml(configuration)
    assert "hunter2" not in text and "https://mq/ccdt.json" in text and "password_file: /p" in text


@pytest.mark.parametrize(
    ("key", "value", "plain"),
    [
        ("password", "x", HIDDEN), ("bindPassword", "x", HIDDEN), ("api_key", "x", HIDDEN), ("pwd", "x", HIDDEN),
        ("Authorization", "Bearer x", HIDDEN), ("fs.s3a.access.key", "x", HIDDEN), ("sasl.jaas.config", "x", HIDDEN),
        ("secret", "", ""), ("secrets", ["x"], HIDDEN), ("secret", 5, HIDDEN), ("token", True, True),
        ("headers", {"a": "b"}, {"a": HIDDEN}), ("nested", [{"token": "x", "y": "z"}], [{"token": HIDDEN, "y": "z"}]),
        ("password_file", "/etc/x", "/etc/x"), ("token_url", "https://u:p@h/t", "https://h/t"), ("name", "x", "x"),
        ("url", "ldap://u:p@host/x", "ldap://host/x"), ("url", "https://h/a@b?c=d", "https://h/a@b?c=d"),
        ("url", "https://u:p@mq:443/a@b/c.json", "https://mq:443/a@b/c.json"), ("url", "ftp://u:p@q@mq", "ftp://mq"),
        ("url", "file:///etc/c.json", "file:///etc/c.json"), ("url", "https://mq/c?token=x", f"https://mq/c?token={HIDDEN}"),
        ("url", "amqp://u:p,@a,amqp://v:q@b", "amqp://a,amqp://b"),
        ("url", "jdbc:x://h/db?user=u&password=p&sig=s", f"jdbc:x://h/db?user=u&password={HIDDEN}&sig={HIDDEN}"),
        ("options", "-Xmx1g -Dkey.password=p", f"-Xmx1g -Dkey.password={HIDDEN}"),
        ("module", 'required username="u" password="p q";', f'required username="u" password={HIDDEN};'),
    ],
)  # fmt: skip
def test_secrets_in_options_of_a_plugin_are_hidden(key: str, value: object, plain: object) -> None:
    plugin = PluginAuthenticationConfig(method="plugin", name="x", options={key: value})
    assert effective(plugin)["options"] == {key: plain}


def test_names_that_only_look_like_secrets_hide_nothing(tmp_path: Path) -> None:
    text = """
links: {token-service: {host: h, user: u, password_variable: PW}}
mappings:
  password-reset:
    from: {mqtt: 'tokens/{id}', link: token-service}
    to: {queue: TOKENS}
    attributes: {properties: {token: '{$.token}', secret: x}}
pipelines:
  secret:
    from: {mq: {queue: Q}}
    schema: {token: string}
    tables: {credentials: /t.csv}
    select: SELECT token FROM messages
    to: {format: jdbc, secrets: {password: /run/pw}}
channels: [{name: A, tls: {certificate_file: c, key_file: k, key_password_credential: key}}]
"""
    settings = effective(loaded(tmp_path, text))
    assert (settings["links"]["token-service"]["host"], settings["links"]["token-service"]["password_variable"]) == (
        "h",
        "PW",
    )
    mapping, pipeline = settings["mappings"]["password-reset"], settings["pipelines"]["secret"]
    assert mapping["attributes"]["properties"] == {"token": "{$.token}", "secret": HIDDEN}
    assert (pipeline["schema"], pipeline["tables"]) == ({"token": "string"}, {"credentials": "/t.csv"})
    assert pipeline["to"]["secrets"] == {"password": "/run/pw"}
    assert settings["channels"][0]["tls"]["key_password_credential"] == "key"


@pytest.mark.parametrize(
    "text",
    [
        "spark: {conf: {spark.x.password: hunter2}}",
        "spark: {conf: {spark.x.access.key: [hunter2]}}",
        "links: {l: {host: h, user: u, password: hunter2}}",
        "links: {l: {host: h, user: u, password_variable: 'hunter2 !'}}",
        "pipelines: {p: {from: {mq: {queue: Q}}, select: S, to: {format: jdbc, options: {password: hunter2}}}}",
        "queue_manager: {type: ibm, name: Q, ccdt_url: 'htps://u:hunter2@x'}",
        "traces: {endpoint: 'https://u:hunter2@x'}",
        "traces: {endpoint: 'htps://x?token=hunter2'}",
        "channels: [{name: A, authentication: [{method: ldap, url: 'ldap://h', bind_dn: x, bind_password: hunter2}]}]",
    ],
)
def test_mistakes_contain_no_secrets(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as raised:
        loaded(tmp_path, text)
    assert "hunter2" not in str(raised.value)
