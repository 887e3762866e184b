"""`mqbridge link`: connections to brokers, and a step-by-step test of a connection."""

from __future__ import annotations

import re
import socket
import subprocess
import threading
from collections.abc import Iterator

import pytest

from bridge.config.link import LinkConfig
from bridge.link import trial
from bridge.link.trial import TrialFailed, try_link
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.certificate_authority import Authority
from tests.helpers.forked_process import MQBRIDGE
from tests.helpers.patience import until

#: The broker of the links is another bridge.
BROKER = """
channels:
  - {{name: PLAIN, port: 0}}
  - {{name: TLS, port: 0, tls: {{certificate_file: {0}/server.pem, key_file: {0}/server.key}}}}
  - {{name: PASSWORD, port: 0, authentication: [{{method: password, file: {0}/clients}}]}}
"""
LINKS = """
links:
  plain: {{host: 127.0.0.1, port: {PLAIN}, version: "3.1.1"}}
  secured: {{host: localhost, port: {TLS}, tls: {{ca_file: {0}/ca.pem}}}}
  untrusted: {{host: localhost, port: {TLS}, tls: {{}}}}
  known: {{host: 127.0.0.1, port: {PASSWORD}, user: me, password_file: {0}/right}}
  unknown: {{host: 127.0.0.1, port: {PASSWORD}, user: me, password_file: {0}/wrong}}
  nowhere: {{host: 127.0.0.1, port: 1}}
mappings:
  near: {{from: {{mqtt: "near/#", link: plain}}, to: {{topic: "x/near"}}}}
  far: {{from: {{mqtt: "far/#", link: nowhere}}, to: {{topic: "x/far"}}}}
"""
#: link -> the beginnings of the steps of its test, without prefixes, and whether it succeeds
TRIALS = {
    "plain": (["resolved: 127.0.0.1", "TCP: connected", "CONNACK: accepted as mqbridge-test-", "QoS 2"], True),
    "secured": (["resolved: localhost is", "TCP: connected", "TLS: TLSv1.3", "CONNACK: accepted", "QoS 2"], True),
    "untrusted": (["resolved: localhost is", "TCP: connected", "FAILED: the certificate of localhost:"], False),
    "known": (["resolved", "TCP: connected", "CONNACK: accepted as", "QoS 2"], True),
    "unknown": (
        ["resolved", "TCP: connected", "FAILED: the broker rejected CONNECT: Bad user name or password"],
        False,
    ),
    "nowhere": (["resolved", "FAILED: no connection to the broker at 127.0.0.1:1: "], False),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    directory = tmp_path_factory.mktemp("broker")
    Authority(directory).issue("server")
    (directory / "right").write_text("correct horse\n")
    (directory / "wrong").write_text("wrong horse\n")
    subprocess.run(
        [MQBRIDGE, "passwd", directory / "clients", "me", "--stdin", "--scram-iterations", "4096"],
        input=b"correct horse\n",
        check=True,
    )
    process = BridgeProcess(directory / "data", config=BROKER.format(directory))
    yield process.start()
    process.discard()


@pytest.fixture(scope="module")
def bridge(broker: BridgeProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    directory = broker.data_directory.parent
    process = BridgeProcess(tmp_path_factory.mktemp("bridge") / "data", config=LINKS.format(directory, **broker.ports))
    yield process.start()
    process.discard()


@pytest.mark.parametrize("link", TRIALS)
def test_a_link_test_reports_each_step_and_cleans_up(bridge: BridgeProcess, broker: BridgeProcess, link: str) -> None:
    """Address, TCP, TLS with the data of the certificate, CONNACK: up to the failing step. No session is left."""
    steps, succeeds = TRIALS[link]
    result = Administrator(bridge).run("link", "test", link)
    lines = result.stdout.splitlines()
    assert len(lines) == len(steps), result.stdout
    for line, step in zip(lines, steps, strict=True):
        assert line.startswith(f"link {link}: {step}"), result.stdout
    error = "" if succeeds else f"mqbridge: error: the test of link {link} failed\n"
    assert (result.exit_code, result.stderr) == (0 if succeeds else 1, error)
    if link == "secured":
        assert "issued by commonName=" in lines[2] and "; until " in lines[2]
    until(lambda: not Administrator(broker).clients("mqbridge-test-*"))


def test_links_are_shown_with_the_connections_of_mappings(bridge: BridgeProcess) -> None:
    """Each mapping of a link is listed with client identifier, time of connection and last error."""
    administrator = Administrator(bridge)

    def links() -> dict[str, list[dict[str, object]]]:
        return {link["name"]: link["connections"] for link in administrator.json("link", "list")}

    until(lambda: links()["plain"][0]["connected"] and links()["nowhere"][0]["last_error"])
    (near,), (far,) = links()["plain"], links()["nowhere"]
    assert (near["mapping"], near["last_error"]) == ("near", "")
    assert re.fullmatch("mqbridge-[0-9a-f]{8}-near", str(near["client_id"]))
    assert near["since"] > 1e9  # type: ignore[operator]
    assert (far["connected"], far["since"]) == (False, 0.0)
    assert "cannot connect" in str(far["last_error"])
    assert links()["secured"] == []
    assert "127.0.0.1:1 " in administrator.does("link", "list")
    table = administrator.does("link", "show", "nowhere")
    assert re.search("far +NOT CONNECTED +mqbridge-[0-9a-f]{8}-far", table)
    assert "far: last error at" in table
    assert administrator.refused("link", "show", "none", status=3) == "no link none\n"
    assert administrator.refused("link", "test", "none", status=3) == "no link none\n"


def test_a_link_without_a_connection_connects_now(bridge: BridgeProcess) -> None:
    administrator = Administrator(bridge)
    until(lambda: administrator.json("link", "show", "plain")[0]["connections"][0]["connected"])
    for link, answer in (("plain", "0 of 1 mapping"), ("nowhere", "1 of 1 mapping"), ("secured", "0 of 0 mappings")):
        assert administrator.does("link", "connect", link) == f"link {link}: {answer} connect now\n"
    assert administrator.refused("link", "connect", "none", status=3) == "no link none\n"


def test_a_silent_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """If TCP connects but no CONNACK arrives, the test ends in time with an error, and its thread ends."""
    monkeypatch.setattr(trial, "TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = LinkConfig(host="127.0.0.1", port=silent.getsockname()[1])
        before = threading.active_count()
        steps = try_link("silent", config, lambda: None)
        assert [next(steps).split(":")[0], next(steps).split(":")[0]] == ["resolved", "TCP"]
        with pytest.raises(TrialFailed, match=r"no CONNACK within 0\.2 s"):
            next(steps)
        assert threading.active_count() == before


def test_an_unknown_host() -> None:
    """A name that does not resolve is the first step that can fail."""
    steps = try_link("lost", LinkConfig(host="broker.invalid"), lambda: None)
    with pytest.raises(TrialFailed, match=r"broker\.invalid is not an address or a known host name"):
        next(steps)
