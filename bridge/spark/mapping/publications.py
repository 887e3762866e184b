"""Vectorized mapping of MQ messages to publications.

The rule maps one of the messages with the same headers. The digits of `mqtt.msgid` are ignored if the rule does not read
them. Rules that read the body, and messages whose headers are not separate from the body, are mapped row by row.
"""

from __future__ import annotations

import math
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
from bridge.mapping.rendered import topic_name
from bridge.mapping.rule import ToMqttRule
from bridge.spark.columns import MD_TYPE, MQTT_COLUMNS, PROPERTY_COLUMNS, schema_of
from bridge.spark.mapping.row_groups import RowGroups, refusal
from bridge.spark.mq.rows import Row, rows_of
from bridge.spark.schema import REFUSAL
from bridge.telemetry.conversion import publication_of
from bridge.telemetry.headers import HEADER_FORMATS
from bridge.telemetry.message import Message, Publication, Unmappable
from bridge.wire.mq import MalformedHeader, decode_chain

#: Columns of a publication that is still to be published: none of a transmission.
PUBLICATION_COLUMNS: Final = (
    *(column for column in MQTT_COLUMNS if column.name not in ("dup", "message_id", "payload_format", "received")),
    REFUSAL,
)
#: Columns of a message that a mapping looks at.
TAKEN: Final = ("queue", "topic", "md", "rfh2", "headers", "body", "format", "ccsid", "encoding")
_KEPT: Final = 65_536
#: An MQRFH2 whose first folder is mqtt as the bridge writes it, to the message id in it, and the message id.
_MESSAGE_ID: Final = (
    r"^((?s:RFH .{36})<mqtt>(?:<clientId>[^<]*</clientId>)?<qos dt='i4'>[012]</qos><msgid dt='i4'>)[0-9]{1,5}(</msgid>)"
)


class StandardToMqtt:
    """The integration tables 4 and 5, for a subscriber that takes any QoS.

    `topic` is where all messages go; None: each to the topic it was published to.
    """

    def __init__(self, topic: str | None) -> None:
        self.topic = topic

    def map(self, message: Message, *, topic: str | None = None) -> Publication:
        """Return the publication. Raises Unmappable, also for a message that says of no topic."""
        made = publication_of(message, topic=self.topic if self.topic is not None else topic)
        topic_name(made.topic)
        return made


class Form(msgspec.Struct, frozen=True, gc=False):
    """What the publications of alike rows have in common, or why there are none; neither for rows passed by."""

    publication: Publication | None = None
    refusal: dict[str, Any] | None = None
    #: the headers do not end where the columns say: what is behind them decides, too
    by_row: bool = False


class Publications:
    """`to_publications` for record batches: call it with an iterator of them, as mapInArrow does. Cheap to pickle.

    `kept` are the fields of the last columns of a batch, which are passed through.
    """

    def __init__(self, rule: ToMqttRule | StandardToMqtt, *, kept: Sequence[Any] = ()) -> None:
        self.rule = rule
        self._fields = tuple(kept)
        self.schema = schema_of(PUBLICATION_COLUMNS, kept)
        self._used = UsedFields()
        self._by_row = False
        if isinstance(rule, ToMqttRule):
            self._used = used_fields_of(rule.config)
            self._by_row = self._used.payload or rule.config.payload.type != "bytes"
        self._forms: dict[tuple[Any, ...], Form] = {}

    def __reduce__(self) -> tuple[Callable[..., Publications], tuple[Any, ...]]:
        return _made, (pickle.dumps((self.rule, self._fields)),)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            yield self.of(batch)

    def of(self, batch: Any) -> Any:
        """Return the publications of a record batch, as one of `schema`; rows that the mapping passes by are not in it.

        Raises ValueError for a value that no field of a message takes.
        """
        count = batch.num_rows
        forms: list[Form] = []
        if self._by_row:
            group = np.arange(count)
            rest = group
        else:
            forms, group = self._grouped(batch)
            rest = np.flatnonzero(np.array([form.by_row for form in forms], bool)[group])
            group[rest] = len(forms) + np.arange(len(rest))
        bodies: dict[int, bytes] = {}
        if len(rest):
            for row, form in zip(rest.tolist(), self._one_by_one(batch.take(pa.array(rest))), strict=True):
                forms.append(form)
                if form.publication is not None:
                    bodies[row] = form.publication.payload
        return self._assembled(batch, forms, group, bodies)

    # Forms -----------------------------------------------------------------------------------------------------------

    def _grouped(self, batch: Any) -> tuple[list[Form], Any]:
        """Return the forms of the rows, and which of them each row has."""
        groups = RowGroups(batch.num_rows)
        names = set(batch.schema.names)
        for name in ("queue", "topic", "format", "ccsid", "encoding"):
            groups.add(batch.column(name) if name in names else None)
        for column in _fields(batch, self._used.md):
            groups.add(column)
        headers = batch.column("headers") if "headers" in names else pa.nulls(batch.num_rows, pa.binary())
        groups.add(headers if self._used.message_id else pc.replace_substring_regex(headers, _MESSAGE_ID, r"\1\2"))
        # With the length of all, that of the message id is the same, too.
        groups.add(pc.binary_length(headers))
        if self._used.size is not None:
            least, most = self._used.size
            sizes = pc.binary_length(batch.column("body")).fill_null(0).to_numpy(zero_copy_only=False)
            groups.add((sizes >= least) & (sizes <= most))
        first, group, keys = groups.groups()
        forms = [self._forms.get(key) for key in keys]
        if new := [number for number, form in enumerate(forms) if form is None]:
            if len(self._forms) + len(new) > _KEPT:
                self._forms.clear()
            examples = batch.take(pa.array(first[new]))
            whole = [_ends(row, one) for row, one in zip(rows_of(examples), headers.take(pa.array(first[new])), strict=True)]
            for number, form, ends in zip(new, self._one_by_one(examples), whole, strict=True):
                forms[number] = self._forms[keys[number]] = _without_payload(form) if ends else Form(by_row=True)
        return forms, group.copy()  # type: ignore[return-value]

    def _one_by_one(self, batch: Any) -> Iterator[Form]:
        """Put each row through the rule, and yield its form."""
        sources = batch.column("queue").to_pylist() if "queue" in batch.schema.names else [None] * batch.num_rows
        for row, queue in zip(rows_of(batch), sources, strict=True):
            try:
                yield Form(self.rule.map(row.message, topic=row.topic))
            except Unmappable as error:
                yield Form(refusal=refusal(error, queue or row.topic))

    # Columns -----------------------------------------------------------------------------------------------------------

    def _assembled(self, batch: Any, forms: list[Form], group: Any, bodies: dict[int, bytes]) -> Any:
        body = batch.column("body")
        if bodies:
            written = body.to_pylist()
            for row, data in bodies.items():
                written[row] = data
            body = pa.array(written, pa.binary())
        if body.null_count:
            body = body.fill_null(b"")
        kept = batch.columns[len(batch.columns) - len(self._fields) :]
        taken = np.array([form.publication is not None or form.refusal is not None for form in forms], bool)
        if not taken.all():
            which = taken[group]
            group = group[which]
            body, *kept = [column.filter(pa.array(which)) for column in (body, *kept)]
        chosen = pa.array(group)
        publications = [form.publication for form in forms]
        values = {
            "topic": [one and one.topic for one in publications],
            "qos": [one and one.qos for one in publications],
            "retain": [one and one.retain for one in publications],
            "properties": [one and _properties(one) for one in publications],
            "expiry": [one and (None if one.expiry is None else math.ceil(one.expiry)) for one in publications],
            "refusal": [form.refusal for form in forms],
            "client_id": [(one and one.client_id) or None for one in publications],
            **{
                name: [(one and getattr(one.properties, name)) or None for one in publications] for name in PROPERTY_COLUMNS
            },
        }
        columns = [
            body if column.name == "payload" else pa.array(values[column.name], column.type).take(chosen)
            for column in PUBLICATION_COLUMNS
        ]
        return pa.RecordBatch.from_arrays([*columns, *kept], schema=self.schema)


@lru_cache(maxsize=16)
def _made(travelled: bytes) -> Publications:
    """Return one Publications for all tasks of a worker: it knows the forms of the micro-batches before."""
    rule, kept = pickle.loads(travelled)
    return Publications(rule, kept=kept)


def _fields(batch: Any, names: frozenset[str]) -> list[Any]:
    """Return fields of the MQMD, in one order."""
    if "md" not in batch.schema.names:
        return []
    md = batch.column("md")
    found = dict(zip((field.name for field in md.type), md.flatten(), strict=True))
    return [found.get(field.name) for field in MD_TYPE if field.name in names]


def _ends(row: Row, headers: Any) -> bool:
    """Return whether the headers in the column are all that the message has."""
    written: bytes | None = headers.as_py()
    if written is None:
        return False
    md = row.message.md
    try:
        chain = decode_chain(md.Format, md.Encoding, md.CodedCharSetId, written)
    except MalformedHeader:
        return False
    return not chain.body and chain.Format not in HEADER_FORMATS


def _without_payload(form: Form) -> Form:
    if form.publication is None:
        return form
    return Form(msgspec.structs.replace(form.publication, payload=b""))


def _properties(publication: Publication) -> list[tuple[str, str]]:
    """Return the user properties that a link publishes: those of the bridge itself are behind the others."""
    properties = [(name, value) for name, value in publication.user_properties.items() if name not in (HOPS, CLIENT_ID)]
    if publication.client_id:
        properties.append((CLIENT_ID, publication.client_id))
    if publication.hops:
        properties.append((HOPS, ",".join(publication.hops)))
    return properties
