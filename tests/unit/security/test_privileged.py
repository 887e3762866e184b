"""Who is privileged towards MQ, and that nobody waits for the operating system to say so."""

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
def test_who_is_privileged(user: str, privileged: bool) -> None:
    """As MQ compares users: by 12 bytes, without the blanks at their end."""
    assert PrivilegedUsers("bridge", "", members=lambda: MEMBERS).include(user) is privileged


def test_nobody_waits_for_the_operating_system() -> None:
    """Until a thread has the next answer the one before counts; one that fails changes nothing."""
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
    assert users.include("eve") and not users.include("dave")  # it is still asked
    assert lookups.acquire(timeout=PATIENCE) and not lookups.acquire(blocking=False)
    may_answer.release()
    until(lambda: users.include("dave") and not users.include("eve"))
    now = 122.0
    may_answer.release()
    users.include("dave")
    assert lookups.acquire(timeout=PATIENCE)
    assert users.include("dave")
