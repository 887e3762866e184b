"""Connection parameters for IBM MQ, from the configuration. Passwords are never disclosed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.config.queue_manager import IbmQueueManagerConfig, NoPassword, TlsConfig
from bridge.mq.ibm.parameters import ConnectionParameters, LibraryMissing, Tls, load_library, parameters
from bridge.wire import cmqc

CLIENT: dict[str, Any] = {"name": "QM1", "channel": "C", "connections": ["a(1)", "b(2)"]}
TLS = TlsConfig(key_repository=Path("/key.kdb"), cipher_spec="ANY")
NAMED = TlsConfig(key_repository=Path("/key.kdb"), cipher_spec="ANY", certificate_label="me", peer_name="CN=QM1")


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        (CLIENT, {"channel": "C", "connections": "a(1),b(2)"}),
        ({"name": "QM1", "mode": "bindings"}, {}),
        ({"name": "QM1", "ccdt_url": "file:///c"}, {"ccdt_url": "file:///c"}),
        ({"name": "QM1", "mode": "bindings", "application_name": "ours"}, {"application_name": "ours"}),
        (
            CLIENT | {"tls": TLS},
            {"channel": "C", "connections": "a(1),b(2)", "tls": Tls(key_repository="/key.kdb", cipher_spec="ANY")},
        ),
        (
            CLIENT | {"tls": NAMED},
            {
                "channel": "C",
                "connections": "a(1),b(2)",
                "tls": Tls(key_repository="/key.kdb", cipher_spec="ANY", certificate_label="me", peer_name="CN=QM1"),
            },
        ),
    ],
)
def test_the_configuration_determines_the_parameters(options: dict[str, Any], fields: dict[str, Any]) -> None:
    assert parameters(IbmQueueManagerConfig(**options), {}) == ConnectionParameters(queue_manager="QM1", **fields)


@pytest.mark.parametrize(
    ("options", "file", "environment", "password"),
    [
        ({"user": "u"}, None, {"MQBRIDGE_PASSWORD": "hunter2"}, "hunter2"),
        ({"user": "u", "password_variable": "OTHER"}, None, {"MQBRIDGE_PASSWORD": "x", "OTHER": "hunter2"}, "hunter2"),
        ({"user": "u"}, b"hunter2\nmore", {"MQBRIDGE_PASSWORD": "x"}, "hunter2"),
        ({"user": "u"}, b" hunter 2 \r\n", {}, " hunter 2 "),
        ({"user": "u"}, "pässwörd".encode(), {}, "pässwörd"),
        ({}, b"hunter2", {"MQBRIDGE_PASSWORD": "x"}, ""),  # without a user, there is no password
    ],
)
def test_the_password_has_several_sources(
    options: dict[str, Any], file: bytes | None, environment: dict[str, str], password: str, tmp_path: Path
) -> None:
    if file is not None:
        (tmp_path / "secret").write_bytes(file)
        options = options | {"password_file": tmp_path / "secret"}
    of_connection = parameters(IbmQueueManagerConfig(**CLIENT, **options), environment)
    assert (of_connection.user, of_connection.password) == (options.get("user", ""), password)


@pytest.mark.parametrize(
    ("file", "environment", "message"),
    [
        (None, {}, "password_file is not set, and the environment variable MQBRIDGE_PASSWORD is not set"),
        (None, {"MQBRIDGE_PASSWORD": ""}, "password_file is not set, and the environment variable MQBRIDGE_PASSWORD"),
        (b"\nhunter2", {"MQBRIDGE_PASSWORD": "x"}, "the first line of password_file {file} is empty"),
        (b"hunter2\xff", {}, "password_file {file} is not UTF-8"),
    ],
)
def test_a_missing_password_is_reported(
    file: bytes | None, environment: dict[str, str], message: str, tmp_path: Path
) -> None:
    options = CLIENT | {"user": "ours"}
    if file is not None:
        (tmp_path / "secret").write_bytes(file)
        options["password_file"] = tmp_path / "secret"
    with pytest.raises(NoPassword) as raised:
        parameters(IbmQueueManagerConfig(**options), environment)
    assert str(raised.value).startswith("no password for user ours: ")
    assert message.format(file=tmp_path / "secret") in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_the_password_of_the_key_repository_comes_from_its_file_or_variable(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2\n")
    for options, environment in (
        ({"key_repository_password_file": tmp_path / "secret"}, {}),
        ({"key_repository_password_variable": "KEY"}, {"KEY": "hunter2"}),
    ):
        tls = TlsConfig(key_repository=Path("/key.p12"), cipher_spec="ANY", **options)
        of_connection = parameters(IbmQueueManagerConfig(**CLIENT, tls=tls), environment)
        assert of_connection.tls is not None and of_connection.tls.password == "hunter2"
        assert "hunter2" not in repr(of_connection.tls)


def test_the_error_names_an_unreadable_key_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key.kdb").touch()
    monkeypatch.setattr(os, "access", lambda *_: False)  # which tests that run as root would not see
    tls = TlsConfig(key_repository=tmp_path / "key", cipher_spec="ANY")
    of_connection = parameters(IbmQueueManagerConfig(**CLIENT, tls=tls), {})
    hint = of_connection.hint(cmqc.MQRC_KEY_REPOSITORY_ERROR)
    assert hint == f"{tmp_path / 'key.kdb'} cannot be read by the user that runs the bridge"


def test_text_is_utf_8_unless_the_environment_specifies_another_character_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ibmmq", object())
    monkeypatch.delenv("MQCCSID", raising=False)
    load_library("ibmmq")
    assert os.environ["MQCCSID"] == "1208"
    monkeypatch.setenv("MQCCSID", "819")
    load_library("ibmmq")
    assert os.environ["MQCCSID"] == "819"


def test_a_missing_password_file_is_reported(tmp_path: Path) -> None:
    config = IbmQueueManagerConfig(**CLIENT, user="u", password_file=tmp_path / "secret")
    with pytest.raises(NoPassword, match="secret: No such file"):
        parameters(config, {"MQBRIDGE_PASSWORD": "x"})


@pytest.mark.parametrize(
    ("options", "place"),
    [
        (CLIENT, "queue manager QM1 at a(1),b(2), channel C"),
        ({"name": "QM1", "mode": "bindings"}, "queue manager QM1"),
        ({"name": "QM1", "ccdt_url": "https://u:hunter2@mq/ccdt.json"}, "queue manager QM1 via https://mq/ccdt.json"),
    ],
)
def test_the_description_of_the_address_has_no_secret(options: dict[str, Any], place: str) -> None:
    of_connection = parameters(IbmQueueManagerConfig(**options, user="ours"), {"MQBRIDGE_PASSWORD": "hunter2"})
    assert of_connection.password == "hunter2"
    assert of_connection.place == place
    for text in (repr(of_connection), str(of_connection), f"{of_connection}"):
        assert "hunter2" not in text and "ours" not in text


@pytest.mark.parametrize(
    ("choice", "tried"), [("auto", ["ibmmq", "pymqi"]), ("ibmmq", ["ibmmq"]), ("pymqi", ["pymqi"])]
)
def test_a_missing_package_is_reported(choice: Any, tried: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ibmmq", "pymqi"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(LibraryMissing) as raised:
        load_library(choice)
    assert [name for name in ("ibmmq", "pymqi") if f"{name}: import of {name}" in str(raised.value)] == tried
    assert f"-m pip install '{tried[0]}" in str(raised.value)


def test_a_package_without_the_library_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "ibmmq"
    package.mkdir()
    (package / "__init__.py").write_text("import ibmmqc_of_no_library")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "ibmmq", raising=False)
    monkeypatch.setitem(sys.modules, "pymqi", None)
    with pytest.raises(LibraryMissing, match="ibmmq is installed, and does not find the library") as raised:
        load_library("auto")
    assert "LD_LIBRARY_PATH" in str(raised.value) and "pip install" not in str(raised.value)


@pytest.mark.parametrize(
    ("choice", "there", "package"),
    [("auto", ["ibmmq", "pymqi"], "ibmmq"), ("auto", ["pymqi"], "pymqi"), ("pymqi", ["ibmmq", "pymqi"], "pymqi")],
)
def test_an_installed_package_is_chosen(
    choice: Any, there: list[str], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = {name: object() if name in there else None for name in ("ibmmq", "pymqi")}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    assert load_library(choice) is modules[package]
