"""The mapping rules of the service, applied to the rows of a frame with `mapInArrow`.

    from mqbridge import to_messages

    messages = to_messages(publications, "orders", config="bridge.yaml")
    messages.write.format("mq").option("refused", "SYSTEM.DEAD.LETTER.QUEUE")…
    messages.where("refusal IS NOT NULL")          # rows that cannot be mapped, with the reason

The results are byte for byte the messages that the service produces, and are put in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StringType, StructType

from bridge.config.document import load
from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.link.outbox import CLIENT_ID, HOPS
from bridge.mapping.rates import LeftOut
from bridge.mapping.rendered import queue_name, topic_name, topic_string, user_identifier
from bridge.mapping.rule import PublicationRuleCache, ToMqRule, ToMqttRule, rule_of
from bridge.mqtt.packets import PublishProperties
from bridge.spark.columns import MD_TYPE, MQTT_COLUMNS, PROPERTY_COLUMNS, TEXT_MAP, array_of
from bridge.spark.mq.envelope import characters
from bridge.spark.mq.rows import rows_of
from bridge.spark.options import OptionError
from bridge.spark.schema import MQTT_SCHEMA, REFUSAL, REFUSAL_TYPE, column_values
from bridge.telemetry.conversion import message_of, publication_of, received_message
from bridge.telemetry.message import NO_PROPERTIES, Destination, MappedMessage, Message, Publication, Unmappable
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, Typed

__all__ = ["to_messages", "to_publications"]

#: The profile that stands for the integration tables instead of a mapping.
STANDARD: Final = "standard"
#: The name of a mapping, a mapping, or STANDARD.
Profile = str | ToMqMapping | ToMqttMapping

#: Columns of publications that a mapping reads, and the types to which they are cast.
PUBLICATION_TYPES: Final[Mapping[str, str | None]] = {
    "topic": "string",
    "payload": "binary",
    "qos": "int",
    "retain": "boolean",
    "message_id": "int",
    "client_id": "string",
    "user": "string",
    "properties": "map<string,string>",
    "expiry": "bigint",
    **{name: MQTT_SCHEMA[name].dataType.simpleString() for name in PROPERTY_COLUMNS},
}
#: Type of the JSON of properties in an archive, without those that messages cannot have.
_ARCHIVED_PROPERTIES: Final = (
    "payload_format_indicator int, message_expiry_interval bigint, content_type string, response_topic string,"
    " correlation_data string, user_property array<array<string>>"
)
#: Columns of messages that a mapping reads. None: no cast.
MESSAGE_TYPES: Final[Mapping[str, str | None]] = {
    **dict.fromkeys(("queue", "topic", "md", "rfh2", "format", "ccsid", "encoding")),
    "headers": "binary",
    "body": "binary",
}

#: Fields of the MQMD that mappings set.
_SET_FIELDS: Final = (
    "Report",
    "MsgType",
    "Expiry",
    "Encoding",
    "CodedCharSetId",
    "Format",
    "Priority",
    "Persistence",
    "MsgId",
    "CorrelId",
    "ReplyToQ",
    "ReplyToQMgr",
    "UserIdentifier",
)
MAPPED_MD_TYPE: Final = pa.struct([field for field in MD_TYPE if field.name in _SET_FIELDS])
KEPT_REQUEST_TYPE: Final = pa.struct(
    [pa.field("queue", pa.string()), pa.field("md", MAPPED_MD_TYPE), pa.field("data", pa.binary())]
)
#: Columns of the result of `to_messages`, after the destination.
_MESSAGE: Final = {
    "md": MAPPED_MD_TYPE,
    "headers": pa.binary(),
    "body": pa.binary(),
    # message properties of a message without MQRFH2, by full name
    "properties": TEXT_MAP,
    "retain": pa.bool_(),
    # whether it clears the retained publication of its topic
    "clear": pa.bool_(),
    # record to put on requests_queue before the request
    "kept_request": KEPT_REQUEST_TYPE,
    REFUSAL: REFUSAL_TYPE,
}
_TO_QUEUE: Final = {"queue": pa.string(), "queue_manager": pa.string(), **_MESSAGE}
_TO_TOPIC: Final = {"topic": pa.string(), **_MESSAGE}
#: Columns of the result of `to_publications`.
_PUBLICATION: Final = {
    **{
        name: type_
        for name, type_, _ in MQTT_COLUMNS
        if name not in ("dup", "message_id", "payload_format", "received")
    },
    REFUSAL: REFUSAL_TYPE,
}
_STRUC_LENGTH: Final = slice(8, 12)


def to_messages(
    frame: DataFrame,
    profile: Profile = STANDARD,
    *,
    config: str | Path | None = None,
    name: str | None = None,
    queue_manager: str | None = None,
    queue: str | None = None,
    topic: str | None = None,
    keep: Sequence[str] = (),
) -> DataFrame:
    """Return the MQ messages of a frame of publications.

    The frame has columns of an MQTT envelope (`bridge.spark.schema.MQTT_COLUMNS`). `topic` and `payload` are required.
    Missing columns count as null. The column `user` is the publisher's identity (MQMD.UserIdentifier). The rows of the
    bridge's archive have these columns, with all MQTT 5 properties as JSON in the column `properties`. User properties
    `mqbridge-clientId` and `mqbridge-hops` of other bridges are handled as in the service.

    `profile` is "standard" (integration tables 1 to 3), the name of a mapping in the configuration file `config`, or a
    mapping object. A mapping object requires `name` and `queue_manager`, which become part of the hop mark. With "standard",
    messages go to `queue` or `topic`. Without these arguments, they go to the queue in the column `queue` or, if there is no
    such column, to the topic of the publication.

    The result has the columns `queue` (and `queue_manager`) or `topic`, `md`, `headers`, `body`, `properties`, `retain`,
    `clear` and `kept_request`, all of which the source `mq` writes. It also has the column `refusal`, which is null if the
    row was mapped. A row that cannot be mapped appears as the service would dead-letter it, with the reason in `refusal`.
    The writer's option `refused` names the queue for such rows. Rows that a filter does not accept are omitted. The columns
    in `keep` are passed through. Drop them before you write.

    Raises OptionError, ConfigurationError, RuleError.
    """
    caller = "to_messages"
    rule: Any = _rule(caller, profile, config, name, queue_manager, queue=queue, topic=topic)
    by_column = False
    if rule is None:
        rule = StandardToMq(_destination(caller, queue, topic))
        by_column = rule.destination is None and "queue" in frame.columns
    elif not isinstance(rule, ToMqRule):
        raise OptionError(f"{caller}: mapping {rule.name} publishes to MQTT; hint: use to_publications")
    types = PUBLICATION_TYPES if not by_column else {**PUBLICATION_TYPES, "queue": "string"}
    frame = with_archived_properties(frame, keep)
    selected, passed = _selected(caller, frame, types, ("topic", "payload"), keep)
    return _mapped(caller, selected, ToMessages(rule, by_column=by_column, passed=passed))


def to_publications(
    frame: DataFrame,
    profile: Profile = STANDARD,
    *,
    config: str | Path | None = None,
    name: str | None = None,
    queue_manager: str | None = None,
    topic: str | None = None,
    keep: Sequence[str] = (),
) -> DataFrame:
    """Return the MQTT publications of a frame of messages.

    The frame has columns of an MQ envelope (`bridge.spark.schema.MQ_COLUMNS`). `body` is required. The
    columns have the same meaning as for the writer of the source `mq` (`bridge.spark.mq.rows`). `profile`, `config`, `name`,
    `queue_manager` and `keep` are as in `to_messages`. "standard" means integration tables 4 and 5, and publishes to `topic`
    or to the topic of the original publication.

    The result has the columns of an MQTT envelope that apply to a publication, and `refusal` as in `to_messages`.
    `properties` contains the user properties that a link would publish.

    Raises OptionError, ConfigurationError, RuleError.
    """
    caller = "to_publications"
    rule: Any = _rule(caller, profile, config, name, queue_manager, topic=topic)
    if rule is None:
        rule = StandardToMqtt(None if topic is None else _checked(caller, "topic", topic_name, topic))
    elif not isinstance(rule, ToMqttRule):
        raise OptionError(f"{caller}: mapping {rule.name} puts messages to MQ; hint: use to_messages")
    selected, passed = _selected(caller, frame, MESSAGE_TYPES, ("body",), keep)
    return _mapped(caller, selected, Publications(rule, passed=passed))


# Arguments -----------------------------------------------------------------------------------------------------------


def _rule(
    caller: str,
    profile: Profile,
    config: str | Path | None,
    name: str | None,
    queue_manager: str | None,
    **to: str | None,
) -> ToMqRule | ToMqttRule | None:
    """Return the rule of a mapping. None: the standard profile."""
    if profile == STANDARD and config is None:
        _refuse(caller, "with the profile standard", name=name, queue_manager=queue_manager)
        return None
    _refuse(caller, "because the mapping specifies the destination", **to)
    if not isinstance(profile, str):
        if name is None or queue_manager is None:
            raise OptionError(f"{caller}: name and queue_manager are required with a mapping object (for its hop mark)")
        return _of_program(caller, rule_of(name, profile, queue_manager))
    _refuse(caller, "because the configuration file specifies it", name=name, queue_manager=queue_manager)
    if config is None:
        raise OptionError(f"{caller}: config is needed, the configuration file that has the mapping {profile!r}")
    configuration = load(Path(config))
    if profile not in configuration.mappings:
        names = ", ".join(configuration.mappings) or "none"
        raise OptionError(f"{caller}: {config} has no mapping {profile!r} (mappings: {names})")
    return _of_program(caller, rule_of(profile, configuration.mappings[profile], configuration.queue_manager.name))


def _of_program(caller: str, rule: ToMqRule | ToMqttRule) -> ToMqRule | ToMqttRule:
    """Return a rule that a program can apply, which puts with its own authority. Raises OptionError."""
    if rule.config.destination.authority == "publisher":
        raise OptionError(
            f"{caller}: mapping {rule.name} has to.as: publisher, and a program puts all rows with one user"
        )
    if rule.rates is not None:
        raise OptionError(
            f"{caller}: mapping {rule.name} has limit or changes, and the tasks of a program do not know each other's rows"
        )
    return rule


def _refuse(caller: str, why: str, **properties: str | None) -> None:
    for option, value in properties.items():
        if value is not None:
            raise OptionError(f"{caller}: {option}: expected no value, {why}, found {value!r}")


def _destination(caller: str, queue: str | None, topic: str | None) -> Destination | None:
    if queue is not None:
        _refuse(caller, "because queue is set", topic=topic)
        return Destination(_checked(caller, "queue", queue_name, queue))
    return None if topic is None else Destination(_checked(caller, "topic", topic_string, topic), True)


def _checked(caller: str, option: str, check: Any, text: str) -> str:
    try:
        return str(check(text))
    except Unmappable as error:
        raise OptionError(f"{caller}: {option}: {error}") from error


def with_archived_properties(frame: DataFrame, keep: Sequence[str] = ()) -> DataFrame:
    """Return the columns of MQTT 5 properties in place of their JSON (`bridge.archive.schema.json_of`), if a frame has it."""
    if "properties" not in frame.columns or not isinstance(frame.schema["properties"].dataType, StringType):
        return frame
    parsed = f.from_json("properties", _ARCHIVED_PROPERTIES)
    # map_from_entries fails if a name is repeated.
    users = f.aggregate(
        parsed["user_property"],
        f.expr("CAST(map() AS MAP<STRING, STRING>)"),
        lambda before, pair: f.map_concat(
            f.map_filter(before, lambda name, _: name != pair[0]), f.create_map(pair[0], pair[1])
        ),
    )
    columns = {
        "properties": users,
        "payload_format": parsed["payload_format_indicator"],
        "expiry": parsed["message_expiry_interval"],
        "content_type": parsed["content_type"],
        "response_topic": parsed["response_topic"],
        "correlation_data": f.unbase64(parsed["correlation_data"]),
    }
    return frame.withColumns({name: column for name, column in columns.items() if name not in keep})


def _selected(
    caller: str, frame: DataFrame, types: Mapping[str, str | None], required: Sequence[str], keep: Sequence[str]
) -> tuple[DataFrame, list[Any]]:
    """Return the columns that a mapping reads, followed by those that it passes through, and the fields of the latter."""
    if missing := [column for column in (*required, *keep) if column not in frame.columns]:
        raise OptionError(
            f"{caller}: the frame has no column {' or '.join(missing)} (it has {', '.join(frame.columns)})"
        )
    columns = []
    for column in frame.columns:
        if column in types:
            selected_column, type_ = f.col(f"`{column}`"), types[column]
            columns.append(selected_column if type_ is None else selected_column.cast(type_).alias(column))
    passed = [f.col(f"`{column}`").alias(f"kept_{column}") for column in keep]
    arrow_fields = to_arrow_schema(StructType([frame.schema[column] for column in keep]), timezone="UTC")
    return frame.select(*columns, *passed), list(arrow_fields)


def _mapped(caller: str, frame: DataFrame, function: ToMessages | Publications) -> DataFrame:
    names = function.schema.names
    if clash := sorted({name for name in names if names.count(name) > 1}):
        raise OptionError(f"{caller}: keep: expected other names than those of the result, found {', '.join(clash)}")
    return frame.mapInArrow(function.__call__, from_arrow_schema(function.schema))


# Publications to messages --------------------------------------------------------------------------------------------


#: A mapping of all publications that changes nothing. Its results can be cached.
_ALL: Final = ToMqMapping.model_validate({"from": {"mqtt": "#"}, "to": {"queue": "Q"}})


class StandardToMq:
    """The integration tables 1 to 3. `destination` None: each message goes to the topic of its publication.

    A message to a topic is the one that the service puts. A message to a queue also has the mqps folder, as a subscriber
    receives it.
    """

    def __init__(self, destination: Destination | None) -> None:
        self.destination = destination
        self._cache = PublicationRuleCache(_ALL)

    def messages(self, publication: Publication) -> Sequence[MappedMessage]:
        """Return the message. Raises Unmappable."""
        return (self._message(publication),)

    def _message(self, publication: Publication) -> MappedMessage:
        key = self._cache.key(publication)
        if key is not None and self._cache.knows(key):
            cached = self._cache.mapped(key, publication, publication.payload)
            assert cached is not None  # the mapping of all publications takes this one
            return cached
        to = self.destination or Destination(topic_string(publication.topic), True)
        if to.is_topic:
            mapped = msgspec.structs.replace(message_of(publication), destination=to)
        else:
            mapped = MappedMessage(destination=to, message=received_message(publication), hops=publication.hops)
        if key is not None:
            self._cache.remember(key, publication, mapped)
        return mapped


ToMq = ToMqRule | StandardToMq


class ToMessages:
    """`to_messages` for record batches: call it with an iterator of them, as mapInArrow does.

    `by_column`: the column `queue` specifies the destination of each row. `passed` contains the fields of the last columns
    of a batch, which are passed through.
    """

    def __init__(self, rule: ToMq, *, by_column: bool = False, passed: Sequence[Any] = ()) -> None:
        self.rule = StandardToMq(Destination("queue")) if by_column else rule
        self._by_column = by_column
        self._kept = len(passed)
        if isinstance(rule, ToMqRule):
            self._has_rfh2 = rule.config.attributes.rfh2
            to_topic = rule.config.destination.topic is not None
        else:
            self._has_rfh2 = True
            to_topic = not by_column and (rule.destination is None or rule.destination.is_topic)
        self.schema = _schema(_TO_TOPIC if to_topic else _TO_QUEUE, passed)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the messages of record batches."""
        for batch in batches:
            yield self.of(batch)

    def of(self, batch: Any) -> Any:
        """Return the messages of a record batch. Rows that the mapping does not accept are omitted."""
        columns = [column_values(batch, name) for name in PUBLICATION_TYPES]
        queues = column_values(batch, "queue") if self._by_column else repeat(None)
        numbers: list[int] = []
        rows: list[tuple[Any, ...]] = []
        for number, (queue, *row) in enumerate(zip(queues, *columns, strict=False)):
            for message in self._rows(queue, row):
                numbers.append(number)
                rows.append(message)
        names = (self.schema.names[0], "queue_manager", *_MESSAGE)
        made_columns = dict(zip(names, zip(*rows, strict=True) if rows else repeat(()), strict=False))
        return _record_batch(self.schema, made_columns, batch, numbers, self._kept)

    def _rows(self, queue: str | None, row: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """Yield the messages of a row, or its refusal."""
        publication = None
        try:
            publication = _publication(row)
            name = queue_name(queue or "") if self._by_column else None
            messages = self.rule.messages(publication)
        except Unmappable as error:
            md, header = (None, None) if publication is None else _original(publication)
            yield None, None, md, header, row[1], None, None, None, None, _refusal(error, row[0])
            return
        if messages is None or isinstance(messages, LeftOut):
            return
        for mapped in messages:
            yield self._row(name, mapped)

    def _row(self, queue: str | None, mapped: MappedMessage) -> tuple[Any, ...]:
        """Return the columns of a message. `queue` is its destination by the column of that name."""
        to, data = mapped.destination, mapped.message.data
        header = _header(data) if self._has_rfh2 else b""
        properties = [(name, _text(value)) for name, value in mapped.properties.items()]
        return (
            queue or to.name,
            to.queue_manager or None,
            mapped.message.md,
            header,
            data[len(header) :],
            properties,
            mapped.retain,
            mapped.clear,
            _kept_request(mapped),
            None,
        )


def _publication(row: Sequence[Any]) -> Publication:
    """Return the publication of a row, whose values are in the order of PUBLICATION_TYPES. Raises Unmappable."""
    topic, payload, qos, retain, message_id, client_id, user, properties, expiry, *fields = row
    if topic is None:
        raise Unmappable(cmqc.MQRC_TOPIC_STRING_ERROR, "the row has no topic: it is null")
    if qos not in (0, 1, 2, None):
        raise Unmappable(cmqc.MQRC_RFH_FORMAT_ERROR, f"qos is 0, 1 or 2, not {qos}")
    if not 0 <= (message_id or 0) <= 65_535:
        raise Unmappable(cmqc.MQRC_RFH_FORMAT_ERROR, "message_id is not a number from 0 to 65535")
    if payload is None:
        raise Unmappable(cmqc.MQRC_DATA_LENGTH_ERROR, "the row has no payload: it is null (an empty one has 0 bytes)")
    own = {name: value for name, value in properties or () if value is not None}
    hops = own.pop(HOPS, "")
    client_id = own.pop(CLIENT_ID, client_id or "")
    publish_properties: Any = NO_PROPERTIES
    if own or any(fields):
        fields_by_name: dict[str, Any] = {
            name: value or None for name, value in zip(PROPERTY_COLUMNS, fields, strict=True)
        }
        publish_properties = PublishProperties(**fields_by_name, user_property=(*own.items(),))
    return Publication(
        topic,
        payload,
        qos or 0,
        bool(retain),
        message_id or 0,
        client_id,
        user_identifier(user or ""),
        None if expiry is None else float(expiry),
        publish_properties,
        tuple(hops.split(",")) if hops else (),
    )


def _original(publication: Publication) -> tuple[MQMD | None, bytes | None]:
    """Return MQMD and header with which the service dead-letters a publication, if the integration tables define them."""
    try:
        message = received_message(publication)
    except Unmappable:
        return None, None
    return message.md, _header(message.data)


def _header(data: bytes) -> bytes:
    """Return the MQRFH2 at the start of message data that the bridge created."""
    return data[: int.from_bytes(data[_STRUC_LENGTH], "little")]


def _kept_request(mapped: MappedMessage) -> dict[str, Any] | None:
    if mapped.kept is None:
        return None
    message = mapped.kept.message
    md = {field.name: _field(message.md, field) for field in MAPPED_MD_TYPE}
    return {"queue": mapped.kept.queue, "md": md, "data": message.data}


def _text(value: str | int | bool | Typed) -> str:
    assert not isinstance(value, Typed)  # check rejects such mappings in pipelines
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


# Messages to publications --------------------------------------------------------------------------------------------


class StandardToMqtt:
    """The integration tables 4 and 5. `topic` None: each publication goes to the topic of the original publication."""

    def __init__(self, topic: str | None) -> None:
        self.topic = topic

    def publications(self, message: Message, *, topic: str | None = None) -> Sequence[Publication]:
        """Return the publication. Raises Unmappable, also for a message without a topic."""
        publication = publication_of(message, topic=self.topic if self.topic is not None else topic)
        topic_name(publication.topic)
        return (publication,)


class Publications:
    """`to_publications` for record batches: call it with an iterator of them, as mapInArrow does.

    `passed` contains the fields of the last columns of a batch, which are passed through.
    """

    def __init__(self, rule: ToMqttRule | StandardToMqtt, *, passed: Sequence[Any] = ()) -> None:
        self.rule = rule
        self._kept = len(passed)
        self.schema = _schema(_PUBLICATION, passed)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the publications of record batches."""
        for batch in batches:
            yield self.of(batch)

    def of(self, batch: Any) -> Any:
        """Return the publications of a record batch. Rows that the mapping does not accept are omitted.

        Raises ValueError for a value that does not fit its field of the message.
        """
        numbers: list[int] = []
        publications: list[Publication | None] = []
        refusals: list[dict[str, Any] | None] = []
        bodies = column_values(batch, "body")
        for number, (row, queue) in enumerate(zip(rows_of(batch), column_values(batch, "queue"), strict=True)):
            try:
                mapped = self.rule.publications(row.message, topic=row.topic)
            except Unmappable as error:
                numbers.append(number)
                publications.append(None)
                refusals.append(_refusal(error, queue or row.topic))
                continue
            if mapped is None or isinstance(mapped, LeftOut):
                continue
            numbers += [number] * len(mapped)
            publications += mapped
            refusals += [None] * len(mapped)
        columns: dict[str, Sequence[Any]] = {
            "payload": [
                bodies[number] or b"" if publication is None else publication.payload
                for number, publication in zip(numbers, publications, strict=True)
            ],
            "properties": [publication and _user_properties(publication) for publication in publications],
            "expiry": [
                None if publication is None or publication.expiry is None else math.ceil(publication.expiry)
                for publication in publications
            ],
            "client_id": [(publication and publication.client_id) or None for publication in publications],
            "refusal": refusals,
        }
        columns |= {
            name: [publication and getattr(publication, name) for publication in publications]
            for name in ("topic", "qos", "retain")
        }
        for name in PROPERTY_COLUMNS:
            columns[name] = [
                (publication and getattr(publication.properties, name)) or None for publication in publications
            ]
        return _record_batch(self.schema, columns, batch, numbers, self._kept)


def _user_properties(publication: Publication) -> list[tuple[str, str]]:
    """Return the user properties that a link publishes, with those of the bridge itself last."""
    properties = [(name, value) for name, value in publication.user_properties.items() if name not in (HOPS, CLIENT_ID)]
    if publication.client_id:
        properties.append((CLIENT_ID, publication.client_id))
    if publication.hops:
        properties.append((HOPS, ",".join(publication.hops)))
    return properties


# Columns -------------------------------------------------------------------------------------------------------------


def _schema(columns: Mapping[str, Any], passed: Sequence[Any]) -> Any:
    return pa.schema([*(pa.field(name, type_) for name, type_ in columns.items()), *passed])


def _refusal(error: Unmappable, source: str | None) -> dict[str, Any]:
    """Return a value of the column `refusal`."""
    return {"reason": error.reason, "sentence": str(error), "source": source}


def _record_batch(
    schema: Any, columns: Mapping[str, Sequence[Any]], batch: Any, numbers: Sequence[int], passed_count: int
) -> Any:
    """Return mapped rows, and the last `passed_count` columns of the rows of `batch` with these numbers."""
    arrays = []
    for field in list(schema)[: len(schema) - passed_count]:
        values = columns[field.name]
        arrays.append(_descriptors(values) if field.name == "md" else array_of(values, field.type))
    passed = batch.columns[batch.num_columns - passed_count :]
    if passed and [*numbers] != [*range(batch.num_rows)]:
        passed = [column.take(pa.array(numbers, pa.int64())) for column in passed]
    return pa.RecordBatch.from_arrays([*arrays, *passed], schema=schema)


#: A value of a field that has the same meaning as null.
_NOTHING: Final = (b"", cmqc.MQMI_NONE)


def _descriptors(mds: Sequence[MQMD | None]) -> Any:
    """Return MQMDs as a column of MAPPED_MD_TYPE. Many rows have the same MQMD object."""
    distinct = {id(md): md for md in mds}
    numbers = {key: number for number, key in enumerate(distinct)}
    arrays = [pa.array([_field(md, field) for md in distinct.values()], field.type) for field in MAPPED_MD_TYPE]
    absent = pa.array([md is None for md in distinct.values()], pa.bool_())
    structure = pa.StructArray.from_arrays(arrays, fields=list(MAPPED_MD_TYPE), mask=absent)
    return structure.take(array_of([numbers[id(md)] for md in mds], pa.int32()))


def _field(md: MQMD | None, field: Any) -> Any:
    value = None if md is None else getattr(md, field.name)
    if value is None or (value in _NOTHING and field.name != "Format"):
        return None
    return characters(value) if field.type == pa.string() else value
