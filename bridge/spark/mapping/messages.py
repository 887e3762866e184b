"""Vectorized mapping of publications to MQ messages.

Rows that agree in all inputs of a rule except the message id form a group. The rule maps one row of each group, and numpy
derives the others: they have the same MQMD, and an MQRFH2 that differs only in the digits of the message id. Rules that
read the payload map each row separately.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.link.outbox import CLIENT_ID, HOPS
from bridge.mapping.attributes import UsedFields, used_fields_of
from bridge.mapping.message_view import document_of, in_ccsid
from bridge.mapping.rendered import queue_name, topic_string, user_identifier
from bridge.mapping.rule import ToMqRule
from bridge.mqtt.packets import PublishProperties
from bridge.spark.columns import MD_TYPE, PROPERTY_COLUMNS, TEXT_MAP, Column, schema_of
from bridge.spark.mapping.row_groups import RowGroups, refusal
from bridge.spark.mq.envelope import characters
from bridge.spark.schema import MQTT_SCHEMA, REFUSAL
from bridge.telemetry.conversion import message_of, received_message
from bridge.telemetry.message import CCSID_UTF8, Destination, MappedMessage, Message, Publication, Unmappable
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

#: Fields of the MQMD that a mapping sets.
_SET_FIELDS: Final = (
    "Report", "MsgType", "Expiry", "CodedCharSetId", "Format", "Priority", "Persistence", "MsgId", "CorrelId", "ReplyToQ",
    "ReplyToQMgr", "UserIdentifier",
)  # fmt: skip
MAPPED_MD_TYPE: Final = pa.struct([field for field in MD_TYPE if field.name in _SET_FIELDS])
KEPT_REQUEST_TYPE: Final = pa.struct(
    [pa.field("queue", pa.string()), pa.field("md", MAPPED_MD_TYPE), pa.field("data", pa.binary())]
)
_BODY: Final = (
    Column("md", MAPPED_MD_TYPE, "fields of the MQMD that mappings set; null and all others: as MQMD_DEFAULT has them"),
    Column(
        "headers",
        pa.binary(),
        "MQRFH2, or empty; headers and body are the message data. Of a rejected row: by the integration tables, or null",
    ),
    Column("body", pa.binary(), "payload; of a rejected row: unchanged"),
    Column(
        "properties",
        TEXT_MAP,
        "message properties of a message without MQRFH2, by full name; mqtt.qos and mqtt.msgid are"
        " MQTYPE_INT32, all others MQTYPE_STRING",
    ),
    Column("retain", pa.bool_(), "whether it is put with MQPMO_RETAIN"),
    Column("clear", pa.bool_(), "whether it clears the retained publication of its topic"),
    Column(
        "kept_request",
        KEPT_REQUEST_TYPE,
        "record to put on requests_queue before the request, for mapping the reply; it has the MsgId of the request",
    ),
    REFUSAL,
)
QUEUE_MESSAGE_COLUMNS: Final = (
    Column("queue", pa.string(), "queue to put to"),
    Column("queue_manager", pa.string(), "its queue manager (ObjectQMgrName); null: the one connected to"),
    *_BODY,
)
TOPIC_MESSAGE_COLUMNS: Final = (Column("topic", pa.string(), "topic string to publish to"), *_BODY)
#: Columns of a publication that a mapping looks at, and the types that it takes them in.
TAKEN: Final = {
    "topic": "string",
    "payload": "binary",
    "qos": "int",
    "retain": "boolean",
    "message_id": "int",
    "client_id": "string",
    "user": "string",
    "properties": "map<string,string>",
    **{name: MQTT_SCHEMA[name].dataType.simpleString() for name in PROPERTY_COLUMNS},
    "expiry": "bigint",
}
#: The column that says where a row goes, for the standard profile.
DESTINATION: Final = "queue"
NO_MESSAGE_ID: Final = 65_536
#: The least numbers of 1, 2, 3, 4 and 5 digits, and the least one that is no message id.
_WIDTHS: Final = np.array([1, 10, 100, 1_000, 10_000, NO_MESSAGE_ID])
_KEPT: Final = 65_536
#: The bytes before a message id. They are unique: text contains no `<`, and the mqtt folder is the first one.
_BEFORE_MESSAGE_ID: Final = b"<msgid dt='i4'>"
_STRUC_LENGTH: Final = slice(8, 12)


class StandardToMq:
    """The integration tables 1 to 3.

    `destination` is where all messages go; None: each to the topic of its publication. To a topic it is the message that
    the service puts; to a queue it has, as a subscriber would receive it, the mqps folder, too.
    """

    def __init__(self, destination: Destination | None) -> None:
        self.destination = destination

    def map(self, publication: Publication) -> MappedMessage:
        """Return the message. Raises Unmappable."""
        to = self.destination or Destination(topic_string(publication.topic), True)
        made = message_of(publication)
        if to.is_topic:
            return msgspec.structs.replace(made, destination=to)
        return msgspec.structs.replace(
            made, destination=to, message=received_message(publication), retain=False, clear=False
        )


class Form(msgspec.Struct, frozen=True, gc=False):
    """The common parts of the messages of a group: a message or a refusal, or neither if the filter does not accept the rows.

    A refused row has the MQMD and the headers with which the service puts it on the dead-letter queue, if there are any.
    """

    mapped: MappedMessage | None
    md: MQMD | None = None
    headers: bytes | None = None
    #: where the digits of the message id stand in `headers`; -1: nowhere
    place: int = -1
    refusal: dict[str, Any] | None = None


#: What makes messages of publications.
ToMq = ToMqRule | StandardToMq


class Messages:
    """`to_messages` for record batches: call it with an iterator of them, as mapInArrow does. Cheap to pickle.

    `by_column`: the column `queue` says where each row goes. `kept` are the fields of the last columns of a batch, which
    are passed through.
    """

    def __init__(self, rule: ToMq, *, by_column: bool = False, kept: Sequence[Any] = ()) -> None:
        self.rule = rule
        self._by_column = by_column
        self._fields = tuple(kept)
        self._to_topic = _to_topic(rule) and not by_column
        self.schema = schema_of(TOPIC_MESSAGE_COLUMNS if self._to_topic else QUEUE_MESSAGE_COLUMNS, kept)
        self._read_rule()
        self._forms: dict[tuple[Any, ...], Form] = {}

    def __reduce__(self) -> tuple[Callable[..., Messages], tuple[Any, ...]]:
        return _made, (pickle.dumps((self.rule, self._by_column, self._fields)),)

    def _read_rule(self) -> None:
        self._used, self._payload_type, self._ccsid = UsedFields(), "bytes", CCSID_UTF8
        #: maps all but the payload, which is converted after it
        self._framing: ToMq = self.rule
        self._with_rfh2 = True
        #: messages of which each has its message id in more than one place
        self._by_message_id = False
        if not isinstance(self.rule, ToMqRule):
            return
        rule, config = self.rule, self.rule.config
        self._used = used_fields_of(config)
        self._payload_type, self._ccsid = config.payload.type, config.payload.ccsid or CCSID_UTF8
        self._with_rfh2 = config.attributes.rfh2
        self._by_message_id = self._used.message_id or config.destination.requests_queue is not None
        if config.payload.type != "bytes":
            as_it_is = config.payload.model_copy(update={"type": "bytes"})
            self._framing = ToMqRule(rule.name, config.model_copy(update={"payload": as_it_is}), rule.origin)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            yield self.of(batch)

    def of(self, batch: Any) -> Any:
        """Return the messages of a record batch, as one of `schema`; rows that the mapping passes by are not in it."""
        rows = Rows(batch, self._by_column)
        if self._used.payload:
            forms: list[Form] = []
            group = np.zeros(rows.count, np.int64)
            bodies = self._one_by_one(range(rows.count), rows, forms, group)
        else:
            forms, group = self._grouped(rows)
            bodies = self._converted(rows, forms, group) if self._payload_type != "bytes" else {}
        return self._assembled(batch, rows, forms, group, bodies)

    # Forms -----------------------------------------------------------------------------------------------------------

    def _grouped(self, rows: Rows) -> tuple[list[Form], Any]:
        """Return the forms of the rows, and which of them each row has."""
        size = None
        if self._used.size is not None:
            least, most = self._used.size
            size = (rows.sizes >= least) & (rows.sizes <= most)
        number = rows.message_ids if self._by_message_id else rows.widths
        first, group, keys = rows.groups(number, size)
        forms = []
        for row, key in zip(first.tolist(), keys, strict=True):
            form = self._forms.get(key)
            if form is None:
                if len(self._forms) >= _KEPT:
                    self._forms.clear()
                form = self._forms[key] = self._form(self._framing, rows, row, key)[0]
            forms.append(form)
        return forms, group

    def _form(self, rule: ToMq, rows: Rows, row: int, values: tuple[Any, ...]) -> tuple[Form, bytes | None]:
        """Return the form of a row, and its body as the rule makes it."""
        publication: Publication | None = None
        try:
            publication = rows.publication(row, values)
            if self._by_column:
                rule = StandardToMq(Destination(queue_name(values[-1] or "")))
            mapped = rule.map(publication)
        except Unmappable as error:
            return _refused(error, values[0], publication), None
        if mapped is None:
            return Form(None), None
        message = mapped.message
        length = _header_length(message) if self._with_rfh2 else 0
        # The form stays: without the payload of the one row that it was made of.
        mapped.message = msgspec.structs.replace(message, data=b"")
        headers = message.data[:length]
        return Form(mapped, message.md, headers, _place(headers, publication)), message.data[length:]

    def _one_by_one(self, numbers: Iterable[int], rows: Rows, forms: list[Form], group: Any) -> dict[int, bytes]:
        """Put rows through the rule, each with a form of its own; return the bodies of those that it maps."""
        bodies = {}
        for row in numbers:
            form, body = self._form(self.rule, rows, row, rows.values(row))
            group[row] = len(forms)
            forms.append(form)
            if body is not None:
                bodies[row] = body
        return bodies

    def _converted(self, rows: Rows, forms: list[Form], group: Any) -> dict[int, bytes]:
        """Return the bodies that differ from the payload. For rows that cannot be converted, the rule supplies the reason."""
        wanted = np.array([form.mapped is not None for form in forms], bool)[group]
        refused = np.array([form.refusal is not None for form in forms], bool)[group]
        bodies: dict[int, bytes] = {}
        again = np.flatnonzero(refused).tolist()
        if not (self._payload_type == "text" and self._ccsid == CCSID_UTF8 and rows.is_text()):
            for row in np.flatnonzero(wanted).tolist():
                payload = rows.payload(row)
                try:
                    if self._payload_type == "json":
                        document_of(payload)
                    body = in_ccsid(payload, self._ccsid)
                except Unmappable:
                    again.append(row)
                    continue
                if body is not payload:
                    bodies[row] = body
        return bodies | self._one_by_one(again, rows, forms, group)

    # Columns -----------------------------------------------------------------------------------------------------------

    def _assembled(self, batch: Any, rows: Rows, forms: list[Form], group: Any, bodies: dict[int, bytes]) -> Any:
        body = rows.payloads
        if bodies:
            written = body.to_pylist()
            for row, data in bodies.items():
                written[row] = data
            body = pa.array(written, pa.binary())
        message_ids = rows.message_ids
        kept = batch.columns[len(batch.columns) - len(self._fields) :]
        taken = np.array([form.mapped is not None or form.refusal is not None for form in forms], bool)
        if not taken.all():
            which = taken[group]
            group, message_ids = group[which], message_ids[which]
            mask = pa.array(which)
            body, *kept = [column.filter(mask) for column in (body, *kept)]
        chosen = pa.array(group)
        mapped = [form.mapped for form in forms]
        columns = [
            _column([one and one.destination.name for one in mapped], pa.string(), chosen),
            *(
                []
                if self._to_topic
                else [_column([(one and one.destination.queue_manager) or None for one in mapped], pa.string(), chosen)]
            ),
            _descriptors([form.md for form in forms], group),
            _headers(forms, group, message_ids),
            body,
            _column(
                [[(name, _text(value)) for name, value in one.properties.items()] if one else None for one in mapped],
                TEXT_MAP,
                chosen,
            ),
            _column([one and one.retain for one in mapped], pa.bool_(), chosen),
            _column([one and one.clear for one in mapped], pa.bool_(), chosen),
            _column([_kept(one) for one in mapped], KEPT_REQUEST_TYPE, chosen),
            _column([form.refusal for form in forms], self.schema.field("refusal").type, chosen),
            *kept,
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


@lru_cache(maxsize=16)
def _made(travelled: bytes) -> Messages:
    """Return one Messages for all tasks of a worker: it knows the forms of the micro-batches before."""
    rule, by_column, kept = pickle.loads(travelled)
    return Messages(rule, by_column=by_column, kept=kept)


def _to_topic(rule: ToMq) -> bool:
    if isinstance(rule, ToMqRule):
        return rule.config.destination.topic is not None
    return rule.destination is None or rule.destination.is_topic


def _refused(error: Unmappable, source: str | None, publication: Publication | None) -> Form:
    """Return the form of a row that cannot be mapped."""
    why = refusal(error, source)
    if publication is None:
        return Form(None, refusal=why)
    try:
        original = received_message(publication)
    except Unmappable:
        return Form(None, refusal=why)  # nor have the integration tables a message for it: the payload is all there is
    headers = original.data[: _header_length(original)]
    return Form(None, original.md, headers, _place(headers, publication), why)


def _header_length(message: Message) -> int:
    """Return the length of the MQRFH2 that a message begins with, in bytes."""
    return int.from_bytes(message.data[_STRUC_LENGTH], "little")


def _place(headers: bytes, publication: Publication) -> int:
    """Return where the digits of the message id stand; -1: nowhere."""
    if not headers or not publication.qos or not publication.message_id:
        return -1
    return headers.index(_BEFORE_MESSAGE_ID) + len(_BEFORE_MESSAGE_ID)


def _kept(mapped: MappedMessage | None) -> dict[str, Any] | None:
    """Return a value of the column `kept_request`."""
    if mapped is None or mapped.kept is None:
        return None
    message = mapped.kept.message
    md = {field.name: _value(message.md, field) for field in MAPPED_MD_TYPE}
    return {"queue": mapped.kept.queue, "md": md, "data": message.data}


def _text(value: str | int | bool) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _column(values: list[Any], type_: Any, chosen: Any) -> Any:
    """Return a column of which each row has one of `values`."""
    if all(value is None for value in values):
        return pa.nulls(len(chosen), type_)
    return pa.array(values, type_).take(chosen)


def _headers(forms: list[Form], group: Any, message_ids: Any) -> Any:
    """Return the bytes of the headers, each with the digits of its own message id."""
    headers = pa.array([form.headers for form in forms], pa.binary())
    headers = headers.take(pa.array(group))
    places = np.array([form.place for form in forms], np.int64)[group]
    rows = np.flatnonzero(places >= 0)
    if not len(rows):
        return headers
    validity, offsets, data = headers.buffers()
    starts = np.frombuffer(offsets, np.int32)[headers.offset :]
    written = np.frombuffer(data, np.uint8).copy()
    at, numbers = starts[rows] + places[rows], message_ids[rows]
    widths = widths_of(numbers)
    for digit in range(widths.max()):
        there = widths > digit
        written[at[there] + (widths[there] - 1 - digit)] = ord("0") + numbers[there] // 10**digit % 10
    buffers = [validity, offsets, pa.py_buffer(written)]
    return pa.Array.from_buffers(pa.binary(), len(headers), buffers, headers.null_count, headers.offset)


# The MQMD ------------------------------------------------------------------------------------------------------------

#: A value of a field that says no more than null.
_NOTHING: Final = (b"", cmqc.MQMI_NONE)


def _descriptors(mds: list[MQMD | None], group: Any) -> Any:
    """Return MQMDs of forms, as a column of MAPPED_MD_TYPE. Few of them differ: those of one kind are one object."""
    numbers: dict[int, int] = {}
    distinct: list[MQMD | None] = []
    which = []
    for md in mds:
        number = numbers.setdefault(id(md), len(distinct))
        if number == len(distinct):
            distinct.append(md)
        which.append(number)
    arrays = [pa.array([_value(md, field) for md in distinct], field.type) for field in MAPPED_MD_TYPE]
    absent = pa.array([md is None for md in distinct], pa.bool_())
    structure = pa.StructArray.from_arrays(arrays, fields=list(MAPPED_MD_TYPE), mask=absent)
    return structure.take(pa.array(np.array(which, np.int64)[group]))


def _value(md: MQMD | None, field: Any) -> Any:
    if md is None:
        return None
    value = getattr(md, field.name)
    if value in _NOTHING and field.name != "Format":
        return None
    return characters(value) if field.type == pa.string() else value


# Rows ----------------------------------------------------------------------------------------------------------------


def widths_of(message_ids: Any) -> Any:
    """Return how many digits each message id has: none for 0, 6 for NO_MESSAGE_ID."""
    return np.searchsorted(_WIDTHS, message_ids, side="right")


class Rows:
    """The rows of a record batch as publications."""

    def __init__(self, batch: Any, by_column: bool) -> None:
        self.count = batch.num_rows
        names = set(batch.schema.names)

        def column(name: str) -> Any:
            return batch.column(name) if name in names else None

        self.payloads = column("payload")
        self.sizes = pc.binary_length(self.payloads).fill_null(-1).to_numpy(zero_copy_only=False)
        numbers = _numbers(column("message_id"), self.count)
        #: what is none is NO_MESSAGE_ID
        self.message_ids = np.where((numbers >= 0) & (numbers < NO_MESSAGE_ID), numbers, NO_MESSAGE_ID)
        #: digits of the message id; 0 of none
        self.widths = widths_of(self.message_ids)
        self._columns = [
            column("topic"),
            column("client_id"),
            _numbers(column("qos"), self.count),
            column("retain"),
            column("user"),
            column("expiry"),
            column("properties"),
            *map(column, PROPERTY_COLUMNS),
        ]
        self._queue = column(DESTINATION) if by_column else None
        self._lists: list[list[Any]] | None = None

    def groups(self, number: Any, size: Any) -> tuple[Any, Any, Sequence[tuple[Any, ...]]]:
        """Return the rows that are alike; `number` and `size` say in what message ids and sizes differ."""
        groups = RowGroups(self.count)
        for column in self._columns:
            groups.add(column)
        groups.add(number)
        # An empty payload clears a retained publication; a missing one is refused.
        groups.add(np.sign(self.sizes))
        groups.add(size)
        groups.add(self._queue)
        return groups.groups()

    def is_text(self) -> bool:
        """Return whether all payloads are UTF-8."""
        try:
            self.payloads.cast(pa.string())
        except pa.ArrowInvalid:
            return False
        return True

    def payload(self, row: int) -> bytes:
        """Return the payload of a row. Raises Unmappable where there is none."""
        found: bytes | None = self.payloads[row].as_py()
        if found is None:
            raise Unmappable(cmqc.MQRC_DATA_LENGTH_ERROR, "the row has no payload: it is null (an empty one has 0 bytes)")
        return found

    def values(self, row: int) -> tuple[Any, ...]:
        """Return the columns of one row, as `groups` gives them."""
        if self._lists is None:
            columns = [*self._columns, self._queue]
            self._lists = [[None] * self.count if column is None else column.tolist() for column in columns]
        *values, queue = (column[row] for column in self._lists)
        return (*values, None, None, None, queue)

    def publication(self, row: int, values: tuple[Any, ...]) -> Publication:
        """Return the publication of a row whose columns have these values. Raises Unmappable for what is none."""
        topic, client_id, qos, retain, user, expiry, properties, *own_properties = values[: len(self._columns)]
        message_id = int(self.message_ids[row])
        if topic is None:
            raise Unmappable(cmqc.MQRC_TOPIC_STRING_ERROR, "the row has no topic: it is null")
        if qos not in (0, 1, 2):
            raise Unmappable(cmqc.MQRC_RFH_FORMAT_ERROR, f"qos is 0, 1 or 2, not {qos}")
        if message_id == NO_MESSAGE_ID:
            raise Unmappable(cmqc.MQRC_RFH_FORMAT_ERROR, "message_id is no number from 0 to 65535")
        own = {name: value for name, value in properties or () if value is not None}
        hops = own.pop(HOPS, "")
        fields: dict[str, Any] = {
            name: value or None for name, value in zip(PROPERTY_COLUMNS, own_properties, strict=True)
        }
        return Publication(
            topic=topic,
            payload=self.payload(row),
            qos=qos,
            retain=bool(retain),
            message_id=message_id,
            client_id=own.pop(CLIENT_ID, client_id or ""),
            user=user_identifier(user or ""),
            expiry=None if expiry is None else float(expiry),
            properties=PublishProperties(
                **fields,
                user_property=(*own.items(),),
            ),
            hops=tuple(hops.split(",")) if hops else (),
        )


def _numbers(column: Any, count: int) -> Any:
    """Return the numbers of a column, 0 where there are none."""
    if column is None or column.null_count == count:
        return np.zeros(count, np.int64)
    return column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
