"""Options by name: valid ones, and error messages for others."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from bridge.config.queue_manager import IbmQueueManagerConfig, ListenerConfig
from bridge.config.tls import ListenerTlsConfig
from bridge.mq.mqi import MQError
from bridge.spark.mq.queue_manager import QueueManagerOptions
from bridge.spark.mq.queue_reader import READ_OPTIONS, source_options_of
from bridge.spark.options import OptionError, Options
from bridge.spark.spool import MAX_MESSAGES
from tests.helpers.certificate_authority import Authority
from tests.helpers.served_queue_manager import ServedQueueManager

IBM = {"queueManager": "QM1", "channel": "C", "connections": "a(1414),b(1414)", "user": "u", "queue": "Q"}


def options(written: dict[str, str]) -> Options:
    return Options("mq", written, READ_OPTIONS)


def test_the_embedded_queue_manager() -> None:
    source_options = source_options_of(
        options({"dataDirectory": "/d", "QUEUE": "A, B", "max_messages_per_trigger": "5"})
    )
    assert source_options.queue_manager == QueueManagerOptions(data_directory="/d")
    assert (source_options.queues, source_options.stream.max_messages, source_options.stream.partitions) == (
        ("A", "B"),
        5,
        None,
    )
    over_tcp = source_options_of(options({"listener": "host(1414)", "queue": "A", "maxBytesPerTrigger": "2 MiB"}))
    assert over_tcp.queue_manager == QueueManagerOptions(listener=("host", 1414))
    assert (over_tcp.stream.max_messages, over_tcp.stream.max_bytes) == (MAX_MESSAGES, 2 * 1024**2)


@pytest.mark.parametrize(
    "written, size",
    [("10m", 10 * 1024**2), ("2K", 2048), ("1g", 1024**3), ("1t", 1024**4), ("10 MB", 10_000_000), ("1 MiB", 1024**2)],
)
def test_sizes_have_two_notations(written: str, size: int) -> None:
    """In the notation of Spark, or of the configuration file."""
    source_options = source_options_of(options({"dataDirectory": "/d", "queue": "Q", "maxBytesPerTrigger": written}))
    assert source_options.stream.max_bytes == size


def test_a_configuration_file(tmp_path: Path) -> None:
    file = tmp_path / "bridge.yaml"
    file.write_text("queue_manager: {name: MQB7, data_directory: d}", encoding="utf-8")
    queue_manager = source_options_of(options({"config": str(file), "queue": "Q"})).queue_manager
    assert queue_manager == QueueManagerOptions(name="MQB7", data_directory=str(tmp_path / "d"))


def test_ibm_mq_and_a_password_that_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "password"
    secret.write_text("s3cret", encoding="utf-8")
    monkeypatch.setenv("MQBRIDGE_PASSWORD", "s3cret")
    source_options = source_options_of(
        options({**IBM, "passwordFile": str(secret), "keyRepository": "k", "cipherSpec": "TLS"})
    )
    ibm = source_options.queue_manager.ibm
    assert isinstance(ibm, IbmQueueManagerConfig)
    assert (ibm.name, ibm.connections, ibm.password_file) == ("QM1", ["a(1414)", "b(1414)"], secret)
    assert ibm.tls is not None and ibm.tls.cipher_spec == "TLS"
    assert b"s3cret" not in pickle.dumps(source_options)


def test_a_listener_with_authentication(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("s3cret\n", encoding="utf-8")
    written = {"listener": "h(1414)", "user": "spark", "passwordFile": str(secret), "queue": "Q"}
    queue_manager = source_options_of(options(written)).queue_manager
    assert queue_manager == QueueManagerOptions(listener=("h", 1414), user="spark", password_file=str(secret))
    assert b"s3cret" not in pickle.dumps(queue_manager)
    file = tmp_path / "bridge.yaml"
    file.write_text("queue_manager: {name: MQB7, data_directory: d}", encoding="utf-8")
    beside = source_options_of(options({"config": str(file), **written})).queue_manager
    assert (beside.name, beside.listener, beside.user) == ("MQB7", ("h", 1414), "spark")


def test_the_password_of_a_listener_is_read_where_a_connection_is_established(tmp_path: Path) -> None:
    (known := tmp_path / "known").write_text("spark:s3cret\n", encoding="utf-8")
    (secret := tmp_path / "secret").write_text("s3cret\n", encoding="utf-8")
    directory = tmp_path / "queue-manager"
    directory.mkdir()
    with ServedQueueManager(directory, listener=ListenerConfig(password_file=known)) as served:
        where = {"listener": f"127.0.0.1({served.port})", "queue": "Q"}
        with pytest.raises(MQError, match="MQRC_NOT_AUTHORIZED"):
            source_options_of(options(where)).queue_manager.connect()
        written = where | {"user": "spark", "passwordFile": str(secret)}
        with source_options_of(options(written)).queue_manager.connected() as connection:
            assert connection.command("DISPLAY QMGR")[0].ok
        secret.unlink()
        with pytest.raises(OSError, match=r"no password for user spark: password_file .*: No such file"):
            source_options_of(options(written)).queue_manager.connect()


def test_a_listener_with_tls(tmp_path: Path) -> None:
    """Also with a relative path. Spark's plans contain paths, not the files."""
    authority = Authority(tmp_path)
    authority.issue("listener")
    directory = tmp_path / "queue-manager"
    directory.mkdir()
    tls = ListenerTlsConfig(certificate_file=tmp_path / "listener.pem", key_file=tmp_path / "listener.key")
    with ServedQueueManager(directory, listener=ListenerConfig(tls=tls)) as served:
        where = {"listener": f"localhost({served.port})", "queue": "Q"}
        with pytest.raises(MQError, match="MQRC_SSL_INITIALIZATION_ERROR"):
            source_options_of(options({**where, "tls": "true"})).queue_manager.connect()
        queue_manager = source_options_of(options({**where, "tlsCaFile": str(authority.file)})).queue_manager
        with pickle.loads(pickle.dumps(queue_manager)).connected() as connection:
            assert connection.command("DISPLAY QMGR")[0].ok


@pytest.mark.parametrize(
    "written, reason",
    [
        ({"queu": "Q"}, r"mq knows no option queu \(did you mean queue\?\)"),
        ({"password": "x"}, r"mq has no option password: options are visible in plans and logs: .* passwordFile"),
        ({"zzz": "x"}, r"knows no option zzz \(there are .*queue.*\)"),
        ({"queue": "Q"}, r"option config: expected a configuration file \(or dataDirectory .*\), found none"),
        ({"dataDirectory": "d"}, r"option queue: expected the name of a queue, .* found none"),
        ({"dataDirectory": "d", "queue": "A,A"}, r"option queue: expected each queue once, found 'A,A'"),
        ({"dataDirectory": "d", "queue": " "}, r"option queue: expected a value, found ' '"),
        ({"dataDirectory": "d", "topic": "a/b"}, r"option subscription: expected the name of a durable subscription"),
        (
            {"dataDirectory": "d", "topic": "a", "queue": "Q"},
            r"option topic: expected no value, because the option queue",
        ),
        ({"dataDirectory": "d", "queue": "Q", "partitions": "0"}, r"option partitions: expected an integer from 1"),
        ({"dataDirectory": "d", "queue": "Q", "maxBytesPerTrigger": "1 TB"}, r"option maxBytesPerTrigger: .*a size"),
        ({"dataDirectory": "d", "queue": "Q", "embed": "no"}, r"embed: expected true or false"),
        ({"listener": "h:1", "queue": "Q"}, r"option listener: expected host\(port\), found 'h:1'"),
        ({"listener": "h(0)", "queue": "Q"}, r"option listener: expected host\(port\), found 'h\(0\)'"),
        ({"listener": "h(65536)", "queue": "Q"}, r"option listener: expected host\(port\), found 'h\(65536\)'"),
        ({"config": "/nowhere.yaml", "queue": "Q"}, r"option config: /nowhere.yaml: expected a configuration file"),
        (
            {"config": "b.yaml", "dataDirectory": "d", "queue": "Q"},
            r"option dataDirectory: .* option config specifies it",
        ),
        ({"dataDirectory": "d", "queue": "Q", "user": "u"}, r"option user: expected no value with dataDirectory"),
        ({"listener": "h(1)", "queue": "Q", "passwordFile": "p"}, r"option passwordFile: .* without user"),
        ({"dataDirectory": "d", "queue": "Q", "tlsCaFile": "f"}, r"option tlsCaFile: .* add listener"),
        ({"listener": "h(1)", "queue": "Q", "tls": "false", "tlsCaFile": "f"}, r"option tlsCaFile: .* tls is false"),
        ({"listener": "h(1)", "queue": "Q", "tlsKeyFile": "f"}, r"option tlsKeyFile: expected no private key without"),
        ({"config": "b.yaml", "user": "u", "queue": "Q"}, r"option user: .* option config specifies it"),
        ({**IBM, "listener": "h(1)"}, r"option queueManager|channel: expected no value with listener"),
        ({"dataDirectory": "d", "channel": "C", "queue": "Q"}, r"option channel: expected no value with dataDirectory"),
        ({**IBM, "connections": "host"}, r"option connections: expected .*, found 'host'"),
        ({"channel": "C", "queue": "Q"}, r"option queueManager: expected .*, found none"),
    ],
)
def test_invalid_options_are_rejected(written: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        source_options_of(options(written))
