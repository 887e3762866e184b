"""The examples of docs/how-to/pipelines.md about MQTT, replay and backfill, with other sources and destinations."""

from __future__ import annotations

import re

from tests.helpers.mosquitto import Mosquitto, publish
from tests.spark.conftest import ROOT
from tests.spark.flow.conftest import Bench


def example(bench: Bench, heading: str, **places: object) -> None:
    """Write the first configuration below a heading, with other sources and destinations."""
    with open(f"{ROOT}/docs/how-to/pipelines.md", encoding="utf-8") as page:
        text = re.search(rf"^## {heading}\n.*?^```yaml\n(.*?)^```", page.read(), re.MULTILINE | re.DOTALL)
    assert text is not None
    written = text[1]
    for name, place in places.items():
        assert name.replace("_", " ") in written, name
        written = written.replace(name.replace("_", " "), str(place))
    bench.write(written)


def test_mqtt_to_parquet(bench: Bench, broker: Mosquitto) -> None:
    out = bench.directory / "out"
    places = {"archive:_sensors": f"archive: {out}", "broker.example.com": f"127.0.0.1, port: {broker.port}"}
    example(bench, "From MQTT to Parquet", **places)
    bench.run()  # creates the session
    for topic, reading in (("sensors/1", "21.5"), ("sensors/2", "broken")):
        publish(broker.port, topic, reading, qos=1)
    bench.run()
    rows = bench.spark.read.parquet(str(out)).collect()
    assert sorted((row.topic, row.value) for row in rows) == [("sensors/1", 21.5), ("sensors/2", None)]
    assert bench.sums() == {"in": 2, "out": 2}


def test_replay_and_backfill_of_an_archive(bench: Bench) -> None:
    """Messages of three hours are written to files. Those of two hours are put again. The backfill table contains all."""
    events, again, sites = bench.directory / "events", bench.queues.queue(), bench.directory / "sites"
    rows = bench.spark.sql("""
        SELECT encode(concat('event ', id), 'UTF-8') AS body, 'MQSTR' AS format, 1208 AS ccsid,
               'Q' AS queue, X'' AS headers,
               map('usr', map('site', IF(id = 2, 'south', 'north'))) AS rfh2,
               timestamp '2026-01-31 13:30:00' + make_interval(0, 0, 0, 0, CAST(id AS INT)) AS put_time
        FROM range(3)
    """)
    dated = rows.selectExpr("*", "date_format(put_time, 'yyyy-MM-dd') AS date", "date_format(put_time, 'HH') AS hour")
    dated.write.partitionBy("date", "hour").parquet(str(events))
    example(bench, "Replay", **{"archive:_events": f"archive: {events}", "PLANT.EVENTS.AGAIN": again})
    bench.run()
    assert sorted(body[-7:] for body in bench.queues.bodies(again)) == [b"event 1", b"event 2"]
    example(bench, "Backfill", **{"archive:_events": f"archive: {events}", "path:_sites": f"path: {sites}"})
    bench.run()
    replayed = bench.spark.read.parquet(str(sites)).collect()
    assert sorted((row.site, row.text) for row in replayed) == [
        ("north", "event 0"),
        ("north", "event 1"),
        ("south", "event 2"),
    ]
    # Another file arrives later.
    dated.where("hour = '13'").selectExpr("* EXCEPT (body)", "encode('later', 'UTF-8') AS body").write.mode(
        "append"
    ).partitionBy("date", "hour").parquet(str(events))
    bench.run()
    assert "later" in {row.text for row in bench.spark.read.parquet(str(sites)).collect()}
