"""The spool: restarts, object stores, and spools of other versions."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from bridge.cli.program import program
from bridge.spark import spool as spools
from bridge.spark.segment import IDENTITY, WITNESS, Segment, SpoolDamaged
from bridge.spark.spool import DataLoss, Spool, SpoolBusy, content_of, read_content, read_segments
from bridge.spark.spool_inventory import damage_of
from tests.helpers.damage import DAMAGE

SCHEMA = pa.schema([pa.field("body", pa.binary()), pa.field("md", pa.struct([("A", pa.int32()), ("B", pa.int32())]))])


def batch(*bodies: bytes) -> Any:
    md = pa.StructArray.from_arrays([pa.array([1] * len(bodies), pa.int32())] * 2, fields=list(SCHEMA.field("md").type))
    return pa.record_batch([pa.array(bodies, pa.binary()), md], schema=SCHEMA)


def append(spool: Spool, *bodies: bytes, state: bytes | None = None) -> Segment:
    segment = spool.append([batch(*bodies)], sum(map(len, bodies)), 1, state)
    spool.publish(segment)
    return segment


def bodies(spool: Spool, schema: Any = SCHEMA) -> list[bytes]:
    names = [segment.name for segment in spool.between(spool.first - 1, spool.last)]
    return [body for part in read_segments(spool.place.path, names, schema) for body in part.column("body").to_pylist()]


def test_a_restart_finds_all_published_segments(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path), "Q")
    append(spool, b"1", b"2")
    append(spool, b"3")
    spool.append([batch(b"4")], 1, 1)  # whose unit of work was backed out
    spool.close()
    # An abandoned process has written a segment with a number that its successor used, too.
    zombie = Segment(2, 9, 9, 1, 0, "0123456789ab")
    Path(spool.place.path, zombie.name).write_bytes(b"")
    Path(spool.place.path, f".{zombie.name}.17").write_bytes(b"")
    again = Spool(str(tmp_path), "Q")
    again.recover(2, [(1, spool.run)])
    assert (again.id, again.first, again.last, bodies(again)) == (spool.id, 1, 2, [b"1", b"2", b"3"])
    assert sorted(again.place.names()) == sorted(
        ["lock", "spool.json", "witness", *(segment.name for segment in again.between(0, 2))]
    )
    assert append(again, b"5").number == 3
    again.close()
    last = Spool(str(tmp_path), "Q")
    last.recover(3, [(1, spool.run), (3, again.run)])
    last.delete_through(1)
    assert bodies(last) == [b"3", b"5"]
    with pytest.raises(
        DataLoss, match="has 2 of the segments 1 to 3, which the checkpoint needs, so messages of Q are"
    ):
        last.between(0, 3)
    assert len(last.between(0, 3, complete=False)) == 2


@pytest.mark.parametrize(
    ("of_queue", "lost"),
    [
        (False, "last segment"),
        *itertools.product([True, False], ["witness", "identity", "torn witness"]),
    ],
)
def test_the_loss_of_the_end_is_noticed(tmp_path: Path, of_queue: bool, lost: str) -> None:
    spool = Spool(str(tmp_path), "Q")
    spool.recover()
    segments = [append(spool, b"%d" % number) for number in range(3)]
    if of_queue:
        spool.delete_through(3)  # the checkpoint contains all of them
    spool.close()
    directory = Path(spool.place.path)
    match lost:
        case "last segment":
            Path(directory, segments[-1].name).unlink()
        case "witness":
            Path(directory, WITNESS).unlink()
        case "identity":
            Path(directory, IDENTITY).unlink()
        case "torn witness":
            Path(directory, WITNESS).write_bytes(Path(directory, WITNESS).read_bytes()[:20])
    with pytest.raises(SpoolDamaged) as error:
        again = Spool(str(tmp_path), "Q")
        again.recover(*([3, [(1, spool.run)]] if of_queue else []))
    if lost == "last segment":
        assert "ends with segment 2, but segment 3 was published" in str(error.value)


def test_a_restored_queue_manager_removes_no_segments(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its state message is older than the spool. Messages that were got from the queue since then exist only in the spool."""
    runs: list[tuple[int, str]] = []
    for number in (1, 3, 4):
        spool = Spool(str(tmp_path), "Q")
        assert spool.recover(number - 1, runs) == runs
        runs.append((number, spool.run))
        append(spool, b"%d" % number)
        if number == 1:
            append(spool, b"2")
        spool.close()
    assert not caplog.text
    Path(spool.place.path, Segment(5, 1, 1, 1, 0, spool.run).name).write_bytes(b"")  # not published
    restored = Spool(str(tmp_path), "Q")
    assert restored.recover(1, runs[:1]) == runs
    assert bodies(restored) == [b"1", b"2", b"3", b"4"] and restored.last == 4
    assert "MQB8010W" in caplog.text
    append(restored, b"5")
    restored.close()
    again = Spool(str(tmp_path), "Q")
    again.recover(5, [*runs, (5, restored.run)])
    assert bodies(again) == [b"1", b"2", b"3", b"4", b"5"]
    again.close()
    # An abandoned process may also have written a segment 3. It is unknown which one was published.
    two = Segment(3, 1, 1, 1, 0, "0123456789ab")
    Path(again.place.path, two.name).write_bytes(b"")
    with pytest.raises(SpoolDamaged, match="two segments 3"):
        Spool(str(tmp_path), "Q").recover(1, runs[:1])


EXAMPLES = int(os.environ.get("MQBRIDGE_TEST_EXAMPLES") or 40)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a killed pipeline: two segments are in a finished batch, and five are not."""
    directory = tmp_path_factory.mktemp("pipeline")
    spool = Spool(str(directory / "spool"), "Q")
    for number in range(7):
        append(spool, b"%d" % number * 500)
    spool.append([batch(b"not published")], 1, 1)
    offsets = json.dumps({"spools": {"Q": [spool.id, 2]}})
    for name, content in (("offsets/0", f"v1\n{{}}\n{offsets}"), ("commits/0", "v1\n{}")):
        file = directory / "checkpoint" / name
        file.parent.mkdir(parents=True)
        file.write_text(content)
    spool.delete_through(1)
    spool.close()
    return directory


def read_from(directory: Path) -> list[bytes]:
    """Return the rows that the next batch of the pipeline reads."""
    spool = Spool(str(directory / "spool"), "Q")
    try:
        # The state queue has the number of the last segment, and the word of the reader.
        run = next(segment.run for name in spool.place.names() if (segment := Segment.of(name)) is not None)
        spool.recover(7, [(1, run)])
        names = [segment.name for segment in spool.between(2, spool.last)]
        return [
            body for part in read_segments(spool.place.path, names, SCHEMA) for body in part.column("body").to_pylist()
        ]
    finally:
        spool.close()


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("kind", ["segment", "witness", "identity", "lock"])
def test_no_message_of_a_spool_is_lost_silently(written: Path, tmp_path: Path, kind: str, damage: str) -> None:
    """Identical messages, or an error of the query and of `data verify`. The lock file has no content."""
    expected = read_from(written)
    assert len(expected) == 5 and not list(damage_of(written / "spool", written / "checkpoint"))
    seed = int(os.environ.get("MQBRIDGE_TEST_SEED") or random.randrange(1_000_000))
    change, rounds = DAMAGE[damage]
    for number in range(seed, seed + max(rounds * EXAMPLES // 40, 1)):
        chance, directory = random.Random(number), tmp_path / str(number)
        shutil.copytree(written, directory)
        files = {
            "segment": sorted(directory.glob("spool/*/*.arrow")),
            "witness": list(directory.glob("spool/*/witness")),
            "identity": list(directory.glob("spool/*/spool.json")),
            "lock": list(directory.glob("spool/*/lock")),
        }
        file = chance.choice(files[kind])
        label = f"MQBRIDGE_TEST_SEED={number}: {file} {change(file, chance)}"
        verified = list(damage_of(directory / "spool", directory / "checkpoint"))
        try:
            content = read_from(directory)
        except (SpoolDamaged, DataLoss) as error:
            assert verified and kind != "lock", f"{label}: verify does not find {error}"
        else:
            assert content == expected, label
            assert not verified or kind == "identity", f"{label}: {verified}"
        shutil.rmtree(directory)


def verify(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(program, ["data", "verify", *map(str, words)])
    return result.exit_code, result.output


def test_data_verify_checks_the_spools_of_pipelines(written: Path, tmp_path: Path) -> None:
    """With the checkpoint, a spool without segments is incomplete."""
    shutil.copytree(written, tmp_path / "data" / "pipelines" / "p")
    config = tmp_path / "bridge.yaml"
    config.write_text(
        f"""\
queue_manager: {{data_directory: {tmp_path / "data"}}}
archive: {{directory: {tmp_path / "archive"}}}
pipelines:
  p: {{from: {{mq: {{queue: Q}}}}, to: {{archive: events}}}}
"""
    )
    spool = tmp_path / "data" / "pipelines" / "p" / "spool"
    assert verify(spool) == (0, f"spool {spool} is undamaged\n")
    segments = sorted(spool.glob("*/*.arrow"))
    segments[2].unlink()
    status, text = verify(spool)
    assert status == 1 and "lacks 1 segments: 4" in text, text
    for segment in segments:
        segment.unlink(missing_ok=True)
    status, text = verify("--config", config)
    assert status == 1 and "lacks 5 segments: 3, 4, 5, 6, 7" in text, text


def test_a_spool_of_an_older_release_gets_a_witness(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path), "Q")
    append(spool, b"1")
    spool.close()
    Path(spool.place.path, WITNESS).unlink()
    Path(spool.place.path, IDENTITY).write_text(f'{{"id": "{spool.id}", "source": "Q"}}')
    again = Spool(str(tmp_path), "Q")
    again.recover()
    assert (again.id, bodies(again)) == (spool.id, [b"1"])
    last = append(again, b"2")
    again.close()
    Path(spool.place.path, last.name).unlink()
    with pytest.raises(SpoolDamaged, match="segment 2 was published"):
        Spool(str(tmp_path), "Q").recover()


def test_a_spool_belongs_to_a_source_of_one_kind(tmp_path: Path) -> None:
    """Queues and topic filters may have equal names. A spool of an older release gets the kind of its first reader."""
    spool = Spool(str(tmp_path), "A", "mq")
    spool.close()
    Path(spool.place.path, IDENTITY).write_text(f'{{"id": "{spool.id}", "source": "A", "witness": true}}')
    for kind in ("mqtt", "mqtt", ""):
        spool = Spool(str(tmp_path), "A", kind)
        assert spool.kind == "mqtt"
        spool.close()
    with pytest.raises(SpoolDamaged, match="is a spool of the source mqtt, not mq; hint: start with a new spool"):
        Spool(str(tmp_path), "A", "mq")


def test_the_state_of_a_session_survives_the_deletion_of_its_rows(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path), "a/#")
    spool.recover()
    append(spool, b"1", state=b"old")
    append(spool, b"2", state=b"new")
    spool.delete_through(2, keep_state=True)
    spool.close()
    again = Spool(str(tmp_path), "a/#")
    again.recover()
    assert (again.state(), again.first, again.last) == (b"new", 3, 2)
    append(again, b"3", state=b"newest")
    assert (again.state(), bodies(again)) == (b"newest", [b"3"])


def test_the_size_of_the_spool_is_limited(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path), "Q")
    assert spool.wait_below(3, 0)
    append(spool, b"123")
    assert not spool.wait_below(3, 0)
    spool.delete_through(1)
    assert spool.wait_below(3, 0)


def test_columns_of_segments(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path), "Q")
    segment = append(spool, b"1")
    part = pa.schema([pa.field("md", pa.struct([("B", pa.int32())]))])
    (segment_batch,) = read_content(content_of(spool.place, segment.name), part)
    assert segment_batch.to_pylist() == [{"md": {"B": 1}}]
    more = pa.schema([pa.field("md", pa.struct([("C", pa.int32())]))])
    with pytest.raises(SpoolDamaged, match=r"was written without the column md.C: .* hint: let the query finish"):
        list(read_segments(spool.place.path, [segment.name], more))
    with pytest.raises(SpoolDamaged, match=r"cannot be read: .*hint: every worker must reach the directory"):
        list(read_segments(str(tmp_path / "elsewhere"), [segment.name], SCHEMA))


def test_one_process_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "LOCK_WAIT", 0.1)
    spool = Spool(str(tmp_path), "Q")
    with pytest.raises(SpoolBusy, match="in use by process"):
        Spool(str(tmp_path), "Q")
    spool.close()


@pytest.mark.parametrize(
    "name", ["000000000001.spool", "000000000001-2-6-1700000000000-0123456789ab.arrow", "segment.read"]
)
def test_a_spool_with_segments_of_another_version_is_rejected(tmp_path: Path, name: str) -> None:
    """Their messages are no longer on the queue, so ignoring the file would lose them."""
    spool = Spool(str(tmp_path), "a/#")
    spool.close()
    Path(spool.place.path, name).touch()
    with pytest.raises(
        SpoolDamaged, match=r"of another version of mqbridge .* hint: let that version finish the query"
    ):
        Spool(str(tmp_path), "a/#")


def test_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without locks and renames, by its URL."""
    from pyarrow import fs

    (tmp_path / "bucket").mkdir()
    store = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr(spools, "_remote", lambda url: (store, url.partition("://")[2]))
    spool = Spool("s3://bucket/spool", "Q")
    append(spool, b"1")
    append(spool, b"2")
    again = Spool("s3://bucket/spool", "Q")
    again.recover(2, [(1, spool.run)])
    again.delete_through(1)
    again.delete_through(1)
    assert (again.id, bodies(again)) == (spool.id, [b"2"])
    assert len(list((tmp_path / "bucket").glob("spool/*/*.arrow"))) == 1


@pytest.mark.parametrize("position", [None, 8, 200, -20])
def test_a_damaged_segment(position: int | None, tmp_path: Path) -> None:
    spool = Spool(str(tmp_path), "Q")
    file = Path(spool.place.path, append(spool, b"1" * 100).name)
    content = bytearray(file.read_bytes())
    if position is None:
        del content[len(content) // 2 :]
    else:
        content[position] ^= 1
    file.write_bytes(content)
    with pytest.raises(
        SpoolDamaged,
        match=r"is damaged: its checksum is wrong. It has 1 messages of Q \(100 bytes, the first of 1970-01-01 00:00:00"
        r"\+00:00\); hint: they exist nowhere else",
    ):
        bodies(spool)


@pytest.mark.parametrize("content", [b"{", b'{"id":"\xb1","source":"Q"}'])
def test_a_damaged_identity(content: bytes, tmp_path: Path) -> None:
    spool = Spool(str(tmp_path), "Q")
    append(spool, b"1")
    spool.close()
    Path(spool.place.path, IDENTITY).write_bytes(content)
    with pytest.raises(SpoolDamaged, match="is damaged"):
        Spool(str(tmp_path), "Q").recover()
