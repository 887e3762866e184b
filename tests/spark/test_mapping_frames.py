"""Mappings of whole frames: rules, columns, and errors before a query runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mqbridge
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from bridge import spark as package
from bridge.config.mapping import ToMqMapping
from bridge.config.problems import ConfigurationError
from bridge.spark import to_messages, to_publications
from bridge.spark.options import OptionError
from bridge.wire import cmqc
from bridge.wire.mq import decode_chain, decode_rfh2

CONFIGURATION = """
queue_manager: {name: QM1}
links: {plant: {host: broker}}
mappings:
  in: {from: {mqtt: "plant/{line}"}, to: {queue: "LINE.{line}"}, filter: {min_size: 1}}
  plain: {from: {mqtt: "plant/{line}"}, to: {queue: "LINE.{line}"}, attributes: {rfh2: false}}
  out: {from: {queue: Q}, to: {mqtt: "out/{usr.line}", link: plant}}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "bridge.yaml"
    path.write_text(CONFIGURATION)
    return path


def publications(spark: SparkSession) -> Any:
    rows = [("plant/1", "21.5", 1, 7, 100), ("plant/2", "", 1, 8, 101), ("plant/no name", "1", 0, 0, 102)]
    return spark.createDataFrame(rows, "topic string, payload string, qos tinyint, message_id int, time int")


def test_publications_to_messages_to_publications(spark: SparkSession, config: Path) -> None:
    messages = to_messages(publications(spark), "in", config=config, keep=["time"])
    mapped, refused = sorted(messages.collect(), key=lambda row: row.time)
    assert (mapped.queue, mapped.body, mapped.time, mapped.md.Format) == ("LINE.1", b"21.5", 100, "MQHRF2")
    assert (refused.queue, refused.body, refused.time) == (None, b"1", 102)
    assert (refused.refusal.reason, refused.refusal.source) == (2152, "plant/no name")
    back = to_publications(messages.where("refusal IS NULL"), keep=["time"])
    (row,) = back.collect()
    assert (row.topic, row.payload, row.qos, row.time, row.refusal) == ("plant/1", b"21.5", 1, 100, None)
    assert row.properties == {"mqbridge-hops": "QM1/in"}


def test_mappings_look_up_tables(spark: SparkSession, tmp_path: Path) -> None:
    """The workers get the rows from the driver. The file need not exist there, and may change."""
    file, table = tmp_path / "bridge.yaml", tmp_path / "lines.csv"
    table.write_text("id,queue,unit\n1,ONE,C\n")
    file.write_text(
        "tables: {lines: {file: lines.csv, key: id}}\nmappings:\n"
        '  m: {from: {mqtt: "plant/{line}"}, to: {queue: "{lines[line].queue}"}, filter: {min_size: 1}, payload: {transform:'
        ' {u: "{lines[line].unit}", v: {expr: "payload * 2.0"}, known: {expr: line in lines}}}}\n'
    )
    messages = to_messages(publications(spark), "m", config=file, keep=["time"])
    table.unlink()
    mapped, refused = sorted(messages.collect(), key=lambda row: row.time)
    assert (mapped.queue, mapped.body) == ("ONE", b'{"u":"C","v":43.0,"known":true}')
    assert (refused.queue, refused.time, refused.refusal.reason) == (None, 102, cmqc.MQRC_PROPERTY_NOT_AVAILABLE)
    assert "table lines has no row 'no name'" in refused.refusal.sentence


def line(queues: Any) -> str:
    """Return the queue to which messages of plant/1 are mapped, empty."""
    queues.mqsc("DEFINE QLOCAL('LINE.1') NOREPLACE")
    queues.take("LINE.1")
    return "LINE.1"


def check_written(queues: Any, refused: str) -> None:
    """Return the result of the mapping `plain` for `publications`: messages with their properties, and rejected rows."""
    (message,) = queues.take("LINE.1")
    header = decode_rfh2(message.data)
    folders = {folder.name: folder.content for folder in header.folders}
    assert (folders["mqtt"], message.data[header.StrucLength :]) == (
        {"qos": 1, "msgid": 7, "topic": "plant/1"},
        b"21.5",
    )
    (letter,) = queues.take(refused)
    chain = decode_chain(letter.md.Format, letter.md.Encoding, letter.md.CodedCharSetId, letter.data)
    dlh, rfh2 = chain.headers
    assert (dlh.Reason, dlh.DestQName.rstrip(b" \0"), chain.body) == (
        cmqc.MQRC_OBJECT_NAME_ERROR,
        b"plant/no name",
        b"1",
    )
    assert {folder.name: folder.content for folder in rfh2.folders}["mqps"] == {"Top": "plant/no name"}


def test_all_results_of_a_mapping_are_written(spark: SparkSession, queues: Any, config: Path) -> None:
    refused = queues.queue()
    line(queues)
    messages = to_messages(publications(spark).where("payload <> ''"), "plain", config=config)
    writer = messages.write.format("mq").options(**queues.options).mode("append")
    with pytest.raises(PySparkException, match=r"cannot be put: it is rejected from 'plant/no name': .*refused"):
        writer.save()
    queues.take("LINE.1")  # of another partition, it may have been put
    writer.option("refused", refused).save()
    check_written(queues, refused)


def test_programs_import_all_from_mqbridge() -> None:
    names = ["MqDataSource", "MqttDataSource", "from_record", "register", "to_messages", "to_publications", "to_record"]
    assert sorted(mqbridge.__all__) == sorted(package.__all__) == names
    for name in names:
        assert getattr(mqbridge, name) is getattr(package, name)
    for module in (mqbridge, package):
        with pytest.raises(AttributeError, match="has no attribute 'to_message'"):
            _ = module.to_message


def test_a_column_determines_the_mapping(spark: SparkSession) -> None:
    frame = publications(spark).withColumn("queue", f.lit("Q.1"))
    assert {row.queue for row in to_messages(frame).select("queue").collect()} == {"Q.1"}


MAPPING = ToMqMapping.model_validate({"from": {"mqtt": "#"}, "to": {"queue": "Q"}})
OF_PUBLISHERS = ToMqMapping.model_validate({"from": {"mqtt": "#"}, "to": {"queue": "Q", "as": "publisher"}})


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"profile": "in"}, "config is needed"),
        ({"profile": "no", "config": True}, r"has no mapping 'no' \(mappings: in, plain, out\)"),
        ({"profile": "out", "config": True}, "mapping out publishes to MQTT; hint: use to_publications"),
        ({"profile": "in", "config": True, "queue": "Q"}, "queue: expected no value, because the mapping specifies"),
        ({"profile": "in", "config": True, "name": "m"}, "name: expected no value"),
        ({"profile": MAPPING}, "name and queue_manager are required"),
        ({"profile": OF_PUBLISHERS, "name": "m", "queue_manager": "QM1"}, "mapping m has to.as: publisher"),
        ({"queue": "Q", "topic": "t"}, "topic: expected no value, because queue is set"),
        ({"queue": "no name"}, "queue: 'no name' is not a valid name for a queue"),
        ({"topic": "a/+"}, "topic: 'a/\\+' is not a valid topic name"),
        ({"queue_manager": "QM1"}, "queue_manager: expected no value, with the profile standard"),
        ({"keep": ["when"]}, "has no column when"),
        ({"keep": ["topic"]}, "keep: expected other names than those of the result, found topic"),
    ],
)
def test_frames_to_messages_are_rejected_before_a_query_runs(
    spark: SparkSession, config: Path, arguments: dict[str, Any], sentence: str
) -> None:
    keywords = arguments | ({"config": config} if "config" in arguments else {})
    with pytest.raises(OptionError, match=sentence):
        to_messages(publications(spark), **keywords)


def test_frames_to_publications_are_rejected_before_a_query_runs(spark: SparkSession, config: Path) -> None:
    with pytest.raises(OptionError, match="mapping in puts messages to MQ; hint: use to_messages"):
        to_publications(publications(spark).withColumnRenamed("payload", "body"), "in", config=config)
    with pytest.raises(OptionError, match="has no column body"):
        to_publications(publications(spark))
    with pytest.raises(OptionError, match="topic: '' is not a valid topic name"):
        to_publications(publications(spark), topic="")
    config.write_text("mappings: {in: {}}")
    with pytest.raises(ConfigurationError):
        to_messages(publications(spark), "in", config=config)
