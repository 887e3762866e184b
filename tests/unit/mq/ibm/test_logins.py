"""Failed logins: the number of attempts, and their credentials."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.mq.ibm.logins import QueueManagerLogins
from bridge.mq.ibm.parameters import ConnectionParameters
from bridge.mq.mqi import Connection, MQError
from bridge.wire import cmqc

CONNECTIONS = 41


class Scene:
    """A queue manager with a password, a password file, and the time."""

    def __init__(self, *, token_file: str = "") -> None:
        self.expected = self.written = "old"
        self.token_file = token_file
        self.reason = cmqc.MQRC_NOT_AUTHORIZED
        self.now = 0.0
        self.attempts: list[str] = []
        self.when_rejected: Callable[[], object] = lambda: None
        self.logins = QueueManagerLogins(self.read, self.connect, clock=lambda: self.now)

    def read(self) -> ConnectionParameters:
        return ConnectionParameters(queue_manager="QM1", user="u", password=self.written, token_file=self.token_file)

    def connect(self, parameters: ConnectionParameters) -> Connection:
        secret = parameters.token() if parameters.token_file else parameters.password
        self.attempts.append(secret)
        if secret != self.expected:
            self.when_rejected()
            raise MQError(self.reason, "connect")
        return object()  # type: ignore[return-value]

    def all_reconnect(self, rounds: int = 1, interval: float = 1.0) -> int:
        """All threads of the bridge try to connect. Return the number of connections."""
        count = 0
        for _ in range(rounds):
            for _ in range(CONNECTIONS):
                try:
                    self.logins.connect()
                    count += 1
                except MQError:
                    pass
            self.now += interval
        return count


def test_a_changed_password_causes_few_failed_logins() -> None:
    scene = Scene()
    assert scene.all_reconnect() == CONNECTIONS
    scene.expected = "new"
    scene.logins.lost()
    scene.attempts.clear()
    assert scene.all_reconnect(rounds=600) == 0
    assert scene.attempts == ["old"] * 2, "the second after a minute, the next after ten more"
    scene.written = "new"
    assert scene.all_reconnect() == CONNECTIONS
    assert set(scene.attempts[2:]) == {"new"}


def test_a_file_that_is_written_after_the_first_failure_is_read(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a.b.c")
    scene = Scene(token_file=str(token))
    scene.expected = "d.e.f"
    assert scene.all_reconnect() == 0
    token.write_text("d.e.f")
    scene.now += 1
    assert scene.all_reconnect() == CONNECTIONS
    assert scene.attempts[:2] == ["a.b.c", "d.e.f"]


def test_a_token_that_replaces_another_during_its_attempt_is_tried(tmp_path: Path) -> None:
    """It must not count as the rejected one, for which the bridge would wait for a minute."""
    token = tmp_path / "token"
    token.write_text("a.b.c")
    scene = Scene(token_file=str(token))
    scene.expected = "d.e.f"
    scene.when_rejected = lambda: token.write_text("d.e.f")
    assert scene.all_reconnect() == 0
    assert scene.all_reconnect() == CONNECTIONS


def test_an_unreadable_token_is_a_problem_and_not_a_rejected_login(tmp_path: Path) -> None:
    scene = Scene(token_file=str(tmp_path / "token"))
    assert scene.all_reconnect(rounds=3) == 0
    assert scene.logins.problem.startswith(f"gets no token from the bridge: token_file {tmp_path}/token cannot be read")
    assert scene.logins.rejections == 0
    (tmp_path / "token").write_text("old")
    assert scene.all_reconnect() == CONNECTIONS
    assert not scene.logins.problem


def test_a_queue_manager_that_is_lost_after_a_rejection_is_not_reported_as_a_rejection() -> None:
    scene = Scene()
    scene.expected = "new"
    scene.all_reconnect()
    assert scene.logins.problem == "rejected the login of user u: MQRC_NOT_AUTHORIZED (2035)"
    scene.reason = cmqc.MQRC_HOST_NOT_AVAILABLE
    scene.now += 3600
    scene.all_reconnect()
    assert not scene.logins.problem
    assert scene.logins.rejections == 1


def test_a_password_changed_before_a_loss_causes_no_failed_login() -> None:
    scene = Scene()
    scene.all_reconnect()
    scene.expected = scene.written = "new"
    scene.logins.lost()
    scene.attempts.clear()
    assert scene.all_reconnect() == CONNECTIONS
    assert set(scene.attempts) == {"new"}


def test_a_reload_tries_rejected_credentials_immediately() -> None:
    """The account was unlocked, or the user has the authority to connect now."""
    scene = Scene()
    scene.expected = "other"
    assert scene.all_reconnect(rounds=10) == 0
    scene.expected = "old"
    assert scene.all_reconnect() == 0
    scene.logins.read_again()
    assert scene.all_reconnect() == CONNECTIONS


@pytest.mark.parametrize("reason", [cmqc.MQRC_Q_MGR_NOT_AVAILABLE, cmqc.MQRC_HOST_NOT_AVAILABLE])
def test_one_thread_tries_while_the_queue_manager_is_unreachable(reason: int) -> None:
    scene = Scene()
    scene.all_reconnect()
    scene.reason, scene.expected = reason, "nothing"
    scene.logins.lost()
    scene.attempts.clear()
    scene.all_reconnect(rounds=5)
    assert len(scene.attempts) == 5
    scene.expected = "old"
    assert scene.all_reconnect() == CONNECTIONS, "the others follow at once"
