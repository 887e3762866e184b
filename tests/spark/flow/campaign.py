"""A site for campaigns of kills: bridge, broker, a cluster of Spark with a master and two workers, and pipelines on it.

Whatever is killed is started again, as its service manager would; what Spark starts, Spark starts again.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import psutil

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.mosquitto import Mosquitto, free_port
from tests.helpers.patience import PATIENCE, until
from tests.spark.cluster import can_stand_apart, start_master, start_worker
from tests.spark.conftest import ROOT, Queues
from tests.spark.driver import CLUSTER
from tests.spark.faults import kill_driver
from tests.spark.mqtt.spooler import session_made

_YAML: Final = """
queue_manager:
  data_directory: {data}
  listener: {{port: {listener}, password_file: {shared}/known}}
spark: {{user: spark, password_file: {shared}/secret, shared: [{shared}]}}
channels: [{{name: LOCAL, port: 0}}]
links: {{plant: {{host: 127.0.0.1, port: {broker}}}}}
pipelines:
  queues:
    from: {{mq: {{queue: IN}}, options: {{partitions: 2}}}}
    select: {select}
    to: {{mq: {{queue: OUT}}, archive: {shared}/table}}
    dead_letters: {{queue: DEAD}}
    batch: 100
    trigger: 0
    checkpoint: {driver}/queues
  topics:
    from: {{mqtt: campaign/#, link: plant, options: {{qos: 2}}}}
    select: {select}
    to: {{mq: {{queue: OUT}}}}
    dead_letters: {{queue: DEAD}}
    batch: 100
    trigger: 0
    checkpoint: {driver}/topics
  windows:
    from: {{mq: {{queue: TIMED}}, options: {{partitions: 2}}}}
    schema: {{ts: timestamp}}
    watermark: {{column: ts, delay: 20 s}}
    select: >
      SELECT window(ts, '1 minute').start AS minute, collect_list(payload:n::int) AS ns
      FROM input GROUP BY window(ts, '1 minute')
    to: {{mq: {{queue: WINDOWS}}}}
    late: {{mq: {{queue: LATE}}}}
    dead_letters: {{queue: DEAD}}
    batch: 100
    trigger: 0
    checkpoint: {shared}/windows
"""
_SELECT: Final = "SELECT payload:n::int AS n, payload:pad::string AS pad FROM input"
#: Bytes of data that messages on OUT have at most.
_FIT: Final = 60
TOPICS: Final = "campaign/#"


class Site:
    """All of it, running."""

    def __init__(self, directory: Path) -> None:
        self.shared, self._driver_home = directory / "shared", directory / "driver"
        for one in (self.shared, self._driver_home, directory / "broker", self.shared / "workers", directory / "master"):
            one.mkdir(parents=True)
        (self.shared / "known").write_text("spark:s3cret\n", encoding="utf-8")
        (self.shared / "secret").write_text("s3cret\n", encoding="utf-8")
        self.broker = Mosquitto(
            directory / "broker", "allow_anonymous true", "autosave_on_changes true", "autosave_interval 1"
        ).start()
        data, listener = directory / "queue-manager", free_port()
        places = {"data": data, "shared": self.shared, "driver": self._driver_home}
        config = _YAML.format(select=_SELECT, listener=listener, broker=self.broker.port, **places)
        self.bridge = BridgeProcess(data, config=config).start()
        self.queues = Queues(data)
        for queue in ("IN", "DEAD", "TIMED", "WINDOWS", "LATE"):
            self.queues.mqsc(f"DEFINE QLOCAL('{queue}') MAXDEPTH(1000000) DEFPSIST(YES)")
        self.queues.mqsc(f"DEFINE QLOCAL('OUT') MAXDEPTH(1000000) MAXMSGL({_FIT}) DEFPSIST(YES)")
        session_made(self.broker.port, self._driver_home / "topics" / "spool", TOPICS)
        self._master_port, self._master_home = free_port(), directory / "master" / "recovery"
        self._hidden = [data, self._driver_home] if can_stand_apart() else []
        self._master = start_master(self._master_port, self._master_home)
        self._workers = [self._worker() for _ in range(2)]
        self.log = directory / "driver.log"
        #: how often the driver was started
        self.drivers = 0
        self._driver = self._drive()

    # What is killed --------------------------------------------------------------------------------------------------

    @property
    def victims(self) -> dict[str, Callable[[random.Random], object]]:
        """What can be killed, by name: functions that kill it and start it again."""
        return {
            "driver": lambda dice: kill_driver(self._driver.pid),
            "virtual machine of the driver": lambda dice: _kill(psutil.Process(self._driver.pid).children(), dice),
            "planner": lambda dice: _kill(_running(self._driver.pid, "python_streaming_source_runner"), dice),
            "executor": lambda dice: _kill(self._on_workers("CoarseGrainedExecutorBackend"), dice),
            "Python worker": lambda dice: _kill(self._on_workers("pyspark.worker"), dice),
            "worker": self._kill_worker,
            "master": self._kill_master,
            "bridge": self._kill_bridge,
            "broker": self._kill_broker,
        }

    def _on_workers(self, word: str) -> list[psutil.Process]:
        return [process for worker in self._workers for process in _running(worker.pid, word)]

    def _kill_worker(self, dice: random.Random) -> None:
        number = dice.randrange(len(self._workers))
        _end([self._workers[number]])
        self._workers[number] = self._worker()

    def _kill_master(self, dice: random.Random) -> None:
        _end([self._master])
        self._master = start_master(self._master_port, self._master_home)

    def _kill_bridge(self, dice: random.Random) -> None:
        self.bridge.kill()
        self.bridge.start()
        self.queues = Queues(self.bridge.data_directory)

    def _kill_broker(self, dice: random.Random) -> None:
        """It writes each second what has changed, and nobody can get from it what it has forgotten."""
        time.sleep(2)
        assert self.broker.process is not None
        _end([self.broker.process])
        self.broker.start()

    # What runs -------------------------------------------------------------------------------------------------------

    def _worker(self) -> subprocess.Popen[bytes]:
        return start_worker(f"spark://127.0.0.1:{self._master_port}", self.shared / "workers", self._hidden)

    def _drive(self) -> subprocess.Popen[bytes]:
        self.drivers += 1
        command = [str(Path(sys.executable).with_name("mqbridge")), "pipeline", "run", "--config", str(self.bridge.config)]
        command += ["--master", f"spark://127.0.0.1:{self._master_port}"]
        # None of these is to be the end of it: a cluster where a campaign runs is no good one.
        lasting = {"spark.task.maxFailures": "20", "spark.scheduler.minRegisteredResourcesRatio": "0.5"}
        command += [f"--conf={name}={value}" for name, value in (CLUSTER | lasting).items()]
        environment = os.environ | {"PYTHONPATH": ROOT}
        with self.log.open("ab") as log:
            return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=log, start_new_session=True)

    def watch(self) -> None:
        """Start the driver again where it has ended."""
        if self._driver.poll() is not None:
            self._driver = self._drive()

    def until(self, condition: Callable[[], object]) -> None:
        """Return when a condition holds."""

        def holds() -> bool:
            self.watch()
            time.sleep(0.1)
            return bool(condition())

        until(holds, lambda: f"it did not come about; depths {self.depths}; the driver says:\n{self.said}")

    @property
    def depths(self) -> dict[str, int]:
        """Messages on the queues."""
        return {queue: self.queues.depth(queue) for queue in ("IN", "OUT", "DEAD", "TIMED", "LATE", "WINDOWS")}

    @property
    def said(self) -> str:
        """What the drivers have said."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def stop_pipelines(self) -> int:
        """SIGTERM for the driver; its exit status."""
        self._driver.terminate()
        return self._driver.wait(PATIENCE)

    def close(self) -> None:
        """End everything."""
        _end([self._driver, *self._workers, self._master])
        self.broker.stop()
        self.bridge.discard()


def _running(process: int, word: str) -> list[psutil.Process]:
    """The processes below one in whose command a word is."""
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for one in psutil.Process(process).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if any(word in argument for argument in one.cmdline()):
                    found.append(one)
    return found


def _kill(processes: list[psutil.Process], dice: random.Random) -> None:
    """Kill one of them, where there is any yet."""
    if processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            dice.choice(sorted(processes, key=lambda one: one.pid)).kill()


def _end(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Kill processes with all that they have started."""
    for process in processes:
        below: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):
            below = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait(PATIENCE)
        for one in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
