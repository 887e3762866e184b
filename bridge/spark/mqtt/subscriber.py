"""A subscriber that writes publications to a spool, and acknowledges them after the fsync.

QoS 2: the metadata of the newest segment contains the packet identifiers that are not released yet. So the subscriber
recognizes repeated publications after a crash (method B of MQTT 3.1.1, figure 4.3).

QoS 1: if a PUBACK is lost, the broker sends the publication again, and it becomes a second row.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from itertools import combinations
from operator import attrgetter
from typing import Any, Final

import msgspec
import pyarrow as pa

from bridge.config import values
from bridge.config.link import LOCAL
from bridge.link.outbox import CLIENT_ID, HOPS
from bridge.link.state import LinkPhase
from bridge.mapping.template import PatternError
from bridge.mapping.topic_pattern import overlaps, shared_prefix
from bridge.mqtt.topics import topic_filter_error
from bridge.spark.columns import MQTT_ARROW_SCHEMA, PROPERTY_COLUMNS, array_of, constant
from bridge.spark.mqtt.broker import BROKER_OPTIONS, Broker, broker_of
from bridge.spark.options import Options
from bridge.spark.spool import (
    STREAM_OPTIONS,
    Spool,
    SpoolFiller,
    StreamOptions,
    columns_of,
    open_former,
    require_spool,
    stream_options_of,
)
from bridge.telemetry.message import Publication, Received

log = logging.getLogger(__name__)

#: Publications, and bytes of payload, that are taken and written to disk together.
TAKE_ROWS: Final = 8_000
TAKE_BYTES: Final = 8 * 1024 * 1024
#: Publications that the broker may send ahead of acknowledgements, unless the link limits them. No segment contains more.
IN_FLIGHT: Final = 20_000
#: Seconds that a round waits for a publication, or until the spool is smaller.
WAIT: Final = 0.5
#: Seconds that the first connection may take.
CONNECT_WAIT: Final = 20.0
#: Maximum time to disconnect a link, in seconds.
STOP_TIMEOUT: Final = 5.0
#: Seconds after which an availableNow run ends, even if publications still arrive.
MAX_RUN: Final = 60.0

_ENCODER: Final = msgspec.msgpack.Encoder(order="sorted")


# Options -------------------------------------------------------------------------------------------------------------

READ_OPTIONS: Final = (*BROKER_OPTIONS, "topic", "qos", "quietPeriod", *STREAM_OPTIONS)
#: Seconds without a message after which an availableNow run ends.
QUIET_PERIOD: Final = 1.0


class MqttSourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options, checked."""

    broker: Broker
    #: each has its own session
    topic_filters: tuple[str, ...]
    qos: int = 2
    #: seconds
    quiet_period: float = QUIET_PERIOD
    stream: StreamOptions = StreamOptions()
    #: Arrow schema of the columns
    schema: Any = MQTT_ARROW_SCHEMA


def source_options_of(options: Options, schema: Any = None) -> MqttSourceOptions:
    """Return the options of a reader, checked. `schema` replaces the option `columns`. Raises OptionError."""
    broker = broker_of(options)
    filters = tuple(options.names("topic"))
    if not filters:
        raise options.wrong("topic", "a topic filter, or several with commas")
    own = {topic_filter: _own_filter(options, topic_filter) for topic_filter in filters}
    for topic_filter, other in combinations(filters, 2):
        if overlaps(own[topic_filter].split("/"), own[other].split("/")):
            raise options.wrong(
                "topic", f"filters that do not overlap ({topic_filter} and {other} do, and would duplicate messages)"
            )
    if len(filters) > 1 and not broker.has_own_identifiers:
        raise options.wrong(
            "clientId", "a client identifier with {mapping} in it, because each topic filter has a session of its own"
        )
    # The lock of a directory prevents two processes from using the same session.
    options.path("spool")
    stream = stream_options_of(options)
    require_spool(options.source, stream)
    return MqttSourceOptions(
        broker=broker,
        topic_filters=filters,
        qos=options.value("qos", values.integer(0, 2), 2),
        quiet_period=options.value("quietPeriod", values.duration(0), QUIET_PERIOD),
        stream=stream,
        schema=columns_of(options, MQTT_ARROW_SCHEMA) if schema is None else schema,
    )


def _own_filter(options: Options, topic_filter: str) -> str:
    """Return a topic filter without its share prefix, checked. Raises OptionError."""
    try:
        own = topic_filter.removeprefix(shared_prefix(topic_filter))
    except PatternError as wrong:
        raise options.wrong("topic", f"a topic filter, and in {topic_filter!r} {wrong}") from wrong
    if own != topic_filter and options.text("link") == LOCAL:
        raise options.wrong("topic", "no shared subscription, because the bridge supports those with QoS 1 at most")
    if (error := topic_filter_error(own)) is not None:
        raise options.wrong("topic", f"a topic filter, and in {topic_filter!r} {error}")
    return own


# The subscriber ------------------------------------------------------------------------------------------------------


class NotConnected(Exception):
    """The broker cannot be reached, or rejects the session."""


class SpoolSubscriber(SpoolFiller):
    """Fills a spool from a topic filter. The broker does not report how many publications wait."""

    def __init__(self, options: MqttSourceOptions, topic_filter: str) -> None:
        """Create a session for a topic filter, not yet connected.

        Raises OptionError without a password, SpoolBusy, SpoolDamaged, OSError.
        """
        stream, broker = options.stream, options.broker
        spool = Spool(stream.spool, topic_filter, "mqtt")
        super().__init__(f"topic filter {topic_filter}", spool, stream)
        spool.recover()
        session = f"spark-{spool.id}"
        self._broker = broker
        #: publications, and bytes of payload, of a segment
        self._rows, self._bytes = min(stream.max_messages, TAKE_ROWS), min(stream.max_bytes, TAKE_BYTES)
        self._schema = options.schema
        self._quiet_period = options.quiet_period
        self._client_id = broker.client_id(session)
        #: the broker may still have a session that is older than the spool
        self._fresh = spool.new
        state = spool.state()
        #: packet identifiers of QoS 2 publications that are in the spool and not released
        self._received: frozenset[int] = frozenset(msgspec.msgpack.decode(state, type=list[int]) if state else ())
        #: number of the connection on which the broker began the session, now and as recorded in the spool
        self._session = self._recorded_session = 0
        #: the unreleased packet identifiers of the session before that
        self._earlier: frozenset[int] = frozenset()
        if "in_flight" not in broker.link.model_fields_set:
            broker = msgspec.structs.replace(broker, link=broker.link.model_copy(update={"in_flight": IN_FLIGHT}))
        self._link = broker.connection(
            session, topic_filter=topic_filter, qos=options.qos, on_session=self._note_session
        )
        #: publications are being written to the spool
        self._busy = False
        #: the latest end of an availableNow run
        self._deadline = math.inf
        self._quiet_at = 0.0
        self._seen = -1

    def start(self) -> None:
        """Connect, and start to receive publications. Raises NotConnected."""
        self._link.start()
        self._thread.start()
        if not self._link.wait_connected(CONNECT_WAIT):
            raise NotConnected(
                f"no session at {self._broker.place} for {self.source} within {CONNECT_WAIT:g} s: {self._link.state.error}"
            )

    def stop(self) -> None:
        """Stop. Publications that are not on disk are not acknowledged."""
        self._stopping = True
        self._link.interrupt()
        super().stop()
        self._link.stop(STOP_TIMEOUT)

    def finish(self) -> None:
        """End when no publication has arrived for the quiet period, or after MAX_RUN."""
        self._deadline = time.monotonic() + MAX_RUN

    @property
    def finished(self) -> bool:
        """Whether no publication has arrived for the quiet period, or MAX_RUN has passed."""
        now = time.monotonic()
        received = self._link.counters.received
        if received != self._seen or self._busy:
            self._seen, self._quiet_at = received, now + self._quiet_period
        return now >= min(self._quiet_at, self._deadline)

    def _note_session(self, present: bool) -> None:
        if not present:
            self._session = self._link.generation
        elif self._fresh:
            log.warning(
                "MQB8001W broker %s has a session of client %s that is older than spool %s: acknowledged publications that "
                "are in no batch yet are in another spool; keep that spool",
                self._broker.place,
                self._client_id,
                self.spool.place.path,
            )
        self._fresh = False

    def _run(self) -> None:
        try:
            while not self._stopping:
                if self.spool.wait_below(self._limit, WAIT):
                    self._round()
        except Exception as error:
            log.exception("MQB8002E filling spool %s failed", self.spool.place.path)
            self._error = error

    def _round(self) -> None:
        link = self._link
        arrivals = link.take(self._rows, self._bytes, WAIT)
        self._busy = bool(arrivals)
        released = link.released()
        if link.state.phase is LinkPhase.STOPPED and not self._stopping:
            raise RuntimeError(f"the connection to {link.name} has ended: {link.state.error}")
        session = self._session
        received = before = self._received
        if session != self._recorded_session:
            self._recorded_session, self._earlier, received = session, before, frozenset()
            if self.spool.last:
                log.warning(
                    "MQB8003W broker %s had no session of client %s: publications since the end of the session are lost, "
                    "and unreleased ones may be repeated",
                    self._broker.place,
                    self._client_id,
                )
        new = self._new(arrivals, received)
        received |= {arrival.packet_id for arrival in arrivals if arrival.qos == 2 and arrival.generation >= session}
        received = received.difference(released)
        if new or received != before:
            self._append(new, received)
            self._received = received
        link.acknowledge(arrivals)
        link.complete(released)
        self._busy = False

    def _new(self, arrivals: Sequence[Received], received: frozenset[int]) -> list[Received]:
        """Return the publications that become rows."""
        session, packet_ids, new = self._recorded_session, set(received), []
        for arrival in arrivals:
            publication = arrival.publication
            if publication.qos == 2:
                # A publication of a lost session may still wait to be taken.
                current = arrival.generation >= session
                if publication.packet_id in (packet_ids if current else self._earlier):
                    continue
                if current:
                    packet_ids.add(publication.packet_id)
            new.append(arrival)
        return new

    def _append(self, arrivals: Sequence[Received], received: frozenset[int]) -> None:
        now = time.time_ns() // 1000
        rows = record_batch(arrivals, self._client_id, self._link.name, now, self._schema)
        size = sum(len(arrival.publication.payload) for arrival in arrivals)
        self.spool.publish(self.spool.append([rows], size, now // 1000, _ENCODER.encode(sorted(received))))


def subscribers(options: MqttSourceOptions) -> dict[str, SpoolSubscriber]:
    """Return a subscriber for each topic filter, not started. Raises OSError, OptionError, SpoolBusy, SpoolDamaged."""
    return {topic_filter: SpoolSubscriber(options, topic_filter) for topic_filter in options.topic_filters}


def former_spools(options: MqttSourceOptions) -> dict[str, Spool]:
    """Return the spools of topic filters and queues that are no longer read. Raises OSError, SpoolDamaged."""
    former = open_former(options.stream.spool, options.topic_filters)
    for source, spool in list(former.items()):
        spool.recover()
        if spool.kind == "mq" and not spool.last:
            # It has no files and no witness: never used, or in an object store and processed.
            former.pop(source).close()
    return former


def record_batch(
    received: Sequence[Received], client_id: str, link: str, now: int, schema: Any = MQTT_ARROW_SCHEMA
) -> Any:
    """Return the envelopes of publications, in their order, as a record batch.

    `client_id` is that of the session that received them. `link` is the name of its connection, which counts as the publisher
    of publications that do not name one. `now` is in microseconds since the epoch. `schema` is MQTT_ARROW_SCHEMA or a subset
    of it. Only its columns are computed.
    """
    publications = [arrival.publication for arrival in received]
    count = len(publications)
    arrays = []
    for field in schema:
        values: list[Any]
        match field.name:
            case "client_id":
                arrays.append(constant(client_id, count, field.type))
                continue
            case "received":
                arrays.append(constant(now, count, field.type))
                continue
            case "dup":
                values = [publication.dup for publication in received]
            case "message_id":
                values = [publication.packet_id or None for publication in publications]
            case "properties":
                values = [_properties(publication, link) for publication in publications]
            case "payload_format":
                values = [publication.properties.payload_format_indicator for publication in publications]
            case "expiry":
                values = [
                    None if publication.expiry is None else int(publication.expiry) for publication in publications
                ]
            case name if name in PROPERTY_COLUMNS:
                values = [getattr(publication.properties, name) or None for publication in publications]
            case name:
                values = list(map(attrgetter(name), publications))
        arrays.append(array_of(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _properties(publication: Publication, link: str) -> list[tuple[str, str]]:
    """Return all user properties, including those that another bridge has added."""
    properties = list(publication.user_properties.items())
    if publication.client_id != link:
        properties.append((CLIENT_ID, publication.client_id))
    if publication.hops:
        properties.append((HOPS, ",".join(publication.hops)))
    return properties
