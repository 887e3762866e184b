"""The environment of mappings, which they share: how to reach the queue manager, and which others there are."""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Callable, Mapping, Set

from bridge.archive.mapping_observer import MappingObserver
from bridge.config import LinkConfig
from bridge.mapping.rules.loops import LoopGuard
from bridge.mq.host import Host
from bridge.mq.mapping_subscription import mapping_subscriptions, remove_subscription
from bridge.mq.mqi import MQOD, Connection, MQError
from bridge.mq.state import LinkSessions, MappingState
from bridge.service.tracing.tracing import MappingTraces
from bridge.wire import cmqc

log = logging.getLogger(__name__)


class MappingEnvironment:
    """The bridge as its mappings see it."""

    def __init__(
        self, host: Host, owner: str, observer: Callable[[str], MappingObserver] = lambda _mapping: MappingObserver()
    ) -> None:
        """Set up what the mappings of the bridge share.

        `owner` tells the bridge from others on the same queue manager: the name of its transmission queue.
        """
        #: returns, by the name of a mapping, what is told of each message that it moves
        self.observer = observer
        #: returns, by the name of a mapping, what traces the messages that it moves; None: nothing is traced
        self.traces: Callable[[str], MappingTraces] | None = None
        self._host = host
        self.owner = owner
        self.queue_manager = host.name
        #: what hop marks of this bridge begin with: unlike its name, no other queue manager has it
        self.origin = host.name
        self.dead_letter_queue = host.dead_letter_queue
        #: knows all mappings as they are configured now
        self.guard = LoopGuard({}, host.name)

    def connect(self, purpose: str) -> Connection:
        """Make a connection for the calling thread. Raises MQError."""
        return self._host.connect(purpose)

    def remove_subscription(self, mapping: str) -> int:
        """End what takes messages for a mapping that is no more; return how many waited there, and are gone."""
        lost: list[int] = []
        self._with_connection(lambda connection: lost.append(remove_subscription(connection, mapping)))
        return sum(lost)

    def remove_record(self, mapping: str) -> None:
        """End what is on record of how far a mapping has come that is no more."""

        def remove(connection: Connection) -> None:
            MappingState(connection, mapping).remove()
            connection.commit()

        self._with_connection(remove)

    def bridge_id(self, connection: Connection) -> str:
        """Return 8 hexadecimal digits that tell the queue manager from all others. Raises MQError."""
        return unique_name_of(connection, self.queue_manager).rpartition(".")[2]

    def recorded_client_id(self, mapping: str) -> str:
        """Return the client identifier of the session that a mapping has at a broker; "" if none is on record."""
        found: list[str] = []

        def load(connection: Connection) -> None:
            session = LinkSessions(connection).load(mapping)
            if session is not None:
                found.append(session.client_id)

        self._with_connection(load)
        return "".join(found)

    def remove_session(self, mapping: str) -> None:
        """Forget that a mapping had a session at a broker."""
        self._with_connection(lambda connection: LinkSessions(connection).remove(mapping))

    def end_other_sessions(self, names: Set[str], links: Mapping[str, LinkConfig]) -> None:
        """End the sessions at brokers of mappings that are no more in the configuration: else they gather for ever."""

        def end(connection: Connection) -> None:
            for session in LinkSessions(connection).all(self.owner):
                if session.mapping in names:
                    continue
                config = links.get(session.link)
                if config is None:
                    log.warning(
                        "MQB5205W mapping %s is no more, nor is its link %s: its session %r at %s:%d goes on there "
                        "until somebody "
                        "connects with that client identifier and a clean session",
                        session.mapping, session.link, session.client_id, session.host, session.port,
                    )  # fmt: skip
                    continue
                there = config.model_copy(update={"host": session.host, "port": session.port})
                # Imported where there is such a session: with it comes the client of brokers.
                from bridge.service.mappings.link_session import end_session

                if end_session(session.mapping, session.link, there, session.client_id):
                    log.warning(
                        "MQB5206W mapping %s is no more: its session at %s is ended", session.mapping, session.host
                    )
                    LinkSessions(connection).remove(session.mapping)

        self._with_connection(end)

    def forget_others(self, names: Set[str]) -> None:
        """Remove the subscriptions of mappings that are no more in the configuration."""

        def forget(connection: Connection) -> None:
            self.origin = unique_name_of(connection, self.queue_manager)
            for name in sorted(mapping_subscriptions(connection, self.owner) - names):
                remove_subscription(connection, name)

        self._with_connection(forget)

    def _with_connection(self, clean_up: Callable[[Connection], object]) -> None:
        """Run a clean-up on a connection of its own; put a failure into the log.

        What is left behind does no harm but to take up room: the bridge goes on, and the next start tries again.
        """
        try:
            connection = self.connect("mappings")
            try:
                clean_up(connection)
            finally:
                with contextlib.suppress(MQError):
                    connection.disconnect()
        except MQError as error:
            log.warning("MQB5207W subscriptions or records of mappings that are no more may be left: %s", error)


def unique_name_of(connection: Connection, queue_manager: str) -> str:
    """Return what tells a queue manager from all others, also of its name: the name, and a digest of its QMID.

    Two sites may well have bridges and mappings of equal names. Raises MQError.
    """
    handle = connection.open(MQOD(ObjectType=cmqc.MQOT_Q_MGR), cmqc.MQOO_INQUIRE)
    try:
        _, (identifier,) = connection.inquire(handle, (cmqc.MQCA_Q_MGR_IDENTIFIER,))
    finally:
        connection.close(handle)
    return f"{queue_manager}.{hashlib.sha256(identifier.strip().encode()).hexdigest()[:8]}"
