"""The search for secrets in the output of tested programs finds them everywhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers import known_secrets
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.known_secrets import KNOWN, assert_no_secret, register
from tests.helpers.raw_client import RawClient

CONFIG = """
audit_log: {{file: {0}/audit.jsonl}}
archive: {{directory: {0}/said-to-a-child}}
admin: {{port: 0}}
channels: [{{name: SAID.CHANNEL, port: 0}}]
"""
GIVEN, LEFT = "given-by-the-test", "left-in-the-environment"


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    directory = tmp_path_factory.mktemp("secrets")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LEFT", LEFT)
        process = BridgeProcess(directory / "data", config=CONFIG.format(directory), env={"GIVEN": GIVEN}).start()
    with RawClient(process.port, "said-to-the-log", user_name="mqm") as client:
        assert client.connect().return_code == 5
    yield process
    assert process.stop() == 0, process.log
    process.discard()


@pytest.fixture(autouse=True)
def met(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets that a test registers here apply to this test only."""
    monkeypatch.setattr(known_secrets, "_met", set(known_secrets._met))


def administered(bridge: BridgeProcess) -> None:
    Administrator(bridge).json("channel", "list")


SHOWN, SAID = BridgeProcess.assert_shows_no_secret, BridgeProcess.assert_says_no_secret


def test_a_known_secret(subtests: pytest.Subtests) -> None:
    for secret in KNOWN:
        with subtests.test(secret=secret), pytest.raises(AssertionError, match="is in a log"):
            assert_no_secret(f"user dev: {secret} 7", "a log")


@pytest.mark.parametrize(
    ("secret", "look", "where"),
    [
        ("said-to-the-log", SAID, "data.log"),
        ('"event":"refused"', SAID, "audit.jsonl"),
        ("SAID.CHANNEL", administered, "what mqbridge channel printed"),
        ("--data-dir", SHOWN, "the command line of process"),
        ("said-to-a-child", SHOWN, "the command line of process"),
        (LEFT, SHOWN, "the environment of process"),
    ],
)
def test_places_where_a_secret_is_found(
    bridge: BridgeProcess, secret: str, look: Callable[[BridgeProcess], None], where: str
) -> None:
    look(bridge)
    register(secret)
    with pytest.raises(AssertionError, match=f"{re.escape(secret)}.* is in .*{re.escape(where)}"):
        look(bridge)


def test_the_environment_set_by_a_test_may_contain_secrets(bridge: BridgeProcess) -> None:
    register(GIVEN)
    SHOWN(bridge)
    SAID(bridge)


def test_the_token_of_a_bridge(tmp_path: Path) -> None:
    """A bridge that logged the token of its admin port would fail its test."""
    bridge = BridgeProcess(tmp_path / "data", config="channels: [{port: 0}]\nadmin: {port: 0}\n").start()
    token = (tmp_path / "data" / "admin.tokens").read_text().splitlines()[-1].rpartition(":")[2]
    log = bridge.log_file.read_text()
    with bridge.log_file.open("a") as file:
        file.write(token)
    with pytest.raises(AssertionError, match=r"data\.log"):
        bridge.stop()
    bridge.log_file.write_text(log)
    bridge.discard()


@pytest.mark.parametrize("end", [BridgeProcess.stop, BridgeProcess.kill])
def test_a_bridge_that_shows_a_secret_is_stopped(tmp_path: Path, end: Callable[[BridgeProcess], object]) -> None:
    """The test fails, and the bridge does not stay behind."""
    bridge = BridgeProcess(
        tmp_path / "data", config="channels: [{port: 0}]\n", env={"GIVEN": GIVEN}
    ).start()  # not forked
    register("--data-dir")
    with pytest.raises(AssertionError, match="the command line of process"):
        end(bridge)
    assert not bridge.running
