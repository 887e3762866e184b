"""The environment that the mappings of a bridge share, and the counts of one unit of work."""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Callable, Iterable, Set
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from bridge.administration.mapping_status import MappingStatus
from bridge.clock import now_us
from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.mapping.loops import LoopGuard
from bridge.mq.host import Host
from bridge.mq.message_consumer import mapping_subscriptions, remove_subscription
from bridge.mq.mqi import MQOD, Connection, MQError, inquire
from bridge.service.events import Fate
from bridge.service.tracing import MappingTraces
from bridge.wire import cmqc

if TYPE_CHECKING:
    from bridge.service.recorder import MappingRecorder

T = TypeVar("T")


#: Maximum number of messages per mapping that may wait for blocked queues while others continue.
LOOK_AHEAD: Final = 10_000


class Tally(msgspec.Struct):
    """The counts of one unit of work, effective after its commit."""

    taken: int = 0
    moved: int = 0
    filtered: int = 0
    cut: int = 0
    dead_lettered: int = 0
    #: number of messages that `split` created from the moved messages
    parts: int = 0
    #: the largest number that it created from one message
    most_parts: int = 0
    #: messages that the mapping takes and leaves out
    left_out: dict[str, int] = {}
    #: messages that could not be processed and were discarded, by MQRC
    discarded: dict[str, int] = {}
    #: outcome of each message, for the archive and traces
    fates: list[Fate] = []
    #: microseconds since the epoch
    began: int = msgspec.field(default_factory=now_us)

    def settle(self, status: MappingStatus) -> None:
        """Add the counts of a committed unit of work to the status."""
        status.taken += self.taken
        status.moved += self.moved
        status.filtered += self.filtered
        status.cut += self.cut
        status.dead_lettered += self.dead_lettered
        status.parts += self.parts
        for numbers, total in ((self.discarded, status.discarded), (self.left_out, status.left_out)):
            for reason, number in numbers.items():
                total[reason] = total.get(reason, 0) + number
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
        #: called on the threads of mappings with a limit that is reached, a mapping and a number
        self.on_limit: Callable[[str, str, int], object] = lambda _limit, _mapping, _number: None
        #: prefix of this bridge's hop marks; unlike the queue manager's name, it is globally unique
        self.origin = host.name
        self.dead_letter_queue = host.dead_letter_queue
        self.dead_letter_room = host.dead_letter_room
        #: publications of MQTT clients contain the user in the RFH2, not in the MQMD
        self.names_publishers = False
        #: changes if the queue manager is restored. Packet identifiers recorded in another epoch are invalid
        self.epoch = host.epoch
        #: former sessions at brokers may have changed since the last check
        self.former_sessions_changed = True
        #: called on any thread after a change
        self.on_former_sessions: Callable[[], object] = lambda: None
        #: knows all currently configured mappings
        self.guard = LoopGuard({}, host.name)

    def note_former_sessions(self) -> None:
        """Note that sessions became former, or were finished."""
        self.former_sessions_changed = True
        self.on_former_sessions()

    def name_publishers(self, mappings: Iterable[ToMqMapping | ToMqttMapping]) -> None:
        """Write the users of MQTT clients into their publications if a mapping puts with the authority of the publisher."""
        is_wanted = any(
            config.enabled
            and config.destination.authority == "publisher"
            and getattr(config.source, "queue", None) is None
            for config in mappings
        )
        self.names_publishers = self._host.name_publishers(is_wanted)

    def connect(self, purpose: str) -> Connection:
        """Return a new connection for the calling thread. Raises MQError."""
        return self._host.connect(purpose)

    def remove_subscription(self, mapping: str) -> int:
        """Remove the subscription of a removed mapping, and return the number of waiting messages deleted with it."""
        return self.with_connection(lambda connection: remove_subscription(connection, mapping)) or 0

    def bridge_id(self, connection: Connection) -> str:
        """Return 8 hexadecimal digits that identify the queue manager globally. Raises MQError."""
        return unique_name_of(connection, self.queue_manager).rpartition(".")[2]

    def identify(self) -> None:
        """Determine `origin`."""

        def identify(connection: Connection) -> None:
            self.origin = unique_name_of(connection, self.queue_manager)

        self.with_connection(identify)

    def forget_others(self, names: Set[str]) -> None:
        """Remove the subscriptions of mappings, except those with these names."""

        def forget(connection: Connection) -> None:
            for name in sorted(mapping_subscriptions(connection, self.owner) - names):
                remove_subscription(connection, name)

        self.with_connection(forget)

    def with_connection(self, clean_up: Callable[[Connection], T]) -> T | None:
        """Run a clean-up on a separate connection and return its result, or None after a failure, which is logged.

        A failed clean-up changes nothing.
        """
        try:
            return self.run(clean_up)
        except MQError as error:
            log.warning("MQB5207W cleaning up after changed or removed mappings failed: %s", error)
            return None

    def run(self, work: Callable[[Connection], T]) -> T:
        """Run MQI calls on a separate connection and return their result. Raises MQError, and then changes nothing."""
        connection = self.connect("clean-up")
        try:
            return work(connection)
        except BaseException:
            # Disconnecting would commit half of the unit of work.
            with contextlib.suppress(MQError):
                connection.backout()
            raise
        finally:
            with contextlib.suppress(MQError):
                connection.disconnect()


def unique_name_of(connection: Connection, queue_manager: str) -> str:
    """Return a globally unique name of a queue manager: its name and a digest of its QMID.

    Two sites may have bridges and mappings with equal names. Raises MQError.
    """
    _, (identifier,) = inquire(connection, MQOD(ObjectType=cmqc.MQOT_Q_MGR), (cmqc.MQCA_Q_MGR_IDENTIFIER,))
    return f"{queue_manager}.{hashlib.sha256(identifier.strip().encode()).hexdigest()[:8]}"
