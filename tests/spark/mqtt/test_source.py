"""The data source `mqtt` in Spark: streaming reads of topic filters, and writes."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from bridge.spark import to_publications
from bridge.spark.mqtt.broker import BROKER_OPTIONS, Broker, broker_of
from bridge.spark.mqtt.source import MqttDataSource
from bridge.spark.mqtt.writer import MSG_ID_PROPERTY, ROW_PROPERTY, WRITE_OPTIONS, sink_options_of
from bridge.spark.options import OptionError, Options
from bridge.spark.schema import MQTT_SCHEMA
from bridge.telemetry.message import Publication
from tests.helpers.mosquitto import Mosquitto
from tests.helpers.patience import PATIENCE
from tests.helpers.publications import publication_of_fields
from tests.spark.mqtt.conftest import Clients, run, stream
from tests.spark.mqtt.spooler import session_made

#: An observer with QoS 0: CONNECT of MQTT 3.1.1, client identifier "o"; SUBSCRIBE to "stops".
CONNECT_AND_SUBSCRIBE = b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01o\x82\x0a\0\x01\0\x05stops\0"


def publish(frame: DataFrame, port: int, **options: Any) -> None:
    frame.write.format("mqtt").options(host="127.0.0.1", port=port, **options).mode("append").save()


def parquet(spark: SparkSession, path: Path) -> list[Row]:
    return spark.read.parquet(str(path)).collect()


def payloads(rows: Sequence[Row]) -> list[bytes]:
    return sorted(bytes(row.payload) for row in rows)


# Reading -------------------------------------------------------------------------------------------------------------


def test_rows_contain_all_properties(
    spark: SparkSession, mosquitto: Mosquitto, clients: Clients, tmp_path: Path
) -> None:
    frame = stream(spark, mosquitto.port, tmp_path / "spool", "all/#,other/+", maxMessagesPerTrigger=3)
    assert frame.schema.names == MQTT_SCHEMA.names
    session_made(mosquitto.port, tmp_path / "spool", "all/#", "other/+")
    full = publication_of_fields(
        topic="all/5",
        payload=b"\0\xff",
        qos=2,
        retain=True,
        client_id="sensor",
        expiry=1000.0,
        response_topic="re/ply",
        correlation_data=b"\0\1",
        content_type="text/plain",
        payload_format_indicator=0,
        users={"site": "Köln"},
        hops=("QM1/one",),
    )
    plain = [Publication(topic=f"all/{qos}", payload=b"%d" % qos, qos=qos) for qos in (1, 2)]
    clients("sender").publish_all(full, *plain, Publication(topic="other/x", payload=b"", qos=1))
    query = run(frame, "parquet", tmp_path / "checkpoint", path=str(tmp_path / "rows"))
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == 4
    assert max(progress["numInputRows"] for progress in query.recentProgress) <= 3
    rows = {row.topic: row for row in parquet(spark, tmp_path / "rows")}
    assert set(rows) == {"all/5", "all/1", "all/2", "other/x"}
    row = rows["all/5"]
    assert (bytes(row.payload), row.qos, row.retain, row.dup) == (b"\0\xff", 2, True, False)
    assert row.message_id > 0 and row.client_id.startswith("mqbridge-spark-") and row.received is not None
    assert row.properties == {"site": "Köln", "mqbridge-clientId": "sensor", "mqbridge-hops": "QM1/one"}
    assert (row.response_topic, bytes(row.correlation_data), row.content_type) == ("re/ply", b"\0\1", "text/plain")
    assert 0 < row.expiry <= 1000 and (row.payload_format, rows["all/1"].payload_format) == (0, None)
    assert rows["all/1"].properties == {} and rows["all/1"].expiry is None
    assert {row.client_id for row in rows.values()} == {rows["all/1"].client_id, rows["other/x"].client_id}
    assert rows["all/1"].client_id != rows["other/x"].client_id


def test_the_broker_keeps_publications_between_runs(
    spark: SparkSession, mosquitto: Mosquitto, clients: Clients, tmp_path: Path
) -> None:
    frame = stream(spark, mosquitto.port, tmp_path / "spool", "between/#", version="3.1.1", embed="true", partitions=2)
    sink = {"path": str(tmp_path / "rows")}
    query = run(frame, "parquet", tmp_path / "checkpoint", **sink)
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == 0
    bodies = [b"%02d" % number for number in range(40)]
    clients("between").publish_all(*[Publication(topic="between/x", payload=body, qos=2) for body in bodies])
    run(frame, "parquet", tmp_path / "checkpoint", **sink)
    assert payloads(parquet(spark, tmp_path / "rows")) == bodies


def test_large_messages_are_read_through_the_spool_file_in_batches_by_size(
    spark: SparkSession, mosquitto: Mosquitto, clients: Clients, tmp_path: Path
) -> None:
    frame = stream(spark, mosquitto.port, tmp_path / "spool", "large", maxBytesPerTrigger="2500 KB", qos=1)
    session_made(mosquitto.port, tmp_path / "spool", "large")
    bodies = [bytes([number]) * 1_000_000 for number in range(5)]
    clients("large").publish_all(*[Publication(topic="large", payload=body, qos=1) for body in bodies])
    query = run(frame, "parquet", tmp_path / "checkpoint", path=str(tmp_path / "rows"))
    counts = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert sum(counts) == 5 and max(counts) == 2
    assert payloads(parquet(spark, tmp_path / "rows")) == bodies


def test_a_broker_that_stops_and_returns(spark: SparkSession, tmp_path: Path) -> None:
    """A running query, and a writer in the middle of its rows, wait for it."""
    rows = 20_000
    broker = Mosquitto(tmp_path).start()
    frame = stream(spark, broker.port, tmp_path / "spool", "stops")
    writer = frame.writeStream.format("memory").queryName("stops").option("checkpointLocation", str(tmp_path / "c"))
    query = writer.start()
    try:
        query.processAllAvailable()

        def stop_amid() -> None:
            with socket.create_connection(("127.0.0.1", broker.port)) as early:
                early.settimeout(PATIENCE)
                early.sendall(CONNECT_AND_SUBSCRIBE)
                received = 0
                while received < 20_000:
                    received += len(early.recv(4096))
            broker.stop()
            broker.start()

        with ThreadPoolExecutor(1) as pool:
            stopped = pool.submit(stop_amid)
            source = spark.range(rows).selectExpr("'stops' AS topic", "cast(id AS STRING) AS payload").coalesce(1)
            publish(source, broker.port, qos=2)
            stopped.result(PATIENCE)
        numbers: dict[str, int] = {}
        while len(set(numbers.values())) < rows:
            query.processAllAvailable()
            # The receiver can recognize repeated publications of the writer.
            numbers = {row.properties[ROW_PROPERTY]: int(row.payload) for row in spark.table("stops").collect()}
        assert len(numbers) == rows
    finally:
        query.stop()
        broker.stop()


@pytest.mark.parametrize(
    "options, reason",
    [
        ({"topic": "a", "spol": "x"}, r"knows no option spol \(did you mean spool\?\)"),
        ({"topic": "a", "password": "secret"}, r"has no option password: options are visible in plans .* passwordFile"),
        ({"topic": "a"}, r"option spool: required for streaming reads; hint: set it to a directory"),
        ({"topic": "a", "spool": "s3a://b/x"}, r"option spool: expected a local or mounted path"),
        ({"spool": "x"}, r"option topic: expected a topic filter.*, found none"),
        ({"topic": "a/#/b", "spool": "x"}, r"in 'a/#/b' # must be at the end"),
        ({"topic": "a/#,a/b", "spool": "x"}, r"filters that do not overlap \(a/# and a/b do"),
        ({"topic": "a/#,$share/g/a/b", "spool": "x"}, r"filters that do not overlap \(a/# and \$share/g/a/b do"),
        ({"topic": "$share/g", "spool": "x"}, r"in '\$share/g' .*a topic filter must follow the share name"),
        ({"topic": "$share/g/a+", "spool": "x"}, r"in '\$share/g/a\+' \+ must be alone in its level"),
        ({"topic": "a,b", "spool": "x", "clientId": "one"}, r"option clientId: .*\{mapping\} in it"),
        ({"topic": "a", "spool": "x", "qos": "3"}, r"option qos: expected an integer from 0 to 2, found '3'"),
        ({"topic": "a", "spool": "x", "quietPeriod": "soon"}, r"option quietPeriod: expected .*, found 'soon'"),
        ({"topic": "a", "spool": "x", "version": "4"}, r"option version: expected 5 or 3.1.1, found '4'"),
        ({"topic": "a", "spool": "x", "session": "no"}, r"option session: expected durable or clean, found 'no'"),
        ({"topic": "a", "spool": "x", "link": "L"}, r"option link: expected no value without config"),
    ],
)
def test_invalid_reads_are_rejected(options: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        MqttDataSource({"host": "127.0.0.1", **options}).streamReader(MQTT_SCHEMA)


def test_errors_are_reported_by_spark(spark: SparkSession) -> None:
    """By load(), before the query starts."""
    with pytest.raises(AnalysisException, match=r"option spool: required"):
        spark.readStream.format("mqtt").options(host="127.0.0.1", topic="a").load()
    with pytest.raises(AnalysisException, match=r"is read in streams: use spark.readStream"):
        spark.read.format("mqtt").options(host="127.0.0.1", topic="a", spool="s").load().collect()


# Writing -------------------------------------------------------------------------------------------------------------


def test_publications_go_from_topic_to_topic(
    spark: SparkSession, mosquitto: Mosquitto, clients: Clients, tmp_path: Path
) -> None:
    """All properties of a publication, each QoS, and RETAIN."""
    frame = stream(spark, mosquitto.port, tmp_path / "spool", "from/#").selectExpr(
        "*", "concat('to/', substring_index(topic, '/', -1)) AS goal"
    )
    frame = frame.drop("topic").withColumnRenamed("goal", "topic")
    session_made(mosquitto.port, tmp_path / "spool", "from/#")
    sent = [
        publication_of_fields(
            topic=f"from/{qos}", payload=b"\0\xff%d" % qos, qos=qos, retain=qos == 1, client_id="sensor", expiry=1000.0,
            response_topic="re/ply", correlation_data=b"\0\1", content_type="text/plain", payload_format_indicator=qos - 1,
            users={"site": "Köln"}, hops=("QM1/one", "QM2/two"),
        )
        for qos in (1, 2)
    ]  # fmt: skip
    sent.append(Publication(topic="from/0", payload=b"", qos=1))
    receiver = clients("receiver", topic_filter="to/#", qos=2)
    clients("sender").publish_all(*sent)
    run(frame, "mqtt", tmp_path / "checkpoint", host="127.0.0.1", port=mosquitto.port, identity="false")
    received = {publication.topic: publication for publication in receiver.take_all(3)}
    for publication in sent:
        back = received[publication.topic.replace("from", "to")]
        assert 900 < (back.expiry or 0) <= 1000 or back.expiry == publication.expiry
        back.expiry, back.packet_id, back.topic = publication.expiry, 0, publication.topic
        back.client_id = publication.client_id if back.client_id == "test" else back.client_id
        assert back == publication
    late = clients("late", topic_filter="to/#")
    assert [publication.topic for publication in late.take_all(1)] == ["to/1"]


def test_rows_have_identifiers(spark: SparkSession, mosquitto: Mosquitto, clients: Clients) -> None:
    receiver = clients("identity", topic_filter="identity", qos=2)
    frame = spark.createDataFrame(
        [("a", 0, bytearray(b"\1\2"), None), ("b", 1, None, {"x": "1"}), ("c", 2, None, None)],
        "payload string, qos int, msg_id binary, properties map<string,string>",
    ).coalesce(1)
    publish(frame, mosquitto.port, topic="identity", writeId="once")
    publications = sorted(receiver.take_all(3), key=lambda publication: publication.payload)
    assert [(publication.payload, publication.qos) for publication in publications] == [(b"a", 0), (b"b", 1), (b"c", 2)]
    assert [publication.user_properties for publication in publications] == [
        {ROW_PROPERTY: "once/0/0/0", MSG_ID_PROPERTY: "0102"},
        {ROW_PROPERTY: "once/0/0/1", "x": "1"},
        {ROW_PROPERTY: "once/0/0/2"},
    ]


def test_topics_of_templates(spark: SparkSession, mosquitto: Mosquitto, clients: Clients) -> None:
    receiver = clients("templates", topic_filter="lines/#", qos=1)
    frame = spark.sql(
        "SELECT 7 AS line, 'avg' AS kind, '1' AS payload, CAST(NULL AS STRING) AS topic"
        " UNION ALL SELECT 8, NULL, '2', 'lines/own' UNION ALL SELECT 9, NULL, '3', NULL"
    ).coalesce(1)
    publish(frame, mosquitto.port, topic="lines/{line}/{kind|upper|default:'none'}")
    assert [(publication.topic, publication.payload) for publication in receiver.take_all(3)] == [
        ("lines/7/AVG", b"1"),
        ("lines/own", b"2"),
        ("lines/9/none", b"3"),
    ]


def test_rejected_rows(spark: SparkSession, mosquitto: Mosquitto, clients: Clients, tmp_path: Path) -> None:
    frame = spark.sql(
        "SELECT 'refused/1' AS topic, 'a' AS payload, 1 AS qos UNION ALL SELECT 'refused/#', 'b', 1"
        " UNION ALL SELECT 'refused/2', 'c', 7 UNION ALL SELECT NULL, 'd', 1"
        " UNION ALL SELECT 'refused/3', repeat('e', 3000000), 1 UNION ALL SELECT 'refused/4', 'f', 2"
    ).coalesce(1)
    receiver = clients("refused", topic_filter="refused/#", qos=2)
    with pytest.raises(PySparkException, match=r"to topic 'refused/#' cannot be published: .*Topic Name invalid"):
        publish(frame, mosquitto.port)
    assert {publication.payload for publication in receiver.take_all(2)} == {b"a", b"f"}
    publish(frame, mosquitto.port, deadLetter=str(tmp_path), writeId="dead")
    assert {publication.payload for publication in receiver.take_all(2)} == {b"a", b"f"}
    reasons = {row.payload[:1]: row.reason for row in parquet(spark, tmp_path)}
    assert sorted(reasons) == ["b", "c", "d", "e"]
    assert "0x90" in reasons["b"] and "qos: expected 0, 1 or 2, found 7" in reasons["c"]
    assert "its topic is null" in reasons["d"] and "Packet too large" in reasons["e"]


def test_publications_of_a_mapping_are_written(
    spark: SparkSession, mosquitto: Mosquitto, clients: Clients, tmp_path: Path
) -> None:
    """All columns of `to_publications`, and rows that it rejects."""
    receiver = clients("mapped", topic_filter="mapped/#", qos=2)
    frame = spark.sql("SELECT 'mapped/1' AS topic, 'a' AS body UNION ALL SELECT 'mapped/#', 'b'").coalesce(1)
    mapped = to_publications(frame)
    with pytest.raises(PySparkException, match=r"it is rejected from 'mapped/#': .*where refusal IS NULL"):
        publish(mapped, mosquitto.port)
    assert [publication.payload for publication in receiver.take_all(1)] == [b"a"]
    publish(mapped, mosquitto.port, deadLetter=str(tmp_path))
    assert [publication.payload for publication in receiver.take_all(1)] == [b"a"]
    assert [(row.payload, row.refusal.source) for row in parquet(spark, tmp_path)] == [(b"b", "mapped/#")]
    publish(mapped.where("refusal IS NULL"), mosquitto.port)
    assert [(publication.topic, publication.payload) for publication in receiver.take_all(1)] == [("mapped/1", b"a")]


@pytest.mark.parametrize(
    "options, ddl, reason",
    [
        ({"topc": "t"}, "payload string", r"knows no option topc \(did you mean topic\?\)"),
        ({}, "payload string", r"column topic is missing, and there is no option topic"),
        ({"topic": "t"}, "body string", r"unknown column body .*; column payload is missing"),
        ({"topic": "{line}"}, "payload string", r"topic contains \{line\}, which is not a column \(payload\)"),
        ({"topic": "{line"}, "payload string", r"option topic: .*: } is missing"),
        (
            {"topic": "t", "clientId": "one"},
            "payload string",
            r"option clientId: .*each batch of Spark connects by itself",
        ),
    ],
)
@pytest.mark.usefixtures("spark")  # Spark parses the schema.
def test_invalid_writes_are_rejected(options: dict[str, str], ddl: str, reason: str) -> None:
    source = MqttDataSource({"host": "127.0.0.1", **options})
    with pytest.raises(OptionError, match=reason):
        source.writer(StructType.fromDDL(ddl), False)


def test_passwords_are_read_where_the_connection_is_established(tmp_path: Path) -> None:
    file = tmp_path / "password"
    sink = sink_options_of(
        Options("mqtt", {"host": "h", "user": "u", "passwordFile": str(file), "topic": "t"}, WRITE_OPTIONS),
        StructType([StructField("payload", StringType())]),
    )
    with pytest.raises(OptionError, match=r"no password for broker h: password_file .*: No such file"):
        sink.broker.connection("s")
    file.write_text("secret\n")
    sink.broker.connection("s")
    assert b"secret" not in pickle.dumps(sink)


def test_links_of_the_configuration_file(tmp_path: Path) -> None:
    file = tmp_path / "bridge.yaml"
    file.write_text("links:\n  hive:\n    host: hive.example\n    client_id: fixed\nchannels:\n  - port: 1999\n")

    def broker(**options: str) -> Broker:
        return broker_of(Options("mqtt", {"config": str(file), **options}, BROKER_OPTIONS))

    assert (broker(link="hive").place, broker(link="hive").client_id("s")) == ("hive.example:1883", "fixed")
    assert broker(link="hive", clientId="x-{mapping}").client_id("s") == "x-s"
    assert (broker(link="local").place, broker(link="local").link.version) == ("127.0.0.1:1999", "3.1.1")
    for options, reason in (
        ({}, r"option link: expected the name of a link in the file that config names: hive, local"),
        ({"link": "hiv"}, r"option link: expected .*hive, local .*, found 'hiv'"),
        ({"link": "hive", "port": "1"}, r"option port: expected no value, because the file in the option config"),
    ):
        with pytest.raises(OptionError, match=reason):
            broker(**options)
