"""A campaign of kills on a cluster: whatever is killed when, each row is once where it belongs.

MQBRIDGE_TEST_KILLS says how many kills there are, MQBRIDGE_TEST_SEED which.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.dataset
import pytest
from paho.mqtt import publish

from bridge.wire import cmqc
from tests.helpers.patience import PATIENCE
from tests.spark.flow.campaign import Site

KILLS = int(os.environ.get("MQBRIDGE_TEST_KILLS") or 9)
SEED = int(os.environ.get("MQBRIDGE_TEST_SEED") or 1)
#: Messages, and publications, between two kills.
ROWS = 60
START = datetime(2026, 1, 1, tzinfo=UTC)
#: MsgIds that come again and again.
MSG_IDS = [bytes([letter]) * 24 for letter in b"ABC"]


class Senders:
    """What was put and published, and what has to become of it."""

    def __init__(self, site: Site, dice: random.Random) -> None:
        self._site = site
        self._dice = dice
        self._number = 0
        self.good: list[int] = []
        #: those that nobody can decode, and those that are too long for their queue
        self.undecodable: list[int] = []
        self.refused: list[int] = []
        #: those that came from the queue, and are rows
        self.tabled: list[int] = []
        #: those that have a time, and belong in a window or are late
        self.timed: list[int] = []

    def send(self) -> None:
        """Both of them some more."""
        for _ in range(ROWS):
            chosen: dict[str, object] = {"Priority": self._dice.randrange(10), "Persistence": cmqc.MQPER_PERSISTENT}
            if self._dice.random() < 0.4:
                chosen["MsgId"] = self._dice.choice(MSG_IDS)
            body, is_row = self._row()
            self.tabled += [self._number] * is_row
            self._site.queues.put("IN", body, **chosen)
        published = [{"topic": f"campaign/{n % 3}", "payload": self._row()[0], "qos": 2} for n in range(ROWS)]
        publish.multiple(published, port=self._site.broker.port)  # type: ignore[arg-type]
        for _ in range(ROWS):
            self._site.queues.put("TIMED", self._timed_row(), Persistence=cmqc.MQPER_PERSISTENT)

    def send_timed(self, *seconds: float) -> None:
        """Send rows of these times."""
        for second in seconds:
            self._number += 1
            self.timed.append(self._number)
            self._site.queues.put("TIMED", timed(self._number, second), Persistence=cmqc.MQPER_PERSISTENT)

    def end_windows(self) -> None:
        """Send a row, which is in no window that ends, behind all others."""
        self._site.queues.put("TIMED", timed(-1, 1_000_000), Persistence=cmqc.MQPER_PERSISTENT)

    def _timed_row(self) -> bytes:
        self._number += 1
        number = self._number
        if self._dice.random() < 0.05:
            self.undecodable.append(number)
            return b"no JSON %d" % number
        self.timed.append(number)
        return timed(number, number * 2 + self._dice.gauss(0, 120))

    def _row(self) -> tuple[bytes, bool]:
        self._number += 1
        number, kind = self._number, self._dice.random()
        if kind < 0.05:
            self.undecodable.append(number)
            return b"no JSON %d" % number, False
        if kind < 0.1:
            self.refused.append(number)
            return b'{"n": %d, "pad": "%s"}' % (number, b"x" * 100), True
        self.good.append(number)
        return b'{"n": %d}' % number, True

    @property
    def bad(self) -> list[int]:
        return sorted(self.undecodable + self.refused)


def timed(number: int, seconds: float) -> bytes:
    """A row with a time."""
    return json.dumps({"n": number, "ts": f"{START + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S}"}).encode()


def numbers(bodies: list[bytes]) -> Counter[int]:
    """Of rows and of dead letters."""
    found = [re.search(rb'(?:no JSON |"n": ?)(\d+)', body) for body in bodies]
    return Counter(int(one[1]) for one in found if one is not None)


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE * (KILLS + 5))
def test_kills_on_a_cluster(tmp_path: Path) -> None:
    dice = random.Random(SEED)
    site = Site(tmp_path)
    try:
        senders = Senders(site, dice)
        order: list[str] = []
        while len(order) < KILLS:
            order += dice.sample(sorted(site.victims), len(site.victims))
        for victim in order[:KILLS]:
            before = site.depths
            senders.send()
            # In the middle of it: some of what was sent has arrived, and neither pipeline is far behind.
            few = dice.randrange(ROWS)
            site.until(lambda: site.depths["OUT"] > before["OUT"] + few and site.depths["IN"] < 2 * ROWS)  # noqa: B023
            if victim == "broker":
                site.until(lambda: arrived(site, senders))
            print(f"{victim} killed at {site.depths}", flush=True)
            site.victims[victim](dice)
        senders.send()
        site.until(lambda: arrived(site, senders) and not site.depths["IN"] and not site.depths["TIMED"])
        # Windows that have ended say how far the watermark is: what comes now of the first minutes is late for certain.
        senders.send_timed(500_000)
        site.until(lambda: site.depths["WINDOWS"] > 0)
        senders.send_timed(*range(10))
        site.until(lambda: site.depths["LATE"] > 0)
        senders.end_windows()
        windows: Counter[int] = Counter()

        def counted() -> bool:
            for body in site.queues.bodies("WINDOWS"):
                windows.update(json.loads(body)["ns"])
            return windows.total() + site.depths["LATE"] >= len(senders.timed)

        site.until(counted)
        assert site.stop_pipelines() == 0, site.said
        assert numbers(site.queues.bodies("OUT")) == Counter(senders.good)
        assert numbers(site.queues.bodies("DEAD")) == Counter(senders.bad)
        assert site.queues.depth("IN") == 0
        counted()
        late = numbers(site.queues.bodies("LATE"))
        assert windows + late == Counter(senders.timed)
        table = pyarrow.dataset.dataset(site.shared / "table", format="parquet").to_table(columns=["n"])
        assert Counter(table.column("n").to_pylist()) == Counter(senders.tabled)
        assert "Traceback" not in site.said and "\tat " not in site.said
        timely = f"{len(senders.timed)} with a time, {late.total()} of them late"
        print(f"{len(senders.good)} rows, {timely}, {len(senders.bad)} dead letters, {site.drivers} drivers")
    finally:
        site.close()


def arrived(site: Site, senders: Senders) -> bool:
    """Whether all that was sent is somewhere behind the pipelines (or as much)."""
    depths = site.depths
    return depths["OUT"] >= len(senders.good) and depths["DEAD"] >= len(senders.bad)
