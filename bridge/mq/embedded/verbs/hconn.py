"""The connection handle: what the verbs of one connection share.

Whose it is, what it has open, the unit of work it is in, and what authority it is asked for.
"""

from __future__ import annotations

from bridge.mq.embedded.objects import Destination
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.unit import Unit
from bridge.mq.embedded.verbs.descriptor import Completed
from bridge.mq.embedded.verbs.handle import Handle, QueueHandle, SubscriptionHandle
from bridge.mq.embedded.verbs.outcomes import Outcomes
from bridge.mq.errors import MQError
from bridge.mq.mqi import MQOD
from bridge.wire import cmqc


class Hconn:
    """One connection to the embedded queue manager; `mqconn` makes it."""

    __slots__ = (
        "__weakref__",
        "_next_hobj",
        "address",
        "asked",
        "channel_quiescing",
        "completed",
        "connection_id",
        "handles",
        "name",
        "outcomes",
        "queue_manager",
        "unit",
        "user",
    )

    def __init__(self, queue_manager: QueueManager, name: str, user: str, asked: str | None) -> None:
        self.queue_manager = queue_manager
        #: of the application
        self.name = name
        self.user = user.encode()[:12]
        #: the user whose authorities the queue manager asks for, None the bridge itself
        self.asked = asked
        #: IP address of the application; "" if it did not connect over TCP
        self.address = ""
        self.connection_id = queue_manager.connection_id()
        #: what is open, by Hobj
        self.handles: dict[int, Handle] = {}
        self._next_hobj = 1
        #: the unit of work; None when no verb was in syncpoint since the last one ended
        self.unit: Unit | None = None
        #: STOP CHANNEL has stopped the server-connection channel
        self.channel_quiescing = False
        #: of the puts whose response nobody waits for
        self.outcomes = Outcomes(queue_manager.name)
        #: the MQMD of the last put, where the next may have the same
        self.completed: Completed | None = None

    # Handles ---------------------------------------------------------------------------------------------------------

    def check_room(self) -> None:
        """Check that one more handle may be open. Raises MQError."""
        if len(self.handles) >= int(self.queue_manager.attributes["MAXHANDS"]):
            raise MQError(cmqc.MQRC_HANDLE_NOT_AVAILABLE, "MAXHANDS handles are open")

    def keep(self, handle: Handle) -> int:
        """Return the Hobj of a new handle."""
        hobj = self._next_hobj
        self._next_hobj += 1
        self.handles[hobj] = handle
        return hobj

    def find(self, hobj: int) -> Handle:
        """Return the handle of an Hobj. Raises MQError."""
        handle = self.handles.get(hobj)
        if handle is None:
            raise MQError(cmqc.MQRC_HOBJ_ERROR, f"handle {hobj}")
        if not isinstance(handle, SubscriptionHandle) and handle.changed:
            raise MQError(cmqc.MQRC_OBJECT_CHANGED, f"definitions of handle {hobj} have changed: close it and open it again")
        return handle

    def find_queue(self, hobj: int) -> QueueHandle:
        """Return the handle of an Hobj that messages are got from. Raises MQError."""
        handle = self.find(hobj)
        if not isinstance(handle, QueueHandle):
            raise MQError(cmqc.MQRC_HOBJ_ERROR, "messages are got from queues")
        return handle

    # The unit of work ------------------------------------------------------------------------------------------------

    @property
    def in_unit_of_work(self) -> bool:
        """Return whether something is uncommitted."""
        return self.unit is not None and not self.unit.empty

    def unit_of_work(self) -> Unit:
        """Return the unit of work with one more verb in it. Raises MQError with MQRC_SYNCPOINT_LIMIT_REACHED."""
        unit = self.unit
        if unit is None:
            unit = self.unit = Unit()
        if unit.verbs >= int(self.queue_manager.attributes["MAXUMSGS"]):
            raise MQError(cmqc.MQRC_SYNCPOINT_LIMIT_REACHED, "MAXUMSGS messages are uncommitted")
        unit.verbs += 1
        return unit

    # What the queue manager allows -----------------------------------------------------------------------------------

    def check_quiescing(self, options: int) -> None:
        """Raise MQError where the options of a verb have _FAIL_IF_QUIESCING, one number for all, and the end is near."""
        if self.queue_manager.quiescing and options & cmqc.MQOO_FAIL_IF_QUIESCING:
            raise MQError(cmqc.MQRC_Q_MGR_QUIESCING, f"queue manager {self.queue_manager.name} is about to end")
        if self.channel_quiescing and options & cmqc.MQOO_FAIL_IF_QUIESCING:
            raise MQError(cmqc.MQRC_CONNECTION_QUIESCING, "the channel is stopped")

    def check_administrator(self, command: str) -> None:
        """Check that the connected user may run commands. Raises MQError."""
        if self.queue_manager.authorization is not None:
            self.queue_manager.authorization.administering(self.asked, command)

    def acting(self, od: MQOD, options: int) -> str | None:
        """Return the user that opens an object: the alternate user, or the connection's own."""
        alternate = _alternate_user(od, options)
        return self.asked if alternate is None else alternate

    def ask_object(self, od: MQOD, options: int, type: int, name: str, *more: str) -> None:
        """Ask whether an object may be opened. Raises MQError."""
        if self.queue_manager.authorization is not None:
            alternate = _alternate_user(od, options)
            self.queue_manager.authorization.opening(self.asked, alternate, type, name, options, *more)

    def ask_queue(self, od: MQOD, options: int, name: str, destination: Destination | None = None, *more: str) -> str:
        """Ask whether a queue may be opened; the object that was asked about. Raises MQError.

        One at another queue manager is asked about by the transmission queue to it (IBM MQ, "MQOPEN").
        """
        queue_manager = self.queue_manager
        if destination is not None and destination.client_id and od.ObjectQMgrName not in ("", queue_manager.name):
            assert destination.queue is not None
            name = destination.queue.name
        if queue_manager.authorization is not None:
            queue = queue_manager.queues.get(name)
            if queue is None or queue.owner is None or queue.owner != self.acting(od, options):
                self.ask_object(od, options, cmqc.MQOT_Q, name, *more)
            else:
                queue_manager.authorization.opening_own(self.asked, options)
        return name

    def ask_topic(self, od: MQOD, options: int, topic: str) -> None:
        """Ask whether a topic may be opened. Raises MQError."""
        if self.queue_manager.authorization is not None:
            self.queue_manager.authorization.opening_topic(self.asked, _alternate_user(od, options), topic, options)

    # What the queue manager makes ------------------------------------------------------------------------------------

    def generated(self) -> bytes:
        """Return an identifier that no other message has."""
        return self.queue_manager.appearance.generated(self.queue_manager.next_number())


def _alternate_user(od: MQOD, options: int) -> str | None:
    """Return AlternateUserId of an object that is opened with MQOO_ALTERNATE_USER_AUTHORITY, else None."""
    return od.AlternateUserId if options & cmqc.MQOO_ALTERNATE_USER_AUTHORITY else None
