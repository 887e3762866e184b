"""Rows that come too late: each row is in a window, late, or a dead letter, and nowhere twice."""

from __future__ import annotations

import json
import random
import signal
import subprocess
from collections import Counter
from datetime import UTC, datetime, timedelta

import pyarrow.dataset as ds
import pytest

from bridge.spark.flow.mistake import Mistake
from bridge.spark.mq.queue_manager import APPLICATION_NAME
from tests.helpers.mosquitto import Mosquitto, publish
from tests.spark.faults import Fault, fault, kill_driver
from tests.spark.flow.conftest import Bench
from tests.spark.flow.test_pipelines_running import DRIVER_PATIENCE, ended, started

START = datetime(2026, 1, 1, tzinfo=UTC)
NS = "collect_list(payload:n::int) AS ns"
MINUTE = "window(ts, '1 minute')"
SLIDING = "window(ts, '1 minute', '30 seconds')"
BY_KEY = """
    schema: {ts: timestamp}
    watermark: {column: ts, delay: 20 s}
"""


def by_key(select: str) -> str:
    return f"{BY_KEY}\n    select: {select}"


#: SELECTs, in each of which a row is in one group, or late
SELECTS = {
    "window": by_key(f"SELECT {MINUTE}.start AS w, {NS} FROM input GROUP BY {MINUTE}"),
    "window, filter, key": by_key(
        f"SELECT {MINUTE}.start AS w, {NS} FROM (SELECT *, payload:n::int % 3 AS k FROM input WHERE payload:n::int >= 0) AS x"
        f" GROUP BY k, {MINUTE}"
    ),
    "clause": f"""
    select: |
      WITH events AS (SELECT payload:ts::timestamp AS ts, payload FROM input),
           timely AS (SELECT ts, payload FROM events WATERMARK ts DELAY OF INTERVAL 20 SECONDS)
      SELECT {MINUTE}.start AS w, {NS} FROM timely GROUP BY {MINUTE}
""",
    "time itself": by_key(f"SELECT ts, {NS} FROM input GROUP BY ts"),
    "session": by_key(
        f"SELECT session_window(ts, '5 seconds').start AS w, k, {NS} FROM (SELECT *, payload:n::int % 2 AS k FROM input) AS x"
        " GROUP BY session_window(ts, '5 seconds'), k"
    ),
    "sliding": by_key(
        f"SELECT {SLIDING}.start AS w, {NS} FROM input GROUP BY {SLIDING}"
    ),
    "windows of windows": by_key(
        f"SELECT window(w, '2 minutes').start AS v, flatten(collect_list(ns)) AS ns FROM"
        f" (SELECT {MINUTE} AS w, {NS} FROM input GROUP BY {MINUTE}) AS x GROUP BY window(w, '2 minutes')"
    ),
}


def row(n: int, seconds: float) -> bytes:
    return json.dumps({"n": n, "ts": f"{START + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S}"}).encode()


def numbers(bodies: list[bytes]) -> Counter[int]:
    return Counter(json.loads(body)["n"] for body in bodies)


TEXT = """
pipelines:
  windows:
    from: {mq: {queue: $source}, options: {partitions: 2}}
    to: {mq: {queue: $target}}
    dead_letters: {queue: $dead}
    batch: 15
"""
#: Queues of a pipeline.
QUEUES = ("source", "target", "late", "dead")


def write(bench: Bench, said: str, late: str = "late: {mq: {queue: $late}}") -> dict[str, str]:
    """A pipeline with small batches, and its queues."""
    queues = {name: bench.queues.queue() for name in QUEUES}
    bench.write(f"{TEXT}    {late}\n{said}", **queues)
    return queues


def begin(bench: Bench, queues: dict[str, str]) -> None:
    """A run after which what is before START + 900 s is late."""
    bench.queues.put(queues["source"], row(0, 1000))
    bench.run()


#: The one whose way to the operator is the longest; the others, and another seed, are for `make test-slow`.
QUICK = ("sliding",)


@pytest.mark.parametrize(
    ("select", "seed"),
    [
        *((select, 1) for select in QUICK),
        *(pytest.param(select, 2, marks=pytest.mark.slow) for select in SELECTS),
    ],
)
def test_each_row_is_in_a_window_or_late_or_a_dead_letter(select: str, seed: int, bench: Bench) -> None:
    dice = random.Random(seed)
    queues = write(bench, SELECTS[select])
    good, bad = [], []
    for n in range(60):
        if dice.random() < 0.1:
            bad.append(b'{"n": %d, "ts": "never"}' % n)
            bench.queues.put(queues["source"], bad[-1])
        else:
            good.append(n)
            bench.queues.put(queues["source"], row(n, n * 10 + dice.gauss(0, 150)))
    # What ends all windows but the last: it is in none that has ended.
    bench.queues.put(queues["source"], row(1000, 100_000))
    bench.run()
    bench.queues.put(queues["source"], row(1001, 200_000))
    bench.run()
    windows: Counter[int] = Counter()
    for body in bench.queues.bodies(queues["target"]):
        windows.update(json.loads(body)["ns"])
    windows = Counter(dict.fromkeys(windows, 1)) if select == "sliding" else windows
    windows.subtract([1000] * (windows[1000] > 0))
    late = numbers(bench.queues.bodies(queues["late"]))
    assert +windows + late == Counter(good)
    assert late and windows
    assert bench.queues.depth(queues["dead"]) == len(bad)
    assert sum(one.late for one in bench.batches) == sum(late.values()) and all(one.late_exact for one in bench.batches)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["archive: $place", "format: parquet, path: $place"])
def test_a_table_of_late_rows(where: str, bench: Bench) -> None:
    """They are as the source gave them, with what they were late for; a reference table on the way does not matter."""
    place, lines = bench.directory / "late", bench.directory / "lines.csv"
    lines.write_text("line,name\n0,even\n1,odd\n1,strange\n")
    said = f"tables: {{lines: {lines}}}\n" + by_key(
        f"SELECT {MINUTE}.start AS w, name, {NS} FROM lines JOIN input ON payload:n::int % 2 = line GROUP BY {MINUTE}, name"
    )
    queues = write(bench, f"    {said}", f"late: {{{where.replace('$place', str(place))}}}")
    begin(bench, queues)
    bench.queues.put(queues["source"], row(1, 0), row(2, 1001), b"bad", row(3, 30))
    bench.run()
    found = sorted(ds.dataset(place, format="parquet").to_table().to_pylist(), key=lambda one: str(one["body"]))
    assert [one["body"] for one in found] == [row(1, 0), row(3, 30)]
    assert all(one["queue"] == queues["source"] and one["md"]["MsgId"] and one["pipeline"] == "windows" for one in found)
    assert {f"{one['watermark']:%H:%M:%S}" for one in found} == {"00:16:20"}
    assert len({one["batch"] for one in found}) == 1
    assert (bench.batches[-1].late, bench.batches[-1].bad) == (2, 1) and ", 2 late, " in str(bench.batches[-1])
    assert bench.lines[-1] == "windows: done; 2 rows came too late, and went where late: says"


@pytest.mark.slow
def test_publications_that_are_late_keep_their_topic(bench: Bench, broker: Mosquitto) -> None:
    queues = {name: bench.queues.queue() for name in QUEUES}
    text = TEXT.replace("{mq: {queue: $source}, options: {partitions: 2}}", "{mqtt: rows/#, link: plant}")
    text = f"links: {{plant: {{host: 127.0.0.1, port: {broker.port}}}}}{text}    late: {{mq: {{queue: $late}}}}\n"
    bench.write(text + SELECTS["window"], **queues)
    bench.run()  # the session at the broker begins
    for n, seconds in enumerate((1000, 0)):
        publish(broker.port, f"rows/{n}", row(n, seconds).decode(), qos=1)
        bench.run()
    (message,) = bench.queues.take(queues["late"])
    assert b"<mqps><Top>rows/1</Top></mqps>" in message.data and message.data.endswith(row(1, 0))


@pytest.mark.slow
def test_late_added_changed_and_removed_between_runs(bench: Bench) -> None:
    """The checkpoint is one that goes on: what is late is counted in any case."""
    queues = write(bench, SELECTS["window"], "")
    begin(bench, queues)
    other = bench.queues.queue()
    for n, late in enumerate(("", f"late: {{mq: {{queue: {queues['late']}}}}}", f"late: {{mq: {{queue: {other}}}}}", ""), 1):
        bench.write(f"{TEXT}    {late}\n{SELECTS['window']}", **queues)
        bench.queues.put(queues["source"], row(n, 0))
        bench.run()
        assert bench.lines[-1].startswith("windows: done; 1 row came too late, and ")
    assert (bench.queues.bodies(queues["late"]), bench.queues.bodies(other)) == ([row(2, 0)], [row(3, 0)])


def test_a_late_queue_that_is_full_is_told_and_tried_again(bench: Bench) -> None:
    queues = write(bench, SELECTS["window"])
    bench.queues.mqsc(f"ALTER QLOCAL('{queues['late']}') MAXDEPTH(2)")
    begin(bench, queues)
    bench.queues.put(queues["source"], *(row(n, 0) for n in range(1, 6)))
    lines = bench.run_mended(f"ALTER QLOCAL('{queues['late']}') MAXDEPTH(100)")
    assert any("MQRC_Q_FULL" in line and queues["late"] in line and "raise its MAXDEPTH" in line for line in lines)
    assert numbers(bench.queues.bodies(queues["late"])) == Counter(range(1, 6))
    assert lines[-1] == "windows: done; 5 rows came too late, and went where late: says"


@pytest.mark.slow
def test_a_directory_of_late_rows_that_cannot_be_written_is_told_and_tried_again(bench: Bench) -> None:
    place = bench.directory / "late"
    queues = write(bench, SELECTS["window"], f"late: {{archive: {place}}}")
    begin(bench, queues)
    place.write_text("no directory")
    bench.queues.put(queues["source"], row(1, 0), row(2, 0))
    lines: list[str] = []

    def tell(line: str) -> None:
        lines.append(line)
        if "tried again in" in line:
            place.unlink(missing_ok=True)

    assert bench.runner(tell=tell, attempts=3).run() == []
    assert any("tried again in" in line and str(place) in line for line in lines)
    assert ds.dataset(place, format="parquet").count_rows() == 2


@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_batch_that_is_run_again_has_its_late_rows_once(count: int, bench: Bench) -> None:
    """The connection breaks before and after its late rows are committed, in one of the two partitions."""
    queues = write(bench, SELECTS["window"])
    begin(bench, queues)
    bench.queues.put(queues["source"], *(row(n, 0) for n in range(1, 9)))
    late: list[str] = []

    def wanted(verb: str, request: list[object]) -> bool:
        if verb == "MQOPEN" and queues["late"] in str(request):
            late.append(verb)
        return bool(late) and verb == "MQCMIT"

    with fault(APPLICATION_NAME, Fault(wanted, count, after=count == 2)) as verbs:
        assert bench.runner(attempts=3).run() == []
    assert late and "MQCMIT" in verbs and any("tried again" in line for line in bench.lines)
    assert numbers(bench.queues.bodies(queues["late"])) == Counter(range(1, 9))
    assert bench.queues.depth(queues["source"]) == 0


@pytest.mark.slow
@pytest.mark.timeout(DRIVER_PATIENCE * 4)
def test_the_driver_killed_at_its_late_rows(bench: Bench) -> None:
    """Before and after they are committed: the windows' rows are written, and Spark does not know that the batch is."""
    queues = write(bench, SELECTS["window"])
    data = f"queue_manager: {{data_directory: {bench.queues.directory}}}\n"
    bench.file.write_text(data + bench.file.read_text().rstrip() + "\n    checkpoint: state\n")
    begin(bench, queues)
    for step, after in enumerate((False, True)):
        late = (row(n, 0) for n in range(1 + 10 * step, 11 + 10 * step))
        bench.queues.put(queues["source"], *late, row(100 + step, 2000 + step * 1000))
        opened: list[str] = []
        killed: list[subprocess.Popen[bytes]] = []

        def wanted(verb: str, request: list[object], opened: list[str] = opened) -> bool:
            if verb == "MQOPEN" and queues["late"] in str(request):
                opened.append(verb)
            return bool(opened) and verb == "MQCMIT"

        commit = Fault(wanted, after=after, action=lambda _: kill_driver(killed[0].pid))  # noqa: B023
        with fault(APPLICATION_NAME, commit):
            killed.append(started(bench, "windows"))
            assert ended(killed[0]) == -signal.SIGKILL
        assert commit.happened
    bench.run()
    assert numbers(bench.queues.bodies(queues["late"])) == Counter(range(1, 21))
    windows = [n for body in bench.queues.bodies(queues["target"]) for n in json.loads(body)["ns"]]
    assert sorted(windows) == [0, 100] and bench.queues.depth(queues["source"]) == 0


#: (SELECT; words of the mistake)
REFUSED = [
    ("SELECT ts FROM input", "where the SELECT has no windows"),
    ("SELECT a.ts FROM input a JOIN input b USING (ts)", "that reads input once"),
    (f"SELECT {MINUTE}.start AS w FROM (SELECT * FROM input WHERE rand() < 1) GROUP BY {MINUTE}", "without Filter"),
]


@pytest.mark.parametrize(("select", "words"), REFUSED)
def test_selects_of_which_nobody_can_say_what_is_late(select: str, words: str, bench: Bench) -> None:
    write(bench, by_key(f'"{select}"'))
    with pytest.raises(Mistake, match=words) as raised:
        bench.plan("windows")
    assert raised.value.location == ("late",)
    write(bench, by_key(f'"{select}"'), "")
    bench.plan("windows")


def test_a_column_that_no_late_row_has(bench: Bench) -> None:
    write(bench, SELECTS["window"], 'late: {mqtt: "late/{w}"}')
    with pytest.raises(Mistake) as raised:
        bench.plan("windows")
    assert raised.value.location == ("late", "mqtt") and raised.value.found == "'w'"
