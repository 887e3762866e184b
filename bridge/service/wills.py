"""The wills of disconnected clients: published, delayed, or recorded while the bridge restarts."""

from __future__ import annotations

import logging
from functools import partial

from bridge.clock import now_us
from bridge.mq.backend import Completion, UnitOfWork
from bridge.mqtt.packets import Publish, PublishProperties, Will
from bridge.service.client import Client, Units, forbidden_of
from bridge.service.events import EventBus, Published
from bridge.service.payload_schemas import PayloadSchemas
from bridge.service.turns import Timers
from bridge.telemetry.conversion import to_mq
from bridge.telemetry.headers import PROPERTIES
from bridge.telemetry.record import Side, StateKey, StateRecord, WillRecord
from bridge.telemetry.session import Session
from bridge.wire import cmqc

log = logging.getLogger(__name__)


class Wills:
    """Wills of clients that disconnected without DISCONNECT (MQTT-3.1.2-8), and those waiting for their delay."""

    def __init__(self, units: Units, events: EventBus, schemas: PayloadSchemas) -> None:
        self._units = units
        self._events = events
        self._schemas = schemas
        self._timers = Timers()
        #: waiting wills by client identifier
        self._waiting: dict[str, tuple[Will, Session]] = {}
        #: client identifiers of waiting wills that have a record
        self._recorded: set[str] = set()
        #: the bridge stops, and wills are recorded instead of published
        self._holding = False

    def leave(self, client: Client, session: Session) -> None:
        """Publish the will of a disconnected client, immediately or after its Will Delay Interval (MQTT-3.1.3-9).

        If the session ends earlier, `publish_now` publishes the will then.
        """
        will, client.will = client.will, None
        assert will is not None
        if self._holding:
            self._publish(will, session, record=True)
            return
        delay = (will.properties.will_delay_interval or 0) if will.properties is not None else 0
        if delay and session.expiry_interval:
            self._waiting[session.client_id] = will, session
            self._timers.set(session.client_id, delay, partial(self.publish_now, session.client_id))
        else:
            self._publish(will, session)

    def withdraw(self, client_id: str) -> None:
        """Discard the will of a client that has reconnected."""
        self._timers.cancel(client_id)
        self._waiting.pop(client_id, None)
        if client_id in self._recorded:
            self._units.submit(UnitOfWork(records=self._removal(client_id)))

    def hold(self) -> None:
        """Record wills from now on instead of publishing them: the bridge stops and disconnects its clients."""
        self._holding = True

    def _record(self, will: Will, session: Session) -> None:
        record = WillRecord(session.client_id, will, session.identity.user)
        self._units.submit(UnitOfWork(records={record.key: record}))

    def restore(self, will: Will, session: Session, delay: float) -> None:
        """Publish a recorded will after `delay` seconds, unless its client reconnects before that."""
        self._waiting[session.client_id] = will, session
        self._recorded.add(session.client_id)
        self._timers.set(session.client_id, delay, partial(self.publish_now, session.client_id))

    def _removal(self, client_id: str) -> dict[StateKey, StateRecord | None]:
        """Return the removal of a will's record, or nothing without a record."""
        if client_id not in self._recorded:
            return {}
        self._recorded.discard(client_id)
        return {StateKey(Side.WILL, client_id): None}

    def publish_now(self, client_id: str) -> None:
        """Publish a waiting will, if any: its delay has passed or its session has ended."""
        self._timers.cancel(client_id)
        waiting = self._waiting.pop(client_id, None)
        if waiting is not None:
            self._publish(*waiting)

    def publish_all(self) -> None:
        """Publish or record all waiting wills: the bridge stops."""
        for client_id in list(self._waiting):
            if not self._holding:
                self.publish_now(client_id)
            elif client_id not in self._recorded:
                self._publish(*self._waiting[client_id], record=True)

    def _publish(self, will: Will, session: Session, *, record: bool = False) -> None:
        """Publish a will. With `record`, record it instead unless it is rejected."""
        publication = Publish(will.topic, will.payload, will.qos, will.retain, properties=_properties(will))
        publications = [(to_mq(publication, session.identity), will.retain)]
        unit = UnitOfWork(publications, forbidden=forbidden_of(session, publications))
        invalid = self._schemas.refuse(unit, session, will=True)
        if record and not unit.forbidden:
            self._record(will, session)
            return
        received = now_us()

        def ended(completion: Completion) -> None:
            self._events.publish(Published(session, unit.publications, completion, received, invalid))
            reason = completion.failure or completion.refusals.get(0, 0)
            if 0 in completion.diverted:
                log.error(
                    "MQB2106E dead-lettered the will of client %r to %r: %s", session.client_id, will.topic, invalid[0]
                )
            if reason:
                log.error(
                    "MQB2103E the will of client %r to %r as user %r was rejected: %s (%d)",
                    session.client_id,
                    will.topic,
                    session.identity.user.decode("utf-8", "replace"),
                    cmqc.reason_name(reason),
                    reason,
                )

        unit.records = self._removal(session.client_id)
        traces = self._units.traces
        followed = ended if traces is None else traces.following(session, unit.publications, received, ended)
        self._units.submit(unit, followed)


def _properties(will: Will) -> PublishProperties | None:
    """Return the properties of the publication for a will."""
    properties = will.properties
    if properties is None:
        return None
    return PublishProperties(
        message_expiry_interval=properties.message_expiry_interval,
        **{header_property.field: getattr(properties, header_property.field) for header_property in PROPERTIES},
    )
