"""Loading a file that is right, files that cannot be read, and the configuration in plain words."""

import os
from pathlib import Path
from typing import Any

import pytest

from bridge.config.channel import ChannelConfig
from bridge.config.description import describe
from bridge.config.document import load
from bridge.config.models import Configuration, default_configuration
from bridge.config.problems import ConfigurationError
from bridge.config.queue_manager import (
    BatchConfig,
    EmbeddedQueueManagerConfig,
    IbmQueueManagerConfig,
    ListenerConfig,
    TlsConfig,
)


def load_text(directory: Path, text: str) -> Configuration:
    file = directory / "bridge.yaml"
    file.write_text(text, encoding="utf-8")
    return load(file)


@pytest.mark.parametrize(
    "text",
    [
        "channel: C, connections: 'a(1),b(2)', batch: , ccdt_url: ~, tls: ~, user: ~",
        "channel: C, connections: ['a(1)', 'b(2)'], mode: client",
        "ccdt_url: 'file:///c'",
        "mode: bindings, channel: ~, connections: ~",
    ],
)
def test_ibm_mq_needs_no_more(text: str, tmp_path: Path) -> None:
    loaded = load_text(tmp_path, f"queue_manager: {{type: ibm, name: A, {text}}}").queue_manager
    assert isinstance(loaded, IbmQueueManagerConfig)
    assert loaded.batch == BatchConfig()
    assert loaded.connection_list == ("a(1),b(2)" if "channel: C" in text else "")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n# nothing but a comment\n",
        "---\n",
        "~",
        "{}",
        "\ufeff",
        "queue_manager:\nchannels:\nlimits:\nlog:\n",
        "queue_manager: {listener: null, scripts: }",
        "channels: [{mcauser: ~, protocols: }]",
    ],
)
def test_what_is_left_out_has_its_default(text: str, tmp_path: Path) -> None:
    assert load_text(tmp_path, text) == default_configuration()


def test_no_channels_at_all(tmp_path: Path) -> None:
    assert load_text(tmp_path, "channels: []").channels == []


def test_relative_paths_count_from_the_directory_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "etc").mkdir()
    monkeypatch.chdir(tmp_path)
    file = Path("etc/bridge.yaml")
    file.write_text("queue_manager: {data_directory: data, scripts: [../a.mqsc]}")
    queue_manager = load(file).queue_manager
    assert queue_manager.data_directory == tmp_path / "etc" / "data"
    assert queue_manager.scripts == [tmp_path / "etc" / ".." / "a.mqsc"]


def test_whether_the_data_directory_was_written_can_be_told(tmp_path: Path) -> None:
    assert (
        "data_directory" in load_text(tmp_path, "queue_manager: {data_directory: data}").queue_manager.model_fields_set
    )
    unwritten = load_text(tmp_path, "queue_manager: {name: A}").queue_manager
    assert "data_directory" not in unwritten.model_fields_set
    assert unwritten.data_directory == Path("data")


def test_what_an_alias_stands_for_is_merged(tmp_path: Path) -> None:
    text = """\
channels:
  - &first {name: A, port: 1, backlog: 7}
  - &second {<<: *first, name: B, port: 2, max_clients: 8}
  - {name: C, port: 3, <<: [*second, *first]}
"""
    channels = load_text(tmp_path, text).channels
    assert [(c.name, c.port, c.backlog, c.max_clients) for c in channels] == [
        ("A", 1, 7, 10_000),
        ("B", 2, 7, 8),
        ("C", 3, 7, 8),
    ]


def test_of_several_merged_mappings_the_first_wins(tmp_path: Path) -> None:
    text = "channels: [&a {name: A, backlog: 1}, &b {name: B, port: 2, backlog: 2}, {<<: [*a, *b], name: C, port: 3}]"
    assert load_text(tmp_path, text).channels[2].backlog == 1


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("absent.yaml", "absent.yaml: expected a configuration file, found no file of this name"),
        (".", ".: expected a configuration file, found a directory"),
        (
            "secret.yaml",
            "secret.yaml: expected a configuration file that this user may read, found that permission is denied",
        ),
        ("loop.yaml", "loop.yaml: expected a configuration file that can be read, found the error '"),
        ("escape.yaml", "escape.yaml: expected YAML, found an escape or a number in it that stands for nothing"),
    ],
)
def test_a_file_that_cannot_be_read(name: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop.yaml").symlink_to("loop.yaml")
    Path("escape.yaml").write_text(r'log: "\U00110000"')
    if name == "secret.yaml":
        Path(name).touch(mode=0)
        if os.access(name, os.R_OK):  # root may read everything, so for root the refusal is made up

            def denied(*args: object, **options: object) -> None:
                raise PermissionError(13, "Permission denied")

            monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(ConfigurationError) as raised:
        load(Path(name))
    [problem] = raised.value.problems
    assert str(problem).startswith(told)
    assert (problem.line, problem.column, problem.key) == (None, None, "")


def test_the_default_in_words() -> None:
    assert describe(default_configuration()) == [
        "queue manager MQB1 (embedded), data in data of the working directory, messages of at most 4 MiB",
        "MQ applications in other processes connect through the Unix socket only",
        "channel PLAIN.MQTT: MQTTV5, MQTTV311 and MQTTV3 at 127.0.0.1:1883, at most 10000 clients,"
        " acting as their user name, or as nobody if they have none",
        "messages for MQTT clients wait on SYSTEM.MQTT.TRANSMIT.QUEUE",
        "each client: at most 20 messages in flight, 1 MiB unread, 1 MiB uncommitted; resend to MQTT 3.1 clients after 20 s",
        "stopping takes at most 10 s",
        "log: info and above, as text",
    ]


def test_another_configuration_in_words() -> None:
    remote = ChannelConfig(
        name="A", address="::", allow_anonymous_remote=True, protocols=["MQTTV3"], byte_order="little"
    )
    configuration = Configuration(
        queue_manager=EmbeddedQueueManagerConfig(
            data_directory=Path("/var/mq"),
            scripts=[Path("/a.mqsc")],
            listener=ListenerConfig(address="10.0.0.1", allow_anonymous_remote=True),
            authorities="enforced",
        ),
        channels=[
            remote,
            ChannelConfig(name="B", port=0, mcauser="mqttuser"),
            ChannelConfig(name="C", mcauser="mqttuser", use_client_id=True),
        ],
    )
    assert describe(configuration)[:7] == [
        "queue manager MQB1 (embedded), data in /var/mq, messages of at most 4 MiB",
        "applications and MQTT clients need the authorities that SET AUTHREC gives",
        "MQSC scripts run at start: /a.mqsc",
        "MQ applications connect to 10.0.0.1:1414; OTHER MACHINES CAN CONNECT WITHOUT A PASSWORD",
        "channel A: MQTTV3, little-endian at [::]:1883, at most 10000 clients, acting as their user name, or as nobody if"
        " they have none, sessions expire after 720 h; OTHER MACHINES CAN CONNECT WITHOUT A PASSWORD",
        "channel B: MQTTV5, MQTTV311 and MQTTV3 at any free port of 127.0.0.1, at most 10000 clients, acting as mqttuser",
        "channel C: MQTTV5, MQTTV311 and MQTTV3 at 127.0.0.1:1883, at most 10000 clients, acting as their client identifier",
    ]
    assert "no channel: no MQTT client can connect" in describe(Configuration(channels=[]))


CLIENT: dict[str, Any] = {"name": "QM1", "channel": "MQTT.BRIDGE", "connections": ["mq1(1414)"]}
TLS = {"key_repository": Path("/key.kdb"), "cipher_spec": "ANY"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            CLIENT,
            [
                "queue manager QM1 (IBM MQ) at mq1(1414), channel MQTT.BRIDGE, through ibmmq or pymqi",
                "no TLS: others can read the data on the network",
                "connects as the user that the bridge runs as, without a password, application name 'mqbridge'",
                "4 publishers with units of work of at most 500 publications, 1 MiB, 50 ms; asynchronous puts",
                "undeliverable messages go to SYSTEM.DEAD.LETTER.QUEUE",
            ],
        ),
        (
            CLIENT
            | {"connections": ["a(1)", "b(2)"], "library": "pymqi", "tls": TlsConfig(**TLS), "user": "u"}
            | {"application_name": "our bridge", "publishers": 1, "asynchronous_puts": False, "dead_letter_queue": "D"},
            [
                "queue manager QM1 (IBM MQ) at a(1) or b(2), channel MQTT.BRIDGE, through pymqi",
                "TLS with ANY, key repository /key.kdb",
                "connects as user u, password in the environment variable MQBRIDGE_PASSWORD, application name 'our bridge'",
                "1 publisher with units of work of at most 500 publications, 1 MiB, 50 ms; synchronous puts",
                "undeliverable messages go to D",
            ],
        ),
        (
            CLIENT | {"tls": TlsConfig(**TLS, certificate_label="me", peer_name="CN=QM1"), "password_file": Path("/p")},
            ["", "TLS with ANY, key repository /key.kdb, certificate me, only to CN=QM1", "connects as the user that"],
        ),
        (
            {"name": "QM1", "ccdt_url": "https://u:hunter2@mq/ccdt.json", "user": "u", "password_file": Path("/p")},
            [
                "queue manager QM1 (IBM MQ) as the CCDT https://mq/ccdt.json says, through ibmmq or pymqi",
                "connects as user u, password in /p, application name 'mqbridge'",
            ],
        ),
        (
            {"name": "*QMS", "ccdt_url": "file:///c", "tls": TlsConfig(key_repository=Path("/k.p12"), fips=True)}
            | {"token_file": Path("/t")},
            [
                "queue manager *QMS (IBM MQ) as the CCDT file:///c says",
                "TLS with the CipherSpec of the CCDT, key repository /k.p12, FIPS-certified cryptography only",
                "connects as the user of the token in /t, application name 'mqbridge'",
            ],
        ),
        (
            {"name": "QM1", "mode": "bindings"},
            [
                "queue manager QM1 (IBM MQ) on this machine, in bindings mode, through ibmmq or pymqi",
                "connects as the user that the bridge runs as",
            ],
        ),
    ],
)
def test_ibm_mq_in_words(given: dict[str, Any], said: list[str]) -> None:
    lines = describe(Configuration(queue_manager=IbmQueueManagerConfig(**given)))
    assert [line[: len(want)] for line, want in zip(lines, said, strict=False)] == said
    assert "hunter2" not in str(lines)
    assert lines[-4].startswith("messages for MQTT clients wait on ")
