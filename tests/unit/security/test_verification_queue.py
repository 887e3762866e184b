"""The queue of credential checks: networks in turn, withdrawn checks, limits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from bridge.security import verification_queue
from bridge.security.authenticator import AuthenticatorUnavailable, FailedConnects, Presented
from bridge.security.verification_queue import VerificationQueue
from tests.helpers.patience import PATIENCE

ATTACKER, FLEET = "192.0.2.1", "198.51.100.1"


class Checks:
    """Checks that run one at a time. The first one waits until the test opens the gate."""

    def __init__(self, executor: ThreadPoolExecutor) -> None:
        self.queue = VerificationQueue(executor, 1)
        self.gate = threading.Event()
        #: the names of the checks that have run
        self.ran: list[str] = []
        self._first = threading.Event()

    def check(self, name: str) -> str:
        self.ran.append(name)
        if name == "first":
            self._first.set()
            assert self.gate.wait(PATIENCE)
        return name

    async def submit(self, address: str, name: str) -> asyncio.Task[str]:
        task = asyncio.create_task(self.queue.run(Presented("c", address=address), self.check, name))
        await asyncio.sleep(0)  # the task starts
        return task

    async def first(self) -> asyncio.Task[str]:
        """A check that is running, until the gate is opened."""
        task = await self.submit("203.0.113.1", "first")
        assert await asyncio.to_thread(self._first.wait, PATIENCE)
        return task


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


async def test_a_flood_from_one_network_does_not_delay_another_network(executor: ThreadPoolExecutor) -> None:
    checks = Checks(executor)
    tasks = [await checks.first()]
    tasks += [await checks.submit(ATTACKER, f"guess {number}") for number in range(1_000)]
    tasks += [await checks.submit(FLEET, f"device {number}") for number in range(20)]
    checks.gate.set()
    await asyncio.gather(*tasks)
    devices = [position for position, name in enumerate(checks.ran) if name.startswith("device")]
    assert devices == list(range(2, 42, 2)) and len(checks.ran) == 1_021


async def test_addresses_of_one_ipv6_network_share_their_turn(executor: ThreadPoolExecutor) -> None:
    checks = Checks(executor)
    tasks = [await checks.first()]
    tasks += [await checks.submit(f"2001:db8::{number}", f"guess {number}") for number in range(1, 10)]
    tasks += [await checks.submit(FLEET, "device")]
    checks.gate.set()
    await asyncio.gather(*tasks)
    assert checks.ran.index("device") == 2


async def test_the_newest_check_of_a_network_runs_first(executor: ThreadPoolExecutor) -> None:
    checks = Checks(executor)
    tasks = [await checks.first()]
    tasks += [await checks.submit(FLEET, name) for name in ("old", "middle", "new")]
    checks.gate.set()
    await asyncio.gather(*tasks)
    assert checks.ran == ["first", "new", "middle", "old"]


async def test_the_check_of_a_disconnected_client_is_not_run(executor: ThreadPoolExecutor) -> None:
    checks = Checks(executor)
    first = await checks.first()
    cancelled_check, stays = await checks.submit(FLEET, "left"), await checks.submit(FLEET, "stays")
    cancelled_check.cancel()
    with pytest.raises(AuthenticatorUnavailable, match="not checked in time"):
        await cancelled_check
    checks.gate.set()
    assert await asyncio.gather(first, stays) == ["first", "stays"]
    assert checks.ran == ["first", "stays"]


async def test_a_check_that_is_cancelled_when_its_turn_comes_is_not_run(executor: ThreadPoolExecutor) -> None:
    checks = Checks(executor)
    first = await checks.first()
    cancelled_check = await checks.submit(FLEET, "left")
    checks.gate.set()
    executor.submit(int).result()  # the first check has run, and the event loop does not know yet
    cancelled_check.cancel()
    assert await first == "first"
    with pytest.raises(AuthenticatorUnavailable, match="not checked in time"):
        await cancelled_check
    assert checks.ran == ["first"]


async def test_a_running_check_keeps_its_thread_after_its_client_disconnects(executor: ThreadPoolExecutor) -> None:
    checks = Checks(executor)
    first = await checks.first()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = await checks.submit(FLEET, "second")
    assert checks.ran == ["first"]
    checks.gate.set()
    assert await second == "second"


async def test_an_error_of_a_check_is_raised_to_its_client_only(executor: ThreadPoolExecutor) -> None:
    queue = VerificationQueue(executor, 1)
    with pytest.raises(ZeroDivisionError):
        await queue.run(Presented("c", address=FLEET), divmod, 1, 0)
    assert await queue.run(Presented("c", address=FLEET), divmod, 7, 2) == (3, 1)


async def test_the_queue_is_limited_in_total_and_per_network(
    executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification_queue, "MAX_QUEUED", 4)
    monkeypatch.setattr(verification_queue, "MAX_QUEUED_PER_NETWORK", 2)
    checks = Checks(executor)
    tasks = [await checks.first()]
    tasks += [await checks.submit(FLEET, "1"), await checks.submit(FLEET, "2")]
    with pytest.raises(AuthenticatorUnavailable, match=f"2 credential checks of {FLEET}"):
        await checks.queue.run(Presented("c", address=FLEET), checks.check, "3")
    tasks += [await checks.submit("", "on a Unix socket"), await checks.submit("", "on another Unix socket")]
    with pytest.raises(AuthenticatorUnavailable, match="4 credential checks are queued"):
        await checks.queue.run(Presented("c", address="192.0.2.2"), checks.check, "4")
    checks.gate.set()
    await asyncio.gather(*tasks)
    assert await checks.queue.run(Presented("c", address=FLEET), checks.check, "5") == "5"


async def test_not_all_queued_guesses_are_checked(executor: ThreadPoolExecutor) -> None:
    """The failures of the first ones count before the others start."""
    checked: list[int] = []
    failed, queue = FailedConnects(lambda: 0.0), VerificationQueue(executor, 1)

    async def guess(number: int) -> None:
        attempt = failed.begin(ATTACKER, "carol", 3, 10.0)
        assert attempt is not None and not attempt.delay
        try:
            await queue.run(Presented("c", address=ATTACKER, attempt=attempt), checked.append, number)
        except AuthenticatorUnavailable as error:
            assert "failed_connects" in str(error)
            attempt.end(True)
        else:
            attempt.end(False)

    await asyncio.gather(*map(guess, range(100)))
    assert len(checked) in (3, 4)
