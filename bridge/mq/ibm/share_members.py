"""The shards that have members of a shared subscription, as messages on a queue of the queue manager.

The subscription is managed (MQSO_MANAGED): publications wait on a queue that the queue manager creates and deletes together
with the subscription. The last shard that leaves removes the subscription. Joining and leaving take several calls, so a shard
has the queue of these messages open for exclusive input meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bridge.config.queue_manager import SHARE_MEMBERS_QUEUE
from bridge.mq.mqi import MQOD, MQSD, Connection, GetOptions, MQError, get_or_none
from bridge.telemetry.message import Message
from bridge.telemetry.subscription import SharedSubscription
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

_OPEN: Final = cmqc.MQOO_INPUT_EXCLUSIVE | cmqc.MQOO_BROWSE | cmqc.MQOO_OUTPUT | cmqc.MQOO_FAIL_IF_QUIESCING
_RESUME: Final = (
    cmqc.MQSO_RESUME
    | cmqc.MQSO_DURABLE
    | cmqc.MQSO_MANAGED
    | cmqc.MQSO_WILDCARD_TOPIC
    | cmqc.MQSO_ANY_USERID
    | cmqc.MQSO_SET_CORREL_ID
    | cmqc.MQSO_FAIL_IF_QUIESCING
)


class ShareMembers:
    """The messages on SYSTEM.MQTT.SHARE.MEMBERS, open for exclusive input. CorrelId: subscription, MsgId: shard."""

    def __init__(self, connection: Connection, handle: int, shard: int) -> None:
        self._connection, self._handle = connection, handle
        self._shard = b"shard %d" % shard

    def add(self, share: SharedSubscription) -> None:
        """Record that this shard has members of a shared subscription. Raises MQError."""
        if self._find(share, cmqc.MQGMO_BROWSE_FIRST, self._shard):
            return
        md = MQMD(MsgId=self._shard.ljust(24, b"\0"), CorrelId=_correl_id(share), Persistence=cmqc.MQPER_PERSISTENT)
        text = share.subscription_name.encode()
        self._connection.put(self._handle, Message(md, text), cmqc.MQPMO_NO_SYNCPOINT | cmqc.MQPMO_FAIL_IF_QUIESCING)

    def remove(self, share: SharedSubscription) -> bool:
        """Record that this shard no longer has members. Return whether another shard has members. Raises MQError."""
        self._find(share, cmqc.MQGMO_NO_SYNCPOINT, self._shard)
        return self._find(share, cmqc.MQGMO_BROWSE_FIRST)

    def _find(self, share: SharedSubscription, options: int, shard: bytes = b"") -> bool:
        """Get or browse the message of a shard, or of any shard if `shard` is blank. Return whether it exists."""
        get_options = GetOptions(
            Options=options | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG | cmqc.MQGMO_FAIL_IF_QUIESCING,
            MsgId=shard.ljust(24, b"\0"),
            CorrelId=_correl_id(share),
            MaxLength=0,
        )
        return get_or_none(self._connection, self._handle, get_options) is not None


@contextmanager
def share_members(connection: Connection, shard: int) -> Iterator[ShareMembers]:
    """Open the messages for exclusive use. Raises MQError, with MQRC_OBJECT_IN_USE while another shard has them open."""
    handle = connection.open(MQOD(ObjectName=SHARE_MEMBERS_QUEUE), _OPEN)
    try:
        yield ShareMembers(connection, handle, shard)
    finally:
        connection.close(handle)


def resume_share(connection: Connection, share: SharedSubscription) -> tuple[int, int]:
    """Open a shared subscription. Return the handles of the subscription and its queue.

    Raises MQError: MQRC_NO_SUBSCRIPTION, or MQRC_SUBSCRIPTION_IN_USE while another shard has it open.
    """
    sd = MQSD(Options=_RESUME, ObjectString=share.topic_filter, SubName=share.subscription_name)
    return connection.subscribe(sd)


def remove_share(connection: Connection, share: SharedSubscription) -> None:
    """Remove a shared subscription, its queue and the messages there. Raises MQError."""
    try:
        handle, queue = resume_share(connection, share)
    except MQError as error:
        if error.reason == cmqc.MQRC_NO_SUBSCRIPTION:
            return
        raise
    connection.close(handle, cmqc.MQCO_REMOVE_SUB)
    connection.close(queue)


def _correl_id(share: SharedSubscription) -> bytes:
    return bytes.fromhex(share.remote_queue_manager.removeprefix("SHARE.")).ljust(24, b"\0")
