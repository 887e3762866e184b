"""The source `mq` puts the rows of a mapping in the same way as the service: the messages on the queues are equal, byte for
byte.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from bridge.mapping.rule import rule_of
from bridge.mq.dead_letter import DeadLetters
from bridge.mq.message_producer import MessageProducer
from bridge.mq.mqi import Got
from bridge.spark.mapping import StandardToMq, ToMessages, ToMq
from bridge.spark.mq.writer import WRITE_OPTIONS, put_batch, sink_options_of
from bridge.spark.options import Options
from bridge.spark.task import BatchIdentity
from bridge.telemetry.conversion import received_message
from bridge.telemetry.message import Destination, Publication, Unmappable
from bridge.wire import cmqc
from bridge.wire.mq import MQDLH, MQXQH, decode_chain
from tests.helpers.mq_applications import served
from tests.helpers.staging import staged_batch
from tests.spark.conftest import Queues
from tests.spark.test_mapping import SCHEMA, ToMqMapping, publication

QUEUES = ("Q", "Q.1", "Q.2", "WAITING", "QM2")
REFUSED = "REFUSED"
TOPICS = ("plant/1/t", "plant/2/t", "lines/1", "lines/2", "lines/no name")
_numbers = itertools.count()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queues]:
    """A queue manager with a command server, which clears retained publications."""
    directory = tmp_path_factory.mktemp("written")
    with served(directory, stand_in=True):
        queues = Queues(directory)
        for queue in (*QUEUES, REFUSED):
            queues.mqsc(f"DEFINE QLOCAL('{queue}') MAXDEPTH(10000) {'USAGE(XMITQ)' if queue == 'QM2' else ''}")
        yield queues


def rule(**mapping: Any) -> Any:
    plant = {"from": {"mqtt": "plant/{line}/{metric...}"}, "to": {"queue": "Q"}}
    return rule_of("m1", ToMqMapping.model_validate(plant | mapping), "QM1")


RULES: dict[str, ToMq] = {
    "standard to the topic": StandardToMq(None),
    "standard to a queue": StandardToMq(Destination("Q")),
    "remote queue": rule(to={"queue": "AWAY.{line}", "queue_manager": "QM2"}),
    "retained always": rule(to={"topic": "lines/{line}"}, attributes={"retained": "always"}),
    "retained topic without RFH2": rule(to={"topic": "lines/{line}"}, attributes={"rfh2": False}),
    "identifiers": rule(
        attributes={
            "msg_id": "{line}/{messageId|default:'none'}", "correl_id": "{metric}", "reply_to_queue": "R.{line}",
            "reply_to_queue_manager": "QM9", "user_identifier": "{clientId|default:'nobody'}", "priority": 7,
            "persistence": "persistent", "expiry": 5000.5, "format": "string",
            "properties": {"site": "{usr.site|default:'none'}", "line-id": "{line}"},
        }
    ),
    "message properties": rule(
        attributes={"rfh2": False, "format": "MYFORMAT", "persistence": {"0": "as-queue", "1": "persistent",
                    "2": "not-persistent"}, "properties": {"line-id": "{line}", "seven": "7"}}
    ),
    "message properties of a remote queue": rule(to={"queue": "X", "queue_manager": "QM2"}, attributes={"rfh2": False}),
    "requests": rule(to={"queue": "Q.{line}", "requests_queue": "WAITING"}, attributes={"reply_to_queue": "ANSWERS"}),
    "requests without RFH2": rule(
        to={"queue": "Q", "requests_queue": "WAITING"}, attributes={"reply_to_queue": "ANSWERS", "rfh2": False}
    ),
    "text": rule(payload={"type": "text", "ccsid": 500}, attributes={"rfh2": False}),
}  # fmt: skip


def row(topic: str, payload: bytes, **more: Any) -> dict[str, Any]:
    return dict.fromkeys(SCHEMA.names) | {"topic": topic, "payload": payload} | more


ROWS = [
    row("plant/1/t", b"1", qos=1, packet_id=7, client_id="dev-1", user="operator"),
    row("plant/1/t", b"kept", qos=1, packet_id=8, client_id="dev-1", user="operator", retain=True),
    row("plant/2/t", b"gone", qos=2, packet_id=65_535, retain=True, content_type="text/plain"),
    row("plant/2/t", b"", qos=2, packet_id=9, retain=True),
    row("plant/1/t", b"", qos=0, retain=True, client_id="dev <&> 2"),
    row(
        "plant/1/t", b"kept again", retain=True, properties=[("site", "Köln"), ("a-b", "1"), ("mqbridge-hops", "QM0/a")]
    ),
    row(
        "plant/2/t", b'{"t": 21.5}', qos=1, packet_id=10, response_topic="re/ply", correlation_data=b"abc", expiry=3000
    ),
    row("plant/1/t", b'{"t": 22}', qos=1, packet_id=11, response_topic="re/ply", correlation_data=b"x" * 30),
    row("plant/1/t", b'{"t": 23}', qos=1, packet_id=12, response_topic="re/ply", client_id="dev-2"),
    row("plant/2/" + "long" * 20, "grün".encode(), qos=1, packet_id=13, properties=[("usr.site", "")]),
    row("plant/no name/t", "☃".encode(), qos=1, packet_id=14, client_id="dev-1", properties=[("site", "Ulm")]),
    row("plant/1/t", b"\xff\0", qos=2, packet_id=15),
]


def by_the_service(site: Queues, mapping_rule: ToMq) -> None:
    """Do the same as the thread of a mapping (`bridge.service.mappings.runner`)."""
    with_connection = Queues(site.directory).connection
    producer, letters = MessageProducer(with_connection), DeadLetters(with_connection, REFUSED, "m1", "source")
    for columns in ROWS:
        received_publication: Publication = publication(columns)
        try:
            (mapped,) = mapping_rule.messages(received_publication) or (None,)
        except Unmappable as error:
            original = received_message(received_publication)
            letters.put(original.md, original.data, error.reason, str(error))
            continue
        if mapped is not None:
            producer.put(mapped)
    with_connection.commit()
    producer.committed()
    with_connection.disconnect()


def by_the_writer(site: Queues, mapping_rule: Any) -> None:
    function = ToMessages(mapping_rule)
    options = Options("mq", site.options | {"refused": REFUSED}, WRITE_OPTIONS)
    sink = sink_options_of(options, from_arrow_schema(function.schema))
    batch = pa.RecordBatch.from_pylist(ROWS, schema=SCHEMA)
    batches = list(function([batch.slice(0, 5), batch.slice(5)]))
    put_batch(sink, staged_batch(BatchIdentity(f"written {next(_numbers)}", 0), batches))


def messages_put(site: Queues, put: Callable[[Queues, Any], None], mapping_rule: Any) -> dict[str, list[Any]]:
    """Return the messages on each queue after the rows were put, and the retained publications of the topics."""
    # The messages have the CorrelId that the publisher gave them.
    subscription, handle = site.subscribe("#", cmqc.MQSO_SET_CORREL_ID)
    put(site, mapping_rule)
    messages = {queue: site.take(queue) for queue in (*QUEUES, REFUSED)}
    messages["published"] = site.take_from(handle)
    site.connection.close(subscription)
    messages["retained"] = []
    for topic in TOPICS:
        subscription, handle = site.subscribe(topic, cmqc.MQSO_SET_CORREL_ID)
        messages["retained"] += site.take_from(handle)
        site.connection.close(subscription)
    for topic in TOPICS:
        site.connection.command(f"CLEAR TOPICSTR('{topic}') CLRTYPE(RETAINED)")
    ids = {message.md.MsgId for message in messages["WAITING"]}
    assert ids == {
        message.md.MsgId for queue in ("Q", "Q.1", "Q.2") for message in messages[queue] if message.md.MsgId in ids
    }
    own_msg_id = not isinstance(mapping_rule, StandardToMq) and mapping_rule.config.attributes.msg_id is not None
    return {
        queue: [facts(message, ids, own_msg_id and queue == "Q") for message in gots]
        for queue, gots in messages.items()
    }


#: Fields of the MQMD that mappings set.
FIELDS = (
    "Report",
    "MsgType",
    "Encoding",
    "CodedCharSetId",
    "Format",
    "Priority",
    "Persistence",
    "CorrelId",
    "ReplyToQ",
    "ReplyToQMgr",
    "UserIdentifier",
)


def facts(message: Got, waiting: set[bytes], given_msg_id: bool) -> dict[str, Any]:
    """Return a message without fields that depend on time or application. `waiting` are the MsgIds of stored requests."""
    md, data = message.md, message.data
    known: dict[str, Any] = {name: getattr(md, name) for name in FIELDS}
    if md.CorrelId in waiting:
        known["CorrelId"] = "the MsgId of a kept request"
    if given_msg_id:
        known["MsgId"] = md.MsgId
    known["Expiry"] = md.Expiry if md.Expiry < 0 else round(md.Expiry / 600)  # it decreases
    chain = decode_chain(md.Format, md.Encoding, md.CodedCharSetId, data)
    first = chain.headers[0] if chain.headers else None
    if isinstance(first, MQXQH):
        inner = first.MsgDesc
        known["to"] = (first.RemoteQName, first.RemoteQMgrName, *(getattr(inner, name) for name in FIELDS))
        del known["CorrelId"]  # on the transmission queue it is the MsgId
        data = data[cmqc.MQXQH_LENGTH_1 :]
    if isinstance(first, MQDLH):
        known["reason"] = (first.Reason, first.Format, first.CodedCharSetId, first.Encoding, first.DestQMgrName)
        data = data[cmqc.MQDLH_LENGTH_1 :]
    return known | {"data": data}


@pytest.mark.parametrize("name", RULES)
def test_the_writer_puts_the_same_messages_as_the_service(site: Queues, name: str) -> None:
    mapping_rule = RULES[name]
    expected = messages_put(site, by_the_service, mapping_rule)
    assert sum(map(len, expected.values())) > 4
    assert messages_put(site, by_the_writer, mapping_rule) == expected
