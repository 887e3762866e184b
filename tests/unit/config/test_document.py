"""Loading of valid files, unreadable files, and the configuration in plain words."""

import os
from pathlib import Path
from typing import Any

import pytest

from bridge.config.advice import advice
from bridge.config.channel import ChannelConfig
from bridge.config.document import load
from bridge.config.link import LinkConfig, LinkTlsConfig
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
def test_ibm_mq_needs_only_a_few_options(text: str, tmp_path: Path) -> None:
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
def test_missing_keys_have_their_defaults(text: str, tmp_path: Path) -> None:
    assert load_text(tmp_path, text) == default_configuration()


def test_a_configuration_needs_no_channels(tmp_path: Path) -> None:
    assert load_text(tmp_path, "channels: []").channels == []


def test_paths_are_relative_to_the_directory_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "etc").mkdir()
    monkeypatch.chdir(tmp_path)
    file = Path("etc/bridge.yaml")
    file.write_text("queue_manager: {data_directory: data, scripts: [../a.mqsc]}")
    queue_manager = load(file).queue_manager
    assert queue_manager.data_directory == tmp_path / "etc" / "data"
    assert queue_manager.scripts == [tmp_path / "etc" / ".." / "a.mqsc"]


def test_a_specified_data_directory_differs_from_the_default(tmp_path: Path) -> None:
    assert (
        "data_directory" in load_text(tmp_path, "queue_manager: {data_directory: data}").queue_manager.model_fields_set
    )
    unwritten = load_text(tmp_path, "queue_manager: {name: A}").queue_manager
    assert "data_directory" not in unwritten.model_fields_set
    assert unwritten.data_directory == Path("data")


def test_aliases_are_merged(tmp_path: Path) -> None:
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


def test_the_first_of_several_merged_mappings_takes_precedence(tmp_path: Path) -> None:
    text = "channels: [&a {name: A, backlog: 1}, &b {name: B, port: 2, backlog: 2}, {<<: [*a, *b], name: C, port: 3}]"
    assert load_text(tmp_path, text).channels[2].backlog == 1


@pytest.mark.parametrize(
    ("name", "message"),
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
def test_an_unreadable_file_is_reported(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop.yaml").symlink_to("loop.yaml")
    Path("escape.yaml").write_text(r'log: "\U00110000"')
    if name == "secret.yaml":
        Path(name).touch(mode=0)
        if os.access(name, os.R_OK):  # root can read everything, so the error is simulated for root

            def denied(*args: object, **options: object) -> None:
                raise PermissionError(13, "Permission denied")

            monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(ConfigurationError) as raised:
        load(Path(name))
    [problem] = raised.value.problems
    assert str(problem).startswith(message)
    assert (problem.line, problem.column, problem.key) == (None, None, "")


TLS_LISTENER = {"certificate_file": "c", "key_file": "k", "ca_file": "ca", "client_certificates": "required"}


def test_insecure_connections_are_noted() -> None:
    remote = ChannelConfig(name="A", address="::", allow_anonymous_remote=True, mcauser="u")
    configuration = Configuration(
        queue_manager=EmbeddedQueueManagerConfig(
            listener=ListenerConfig(address="10.0.0.1", allow_anonymous_remote=True)
        ),
        channels=[remote, ChannelConfig(name="B", mcauser="u")],
        links={
            "l": LinkConfig(host="h", tls=LinkTlsConfig(check_host_name=False)),
            "m": LinkConfig(host="h", tls=LinkTlsConfig()),
        },
    )
    assert list(advice(configuration)) == [
        "channel A: other machines can connect without a password",
        "queue_manager.listener: other machines can connect without a password",
        "link l: the host name of the broker is not checked (tls.check_host_name)",
    ]
    settings = {"address": "10.0.0.1", "authentication": [{"method": "certificate"}], "tls": TLS_LISTENER}
    listener = ListenerConfig.model_validate(settings)
    configuration = Configuration(queue_manager=EmbeddedQueueManagerConfig(listener=listener), channels=[])
    assert list(advice(configuration)) == ["no channel: no MQTT client can connect"]
    assert list(advice(default_configuration())) == []
    assert list(advice(Configuration(channels=[]))) == ["no channel: no MQTT client can connect"]


CLIENT: dict[str, Any] = {"name": "QM1", "channel": "MQTT.BRIDGE", "connections": ["mq1(1414)"]}
TLS = {"key_repository": Path("/key.kdb"), "cipher_spec": "ANY"}


NO_TLS = ["queue_manager: no TLS: others can read the data on the network"]


@pytest.mark.parametrize(
    ("settings", "notes"),
    [
        (CLIENT, NO_TLS),
        (CLIENT | {"tls": TlsConfig(**TLS)}, []),
        ({"name": "QM1", "ccdt_url": "file:///c"}, []),  # the CCDT specifies the CipherSpec
        ({"name": "QM1", "mode": "bindings"}, []),
    ],
)
def test_ibm_mq_without_tls_is_noted(settings: dict[str, Any], notes: list[str]) -> None:
    channel = ChannelConfig(name="A", mcauser="u")
    configuration = Configuration(queue_manager=IbmQueueManagerConfig(**settings), channels=[channel])
    assert list(advice(configuration)) == notes


def test_mappings_without_a_control_socket_are_noted(tmp_path: Path) -> None:
    text = "queue_manager: {type: ibm, name: Q, mode: bindings}\nmappings: {m: {from: {mqtt: a}, to: {queue: A}}}\n"
    text += "channels: [{name: A, mcauser: u}]\n"
    file = tmp_path / "bridge.yaml"
    file.write_text(text)
    assert load(file).control_socket_path is None
    (note,) = advice(load(file))
    assert note.startswith("no control_socket: ")
    file.write_text(text + "control_socket: /c\n")
    assert load(file).control_socket_path == Path("/c")
    assert list(advice(load(file))) == []


def test_the_control_socket_is_in_the_data_directory(tmp_path: Path) -> None:
    embedded = "queue_manager: {data_directory: /d}\n"
    assert load_text(tmp_path, embedded).control_socket_path == Path("/d/control.sock")
    assert load_text(tmp_path, embedded + "control_socket: /run/c\n").control_socket_path == Path("/run/c")
