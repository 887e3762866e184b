"""A plug-in of pytest that divides the tests among processes (`pytest -n 5`), and prints every half minute how far they are.

Tests of one group run in one process, one behind the other, for what they share there. The longest groups begin first.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

#: Seconds between lines.
INTERVAL = 30

#: What more files than one share, and their tests.
TOGETHER = {
    # A process has one session of Spark, which takes long to start.
    "spark pipelines": ("tests/spark/flow/",),
    "spark sources": (
        "tests/spark/mq/test_envelope.py",
        "tests/spark/mq/test_source.py",
        "tests/spark/mqtt/test_source.py",
        "tests/spark/test_headers.py",
        "tests/spark/test_mapping_frames.py",
        "tests/spark/test_notebooks.py",
        "tests/spark/test_session.py",
    ),
    # One bridge on each kind of queue manager: fixture `bridge`.
    "bridge": (
        "tests/acceptance/test_mosquitto_clients.py",
        "tests/acceptance/test_mq_to_mqtt.py",
        "tests/acceptance/test_mqtt_to_mq.py",
        "tests/acceptance/test_paho_clients.py",
        "tests/acceptance/test_raw_",
    ),
}

#: The groups that take longest, in this order: who changes them measures them (`make test ARGS='-n 5 --durations=50'`).
LONGEST = (
    "spark pipelines",
    "spark sources",
    "tests/acceptance/test_lost_queue_manager.py",
    "bridge ibmmq",
    "bridge embedded",
    "tests/acceptance/test_crash.py embedded",
    "tests/acceptance/test_life_cycle.py ibmmq",
    "tests/acceptance/test_crash.py ibmmq",
    "tests/acceptance/test_many_clients.py ibmmq",
    "tests/acceptance/test_life_cycle.py embedded",
    "tests/unit/service/mappings/test_guarantees.py",
    "tests/contract/mqi/test_reconnect.py",
    "tests/acceptance/test_faulty_disk.py embedded",
    "tests/unit/mq/ibm/test_backend.py",
    "tests/unit/mqtt/test_delivery_model.py",
    "tests/acceptance/test_idle_queue_manager.py",
    "bridge pymqi",
    "tests/unit/mq/embedded/test_queue_model.py",
    "tests/acceptance/test_mapping_examples.py embedded",
    "tests/acceptance/test_mapping_reload.py ibmmq",
    "tests/acceptance/test_mapping_reload.py embedded",
    "tests/spark/mqtt/test_kills.py",
    "tests/unit/mq/embedded/storage/test_recovery_log_model.py",
)

_KIND = re.compile(r"\[(embedded|ibmmq|pymqi)\b")


def group(test: str) -> str:
    """The group of a test: what it shares, or its file; of an acceptance test with the kind of queue manager."""
    shared = next((name for name, places in TOGETHER.items() if test.startswith(places)), test.partition("::")[0])
    kind = _KIND.search(test) if test.startswith("tests/acceptance/") else None
    return f"{shared} {kind[1]}" if kind else shared


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(group(item.nodeid), len(places)))


class Groups(LoadScopeScheduling):
    """Gives each process one group behind the other, in the order of the tests. (`loadgroup` reads no mark in pytest 9.2.)"""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Groups:
    config.option.loadscopereorder = False  # by their numbers of tests
    return Groups(config, log)


class Progress:
    """Of the process that has the others run the tests."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal
        self._began = time.monotonic()
        #: when the tests at work began
        self._running: dict[str, float] = {}
        self._number = self._done = 0
        #: number of tests left in each of the longest groups
        self._left: Counter[str] = Counter()
        self._long_groups = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="progress", daemon=True)
        self._thread.start()

    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        if not self._number:  # the first process; all of them have the same tests
            self._number = len(ids)
            self._left.update(name for name in map(group, ids) if name in LONGEST)
            self._long_groups = len(self._left)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.pop(nodeid, None)
        self._done += 1
        if (name := group(nodeid)) in self._left:
            self._left[name] -= 1
            if not self._left[name]:
                del self._left[name]

    def pytest_unconfigure(self) -> None:
        self._over.set()
        self._thread.join()

    def _tell(self) -> None:
        while not self._over.wait(INTERVAL):
            self._terminal.write_line(f"\n{self.line(time.monotonic())}")

    def line(self, now: float) -> str:
        """Return how far the tests are. Most of the time goes to the long groups, and most of the tests are outside them."""
        minutes, seconds = divmod(int(now - self._began), 60)
        groups = ""
        if self._long_groups:
            groups = f"{self._long_groups - len(self._left)} of {self._long_groups} long groups (they run first), "
        slow = [test for test, began in dict(self._running).items() if now - began >= INTERVAL]
        running = f", running for over {INTERVAL} s: {' '.join(slow)}" if slow else ""
        return f"{minutes}:{seconds:02} finished {groups}{self._done} of {self._number} tests{running}"


def pytest_sessionstart(session: pytest.Session) -> None:
    plugins = session.config.pluginmanager
    if plugins.hasplugin("dsession"):  # this process starts the others
        plugins.register(Progress(plugins.getplugin("terminalreporter")))
