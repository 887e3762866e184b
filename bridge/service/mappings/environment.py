"""The environment that the mappings of a bridge share, and the counts of one unit of work."""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Callable, Mapping, Set
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from bridge.administration.mapping_status import Status, UnfinishedSession
from bridge.archive.events import now_us
from bridge.config.link import LinkConfig
from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.mapping.loops import LoopGuard
from bridge.mq.host import Host
from bridge.mq.link_sessions import LinkSessions
from bridge.mq.message_consumer import mapping_subscriptions, remove_subscription
from bridge.mq.mqi import MQOD, Connection, MQError, inquire
from bridge.service.events import Fate
from bridge.service.tracing import MappingTraces
from bridge.wire import cmqc

if TYPE_CHECKING:
    from bridge.service.recorder import MappingRecorder

T = TypeVar("T")

AnyMapping = ToMqMapping | ToMqttMapping

#: Maximum number of messages per mapping that may wait for blocked queues while others continue.
LOOK_AHEAD: Final = 10_000


class Tally(msgspec.Struct):
    """The counts of one unit of work, effective after its commit."""

    taken: int = 0
    moved: int = 0
    filtered: int = 0
    cut: int = 0
    dead_lettered: int = 0
    #: outcome of each message, for the archive and traces
    fates: list[Fate] = []
    #: microseconds since the epoch
    began: int = msgspec.field(default_factory=now_us)

    def settle(self, status: Status) -> None:
        """Add the counts of a committed unit of work to the status."""
        status.taken += self.taken
        status.moved += self.moved
        status.filtered += self.filtered
        status.cut += self.cut
        status.dead_lettered += self.dead_lettered
        status.commits += 1


log = logging.getLogger(__name__)


class MappingEnvironment:
    """The shared environment of a bridge's mappings."""

    def __init__(self, host: Host, owner: str) -> None:
        """Create the environment.

        `owner` identifies the bridge among others on the same queue manager: the name of its transmission queue.
        """
        #: mapping name -> recorder of its moved messages, or None without an archive
        self.recorder: Callable[[str], MappingRecorder] | None = None
        #: mapping name -> tracer of its moved messages, or None if tracing is disabled
        self.traces: Callable[[str], MappingTraces] | None = None
        self._host = host
        self.owner = owner
        self.queue_manager = host.name
        #: prefix of this bridge's hop marks; unlike the queue manager's name, it is globally unique
        self.origin = host.name
        self.dead_letter_queue = host.dead_letter_queue
        #: identifies the store of the queue manager. Packet identifiers recorded in another one mean nothing.
        self.epoch = ""
        #: sessions at brokers that no mapping uses, as of the last look
        self.unfinished: list[UnfinishedSession] = []
        self._look_again = True
        #: knows all currently configured mappings
        self.guard = LoopGuard({}, host.name)

    def connect(self, purpose: str) -> Connection:
        """Return a new connection for the calling thread. Raises MQError."""
        return self._host.connect(purpose)

    def remove_subscription(self, mapping: str) -> int:
        """Remove the subscription of a removed mapping and return how many waiting messages were deleted with it."""
        return self._with_connection(lambda connection: remove_subscription(connection, mapping)) or 0

    def bridge_id(self, connection: Connection) -> str:
        """Return 8 hexadecimal digits that identify the queue manager globally. Raises MQError."""
        return unique_name_of(connection, self.queue_manager).rpartition(".")[2]

    def leave_session(self, mapping: str, mappings: Mapping[str, AnyMapping], links: Mapping[str, LinkConfig]) -> None:
        """Leave the session of a mapping at a broker, if it has one, and try to finish it there.

        The session is ended, unless one of the `mappings` may use it from now on.
        """
        from bridge.service.mappings import former_sessions

        def leave(connection: Connection) -> None:
            sessions = LinkSessions(connection)
            session = sessions.load(mapping)
            if session is None:
                return
            keys = former_sessions.configured_keys(mappings, links, self.bridge_id(connection))
            former_sessions.leave(connection, self, session, ending=session.key not in keys)
            former = sessions.former(session)
            if former is not None:
                former_sessions.settle(connection, self, former, former_sessions.link_of(session, links))

        self._with_connection(leave)

    def leave_other_sessions(self, mappings: Mapping[str, AnyMapping], links: Mapping[str, LinkConfig]) -> None:
        """Leave the sessions of mappings that were removed, or lost their link, while the bridge was stopped."""

        def leave(connection: Connection) -> None:
            linked = {
                name
                for name, config in mappings.items()
                if (config.source if isinstance(config, ToMqMapping) else config.destination).link in links
            }
            left = [session for session in LinkSessions(connection).all(self.owner)[0] if session.mapping not in linked]
            if not left:
                return
            from bridge.service.mappings import former_sessions

            keys = former_sessions.configured_keys(mappings, links, self.bridge_id(connection))
            for session in left:
                former_sessions.leave(connection, self, session, ending=session.key not in keys)

        self._with_connection(leave)

    def former_changed(self) -> None:
        """Have the former sessions looked at again."""
        self._look_again = True

    def settle_former_sessions(
        self, links: Mapping[str, LinkConfig], in_use: Set[str], stopping: Callable[[], bool]
    ) -> None:
        """Try to finish and end the former sessions, and list what is left. Without any, there is nothing to do."""
        if not self._look_again and not self.unfinished:
            return

        def settle(connection: Connection) -> None:
            self._look_again = False
            if not LinkSessions(connection).all(self.owner)[1]:
                self.unfinished = []
                return
            # Imported on demand: many bridges do not need the broker client.
            from bridge.service.mappings import former_sessions

            former_sessions.settle_all(connection, self, links, in_use, stopping)
            self.unfinished = former_sessions.listed(connection, self.owner, links)

        self._with_connection(settle)

    def give_up(self, mapping: str, in_use: Set[str]) -> tuple[int, int] | None:
        """Give up the former sessions of a mapping. Return the numbers of sessions and messages, or None after a failure."""
        from bridge.service.mappings import former_sessions

        def give_up(connection: Connection) -> tuple[int, int]:
            former = LinkSessions(connection).all(self.owner)[1]
            chosen = [one for one in former if one.session.mapping == mapping and one.session.key not in in_use]
            messages = sum(former_sessions.give_up(connection, self, one) for one in chosen)
            self.unfinished = former_sessions.listed(connection, self.owner, {})
            return len(chosen), messages

        return self._with_connection(give_up)

    def forget_others(self, names: Set[str]) -> None:
        """Remove the subscriptions of mappings that are no longer in the configuration."""

        def forget(connection: Connection) -> None:
            self.origin = unique_name_of(connection, self.queue_manager)
            for name in sorted(mapping_subscriptions(connection, self.owner) - names):
                remove_subscription(connection, name)

        self._with_connection(forget)

    def _with_connection(self, clean_up: Callable[[Connection], T]) -> T | None:
        """Run a clean-up on a separate connection and return its result, or None after a failure, which is logged.

        A failed clean-up only wastes space. The next start tries again.
        """
        try:
            connection = self.connect("clean-up")
            try:
                return clean_up(connection)
            finally:
                with contextlib.suppress(MQError):
                    connection.disconnect()
        except MQError as error:
            log.warning("MQB5207W cleaning up after removed mappings failed: %s", error)
            return None


def unique_name_of(connection: Connection, queue_manager: str) -> str:
    """Return a globally unique name of a queue manager: its name and a digest of its QMID.

    Two sites may have bridges and mappings with equal names. Raises MQError.
    """
    _, (identifier,) = inquire(connection, MQOD(ObjectType=cmqc.MQOT_Q_MGR), (cmqc.MQCA_Q_MGR_IDENTIFIER,))
    return f"{queue_manager}.{hashlib.sha256(identifier.strip().encode()).hexdigest()[:8]}"
