"""A subscription of an application, an administrator or a client."""

from __future__ import annotations

from typing import Any

import msgspec

from bridge.mq.embedded import wildcards as character_wildcards
from bridge.mq.embedded.queue import Queue
from bridge.mqtt.topics import matches
from bridge.telemetry.subscription import is_for_subscription
from bridge.wire import cmqc


class Subscription(msgspec.Struct, kw_only=True, eq=False):
    """A subscription and its destination. Field names in comments are those of MQSD and DISPLAY SUB."""

    #: SUB
    name: str
    #: TOPICSTR, including the topic object's topic string
    topic_filter: str
    #: queue that publications are put to: the destination, or the transmission queue for it
    queue: Queue
    #: DEST and DESTQMGR, unresolved
    destination: str
    destination_manager: str
    #: MQXQH fields, if `queue` is a transmission queue
    remote_queue: str = ""
    client_id: str = ""
    #: USERDATA
    user_data: str | None = None
    #: DESTCORL
    correl_id: bytes | None = None
    durable: bool = False
    #: its publications are not stored on disk, because they are useless after a restart
    ephemeral: bool = False
    #: SUBLEVEL
    level: int = 1
    #: SUBUSER
    user: str = ""
    topic_object: str = ""
    #: DISPLAY SUB SUBTYPE: API or ADMIN
    kind: str = "API"
    #: the destination is managed (MQSO_MANAGED)
    managed: bool = False
    #: time of SubExpiry, in seconds since the epoch; 0 if it does not expire
    expires_at: float = 0.0
    #: SELECTOR, and its predicate
    selector: str = ""
    selection: Any = None
    #: PUBPRTY: MQPRI_PRIORITY_AS_PUBLISHED, _AS_Q_DEF, or 0 to 9
    priority: int = cmqc.MQPRI_PRIORITY_AS_PUBLISHED
    #: MQSO_GROUP_SUB: only one subscription with the same destination, CorrelId and level gets a publication
    grouped: bool = False
    #: VARUSER(ANY): any user may resume it
    any_user: bool = False
    #: REQONLY: gets publications by MQSUBRQ only
    on_request: bool = False
    #: PubAccountingToken and PubApplIdentityData, with MQSO_SET_IDENTITY_CONTEXT
    identity: tuple[bytes, str] | None = None
    #: live publications put with MQPMO_RETAIN are marked as retained (MQTT 5, Retain As Published)
    retain_as_published: bool = False
    #: WSCHEMA(CHAR): its topic string has character-based wildcards
    characters: bool = False
    #: the application that has it open
    owner: Any = None

    def names(self, topic: str) -> bool:
        """Return whether the subscription matches a topic string."""
        if self.characters:
            return character_wildcards.matches(self.topic_filter, topic)
        return matches(self.topic_filter, topic)

    @property
    def selective(self) -> bool:
        """Whether the subscription filters or modifies publications."""
        return (
            self.selection is not None
            or self.priority != cmqc.MQPRI_PRIORITY_AS_PUBLISHED
            or self.identity is not None
            or self.direct
            or bool(self.expires_at)
        )

    @property
    def direct(self) -> bool:
        """Whether its copies are direct messages: the destination is another queue name at an MQTT client."""
        return bool(self.client_id) and not is_for_subscription(self.remote_queue)
