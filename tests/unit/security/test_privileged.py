"""Privileged users of MQ, and lookups in the operating system that do not block."""

from __future__ import annotations

import threading

import pytest

from bridge.security.privileged import PrivilegedUsers, user_of_this_process
from tests.helpers.patience import PATIENCE, until

MEMBERS = frozenset({"eve", "administrators", "b\udcffd"})


@pytest.mark.parametrize(
    ("user", "privileged"),
    [
        ("mqm", True),
        ("mqm ", True),
        ("mqm          x", True),
        (user_of_this_process(), True),
        ("eve", True),
        ("administrators", True),
        ("administrato", True),
        ("bridge", True),
        ("carol", False),
        ("MQM", False),
        ("mqm2", False),
        ("administra", False),
        ("nobody", False),
        ("", False),
    ],
)
def test_privileged_users_are_recognized(user: str, privileged: bool) -> None:
    """As MQ compares users: by 12 bytes, without trailing blanks."""
    assert PrivilegedUsers("bridge", "", members=lambda: MEMBERS).include(user) is privileged


def test_lookups_do_not_block() -> None:
    """Until a thread has the next answer, the previous one applies. A failed lookup changes nothing."""
    now = 0.0
    answers = [frozenset({"eve"})]
    lookups, may_answer = threading.Semaphore(0), threading.Semaphore(1)

    def members() -> frozenset[str]:
        lookups.release()
        assert may_answer.acquire(timeout=PATIENCE)
        if not answers:
            raise OSError("the directory is away")
        return answers.pop()

    users = PrivilegedUsers(clock=lambda: now, members=members)
    assert lookups.acquire(timeout=PATIENCE)
    assert users.include("eve") and not lookups.acquire(blocking=False)
    now, answers = 61.0, [frozenset({"dave"})]
    assert users.include("eve") and not users.include("dave")  # the lookup is still running
    assert lookups.acquire(timeout=PATIENCE) and not lookups.acquire(blocking=False)
    may_answer.release()
    until(lambda: users.include("dave") and not users.include("eve"))
    now = 122.0
    may_answer.release()
    users.include("dave")
    assert lookups.acquire(timeout=PATIENCE)
    assert users.include("dave")
