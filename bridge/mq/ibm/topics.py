"""Topics of one publisher: open handles, and the publications that wait for the queue manager's reply."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from bridge.mq.mqi import MQOD, Connection
from bridge.wire import cmqc

#: The maximum number of open topic handles. MAXHANDS, 256 by default, must suffice for other handles too.
TOPIC_HANDLES = 200
#: A topic is hot, and gets a handle, at its MIN_USES-th publication among the publisher's last COUNTED publications.
MIN_USES, COUNTED = 16, 4_000
#: Publications of a client that must succeed after a rejected publication, until the client is trusted again.
PROBATION = 100
#: The maximum number of topics and clients with rejected publications.
MAX_SUSPECTS = 10_000


def topic_descriptor(topic: str, user: str) -> MQOD:
    """Return the object descriptor of a topic, for publications with the authority of a user or of the bridge."""
    return MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=topic, AlternateUserId=user)


class _Handle(msgspec.Struct):
    handle: int
    #: number of the last publication
    used: int


class TopicHandles:
    """Handles of hot topics on one connection.

    MQOPEN and MQCLOSE take a round trip each, but an MQPUT1 with MQPMO_ASYNC_RESPONSE takes none. With a handle, the queue
    manager need not resolve the topic and check the authority again. So a handle pays only for topics with many publications.
    """

    def __init__(self) -> None:
        self._handles: OrderedDict[tuple[str, str], _Handle] = OrderedDict()
        #: uses of topics without a handle, among the current COUNTED publications
        self._uses: dict[tuple[str, str], int] = {}
        self._number = 0

    def handle(self, connection: Connection, topic: str, user: str) -> int | None:
        """Count a publication, and return the handle for it, or None for MQPUT1. Raises MQError if MQOPEN fails."""
        key, handles = (topic, user), self._handles
        self._number += 1
        if not self._number % COUNTED:
            self._uses.clear()
        open_ = handles.get(key)
        if open_ is not None:
            open_.used = self._number
            handles.move_to_end(key)
            return open_.handle
        uses = self._uses[key] = self._uses.get(key, 0) + 1
        if uses < MIN_USES or not self._has_room(connection):
            return None
        options = cmqc.MQOO_OUTPUT | cmqc.MQOO_SET_IDENTITY_CONTEXT | cmqc.MQOO_FAIL_IF_QUIESCING
        if user:
            options |= cmqc.MQOO_ALTERNATE_USER_AUTHORITY
        handle = connection.open(topic_descriptor(topic, user), options)
        handles[key] = _Handle(handle, self._number)
        return handle

    def _has_room(self, connection: Connection) -> bool:
        """Return whether another handle may be opened. If necessary, close a handle unused for COUNTED publications."""
        if len(self._handles) < TOPIC_HANDLES:
            return True
        key, oldest = next(iter(self._handles.items()))
        if self._number - oldest.used < COUNTED:
            return False
        del self._handles[key]
        connection.close(oldest.handle)
        return True


class Suspects:
    """Topics and clients whose publications the queue manager has recently rejected.

    With MQPMO_ASYNC_RESPONSE, MQSTAT reports only the number of rejected publications of a unit of work, so the unit is
    repeated with synchronous puts. Publications that are likely to be rejected again are put synchronously at once. So a
    device with a wrong topic does not cause a repetition of every unit of work.
    """

    def __init__(self) -> None:
        self._topics: dict[tuple[str, str], None] = {}
        #: client identifier -> publications that must succeed until the client is trusted again
        self._clients: dict[str, int] = {}

    def includes(self, client_id: str, topic: str, user: str) -> bool:
        """Return whether a publication is likely to be rejected."""
        return client_id in self._clients or (topic, user) in self._topics

    def refused(self, client_id: str, topic: str, user: str) -> None:
        """Note a rejected publication."""
        if len(self._topics) >= MAX_SUSPECTS:
            del self._topics[next(iter(self._topics))]
        if len(self._clients) >= MAX_SUSPECTS:
            del self._clients[next(iter(self._clients))]
        self._topics[topic, user] = None
        self._clients[client_id] = PROBATION

    def accepted(self, client_id: str, topic: str, user: str) -> None:
        """Note that the queue manager has accepted a synchronous publication."""
        self._topics.pop((topic, user), None)
        if (count := self._clients.pop(client_id, 1) - 1) > 0:
            self._clients[client_id] = count
