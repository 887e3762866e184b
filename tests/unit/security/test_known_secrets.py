"""What looks for secrets in all that programs of the tests say finds them, wherever they are said."""

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
    """What a test registers here is a secret of that test alone."""
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
def test_where_it_is_found(
    bridge: BridgeProcess, secret: str, look: Callable[[BridgeProcess], None], where: str
) -> None:
    look(bridge)
    register(secret)
    with pytest.raises(AssertionError, match=f"{re.escape(secret)}.* is in .*{re.escape(where)}"):
        look(bridge)


def test_what_a_test_has_put_into_the_environment_may_be_there(bridge: BridgeProcess) -> None:
    register(GIVEN)
    SHOWN(bridge)
    SAID(bridge)


def test_the_token_of_a_bridge(tmp_path: Path) -> None:
    """A bridge whose log had the token of its admin port would fail the test that it belongs to."""
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
def test_no_bridge_stays_behind(tmp_path: Path, end: Callable[[BridgeProcess], object]) -> None:
    """One that is found to show a secret ends all the same."""
    bridge = BridgeProcess(
        tmp_path / "data", config="channels: [{port: 0}]\n", env={"GIVEN": GIVEN}
    ).start()  # not forked
    register("--data-dir")
    with pytest.raises(AssertionError, match="the command line of process"):
        end(bridge)
    assert not bridge.running
