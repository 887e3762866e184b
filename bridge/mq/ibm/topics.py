"""Topics of one publisher: which have an open handle, and which publications wait for the queue manager's answer."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from bridge.mq.mqi import MQOD, Connection
from bridge.wire import cmqc

#: The maximum number of open topic handles. MAXHANDS, 256 by default, must suffice for other handles too.
TOPIC_HANDLES = 200
#: A topic is hot, and gets a handle, at its MIN_USES-th publication among COUNTED of the publisher.
MIN_USES, COUNTED = 16, 4_000
#: Publications of a client that must succeed after a refused one, until it is trusted again.
PROBATION = 100
#: The maximum number of topics and clients with refused publications.
MAX_SUSPECTS = 10_000


def topic_descriptor(topic: str, user: str) -> MQOD:
    """Return the object descriptor of a topic, for publications with the authority of a user, or the bridge's own."""
    return MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=topic, AlternateUserId=user)


class _Handle(msgspec.Struct):
    handle: int
    #: number of the last publication
    used: int


class TopicHandles:
    """Handles of hot topics on one connection.

    MQOPEN and MQCLOSE take a round trip each, while an MQPUT1 with MQPMO_ASYNC_RESPONSE takes none. A handle saves the queue
    manager the resolution of the topic and the check of authority, so it is for topics with many publications only.
    """

    def __init__(self) -> None:
        self._handles: OrderedDict[tuple[str, str], _Handle] = OrderedDict()
        #: uses of topics without a handle, among the present COUNTED publications
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
        """Return whether another handle may be opened. Close one that was not used for COUNTED publications, if necessary."""
        if len(self._handles) < TOPIC_HANDLES:
            return True
        key, oldest = next(iter(self._handles.items()))
        if self._number - oldest.used < COUNTED:
            return False
        del self._handles[key]
        connection.close(oldest.handle)
        return True


class Suspects:
    """Topics and clients whose publications the queue manager has refused lately.

    With MQPMO_ASYNC_RESPONSE, MQSTAT reports the number of refused publications of a unit of work, not which ones, and the
    unit is repeated with answers. Publications that are likely to be refused again wait for their answer at once, so that
    a device with a wrong topic does not cost every unit of work a repetition.
    """

    def __init__(self) -> None:
        self._topics: dict[tuple[str, str], None] = {}
        #: client identifier -> publications that must succeed until the client is trusted again
        self._clients: dict[str, int] = {}

    def includes(self, client_id: str, topic: str, user: str) -> bool:
        """Return whether a publication is likely to be refused."""
        return client_id in self._clients or (topic, user) in self._topics

    def refused(self, client_id: str, topic: str, user: str) -> None:
        """Note a refused publication."""
        if len(self._topics) >= MAX_SUSPECTS:
            del self._topics[next(iter(self._topics))]
        if len(self._clients) >= MAX_SUSPECTS:
            del self._clients[next(iter(self._clients))]
        self._topics[topic, user] = None
        self._clients[client_id] = PROBATION

    def accepted(self, client_id: str, topic: str, user: str) -> None:
        """Note that the queue manager has accepted a publication that waited for its answer."""
        self._topics.pop((topic, user), None)
        if (count := self._clients.pop(client_id, 1) - 1) > 0:
            self._clients[client_id] = count
