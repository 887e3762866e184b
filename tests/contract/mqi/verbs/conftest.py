"""A queue manager with the verbs of the stand-in, in the process of the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.helpers.mq_applications import Workplace
from tests.helpers.stand_in_manager import StandInApplication, StandInManager
from tests.ibm_standin.mqi.connection import StandInConnection


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[StandInManager]:
    manager = StandInManager(tmp_path)
    yield manager
    manager.close()


@pytest.fixture
def mq(manager: StandInManager) -> Iterator[Workplace]:
    with ExitStack() as stack:
        yield Workplace(lambda: StandInConnection(manager.itself, "contract"), stack)


@pytest.fixture
def app(mq: Workplace) -> StandInApplication:
    return StandInApplication(mq.connect())


@pytest.fixture
def queue(mq: Workplace) -> str:
    """A queue that no other test uses."""
    return mq.queue()


@pytest.fixture
def root(mq: Workplace) -> str:
    """A topic string that no other test uses."""
    return mq.name("news")
