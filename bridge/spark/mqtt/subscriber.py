"""A session at a broker whose publications go to a spool: acknowledged when they are on disk, and not before.

QoS 2: the message ids that are in the spool and not released stand beside the rows, in the same frame, so that a
publication which the broker repeats is known (method B of MQTT 3.1.1, figure 4.3), whatever was killed when.

QoS 1: PUBACK after the fsync; a publication whose PUBACK is lost comes again, with DUP. It is known, and acknowledged
without a second row, where that is certain (`bridge.spark.mqtt.repeated_publications`): the broker has numbered more
publications of this session in sequence, without a gap, than it may have unacknowledged (with MQTT 5 `in_flight`, at least
20; with MQTT 3.1.1, where nothing limits it, 65,535), the message id is one of so many last, and the content is that of the
row.
Else it is a second row: with a broker that numbers otherwise, at the beginning of a session, after a gap, which a full
queue leaves at mosquitto, and where more is unacknowledged than it may be: mosquitto sends on what it has to a client that
came back without counting what it repeats. A broker that falls back to an earlier state of its own (killed, with a session
that it wrote to disk a while ago) loses publications, and may number others as it did before.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from bridge.link.state import LinkPhase, LinkState
from bridge.spark.mqtt.broker import Broker
from bridge.spark.mqtt.envelope import record_batch
from bridge.spark.mqtt.repeated_publications import LAST_ID, digests_of
from bridge.spark.mqtt.spool import SessionAtBroker, Spool, sessions_in
from bridge.telemetry.message import Received

log = logging.getLogger(__name__)

#: Bytes of payload that are taken, and brought to disk, at once.
TAKE_BYTES: Final = 1024 * 1024
#: Seconds that a round waits for a publication, or for the spool to get smaller.
WAIT: Final = 0.5
#: Seconds that a link has to say goodbye.
FAREWELL: Final = 5.0


class Subscriber:
    """Fills a spool from a topic filter, on a thread of its own. Raises OptionError where there is no password."""

    def __init__(self, broker: Broker, spool: Spool, topic_filter: str, qos: int, limit: int) -> None:
        """Make a session for a topic filter, not yet connected.

        `limit`: bytes of payload not yet committed from which nothing more is taken; the broker keeps it.
        """
        session = f"spark-{spool.id}"
        self.topic_filter = topic_filter
        self._broker = broker
        self._spool = spool
        self._limit = limit
        self._client_id = broker.client_id(session)
        #: the spool has never been filled
        self._fresh = not spool.end and not sessions_in(spool.directory)
        spool.note_session(SessionAtBroker(broker.place, self._client_id))
        #: number of the connection since which the broker has had the session; and as the spool knows it
        self._session = self._recorded_session = 0
        #: what the spool knew of the session before that
        self._earlier: frozenset[int] = frozenset()
        self._link = broker.connection(
            session, topic_filter=topic_filter, qos=qos, on_session=self._note_session
        )
        # Receive Maximum, of which MQTT 3.1.1 knows nothing.
        spool.repeated_publications.allow(broker.link.in_flight if broker.link.version == "5" else LAST_ID)
        self._stopping = False
        #: something is on its way to the spool
        self.busy = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"spool-{topic_filter}", daemon=True)

    def start(self) -> None:
        """Begin to connect, and to take."""
        self._link.start()
        self._thread.start()

    def stop(self) -> None:
        """End; what is taken and not on disk is not acknowledged."""
        self._stopping = True
        self._link.interrupt()
        self._thread.join()
        self._link.stop(FAREWELL)

    @property
    def state(self) -> LinkState:
        """Return the state of the connection."""
        return self._link.state

    @property
    def received(self) -> int:
        """Return how many publications have come from the broker since the start."""
        return self._link.counters.received

    def wait_connected(self, wait: float) -> bool:
        """Wait until the session is connected, for so many seconds at most; return whether it is."""
        return self._link.wait_connected(wait)

    def check(self) -> None:
        """Raise RuntimeError where the thread has ended by an error, which is its cause."""
        if self._error is not None:
            raise RuntimeError(
                f"spool {self._spool.directory} of topic filter {self.topic_filter} takes no more: {self._error}"
            ) from self._error

    def _note_session(self, present: bool) -> None:
        if not present:
            self._session = self._link.generation
        elif self._fresh:
            log.warning(
                "MQB8001W the broker %s has a session of client %s from before spool %s: publications that are "
                "acknowledged and in no"
                " batch are in another spool, and lost if that is lost",
                self._broker.place,
                self._client_id,
                self._spool.directory,
            )
        self._fresh = False

    def _run(self) -> None:
        try:
            while not self._stopping:
                if self._spool.wait_smaller(self._limit, WAIT):
                    self._round()
        except Exception as error:
            # Told to Spark by the next call that it makes.
            log.exception("MQB8002E spool %s", self._spool.directory)
            self._error = error

    def _round(self) -> None:
        link, spool = self._link, self._spool
        items = link.take(self._broker.link.in_flight, TAKE_BYTES, WAIT)
        self.busy = bool(items)
        released = link.released()
        if link.state.phase is LinkPhase.STOPPED and not self._stopping:
            raise RuntimeError(f"the connection to {link.name} has ended: {link.state.error}")
        session = self._session
        received = before = spool.received
        forgotten = False
        if session != self._recorded_session:
            self._recorded_session, self._earlier, received = session, before, frozenset()
            forgotten = spool.repeated_publications.forget()
            if spool.end:
                log.warning(
                    "MQB8003W the broker %s had no session of client %s: what came for it meanwhile is lost, and what "
                    "was not"
                    " released it may send again",
                    self._broker.place,
                    self._client_id,
                )
        new = self._new(items, received)
        received |= {one.mid for one in items if one.qos == 2 and one.generation >= session}
        received = received.difference(released)
        if new or received != before or forgotten:
            self._append(new, received)
        link.acknowledge(items)
        link.complete(released)
        self.busy = False

    def _new(self, items: Sequence[Received], received: frozenset[int]) -> list[Received]:
        """Return the publications that become rows; then they are counted."""
        repeated, session, new = self._spool.repeated_publications, self._recorded_session, []
        for one in items:
            publication = one.publication
            qos, message_id = publication.qos, publication.message_id
            if one.generation < session:
                # Of a session that is lost: its publications may still wait here to be taken.
                if qos == 2 and message_id in self._earlier:
                    continue
            elif qos:
                if message_id in received if qos == 2 else one.dup and self._is_row(one):
                    continue
                repeated.add(message_id)
            new.append(one)
        return new

    def _is_row(self, item: Received) -> bool:
        behind = self._spool.repeated_publications.find(item.publication.message_id)
        if behind is None:
            return False
        return digests_of(self._rows([item])) == [self._spool.digest(behind)]

    def _rows(self, items: Sequence[Received]) -> Any:
        return record_batch(items, self._client_id, self._link.name, time.time_ns() // 1000)

    def _append(self, items: Sequence[Received], received: frozenset[int]) -> None:
        if not items:
            self._spool.append(None, 0, received)
            return
        self._spool.append(self._rows(items), sum(len(one.publication.payload) for one in items), received)
