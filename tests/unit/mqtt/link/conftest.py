"""Links to a scripted broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.fake_broker import FakeBroker
from tests.helpers.tested_link import impatient, link, version  # noqa: F401


@pytest.fixture
def broker(version: str) -> Iterator[FakeBroker]:  # noqa: F811
    """A scripted broker."""
    fake = FakeBroker(version)
    yield fake
    fake.close()


@pytest.fixture
def broker_5() -> Iterator[FakeBroker]:
    """A scripted broker of MQTT 5."""
    fake = FakeBroker("5")
    yield fake
    fake.close()
