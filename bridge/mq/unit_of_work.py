"""A unit of work of the telemetry service as plain data, and what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from bridge.telemetry.record import ReceivedRecord, StateKey, StateRecord
from bridge.telemetry.transmission import PublicationMessage, Transmission

NONE_FORBIDDEN: Final[frozenset[int]] = frozenset()


class UnitOfWork(msgspec.Struct, eq=False):
    """Publications of one client, transmissions that clients have acknowledged, and facts that must outlive a crash.

    All of it takes effect together, but for publications that the queue manager refuses. Where threads do it, publications
    and records of what was received are one unit of work of the queue manager, removals and records of what was sent another:
    a crash may leave the one without the other. It is plain data: what becomes of it is told by a `Completion`.
    """

    #: (message, RETAIN flag)
    publications: list[tuple[PublicationMessage, bool]] = []
    removals: list[Transmission] = []
    #: reasons for which a publication goes to the dead-letter queue, in the same unit, and is not refused
    dead_letters: frozenset[int] = frozenset()
    #: publications, by index, that the client may not make: they are refused with MQRC_NOT_AUTHORIZED
    forbidden: frozenset[int] = NONE_FORBIDDEN
    #: records on SYSTEM.MQTT.PERSISTENT.STATE; None removes one. A record of what was received names the message ids of
    #: the unit's own publications too; those of publications that are refused, the backend leaves out
    records: dict[StateKey, StateRecord | None] = {}
    #: by which its completion is known
    number: int = 0

    def records_without(self, refused: Mapping[int, int]) -> dict[StateKey, StateRecord | None]:
        """Return the records as they are to be written where publications are refused, by index and reason.

        They must not say that these were received.
        """
        if not refused:
            return self.records
        messages = [self.publications[index][0] for index in refused]
        client_id = messages[0].client_id
        message_ids = {message.message_id for message in messages if message.qos == 2}
        return {
            key: record.without(message_ids)
            if isinstance(record, ReceivedRecord) and key.client_id == client_id
            else record
            for key, record in self.records.items()
        }


#: No publication is refused: publications, by index, and their reason codes.
NONE_REFUSED: Final[Mapping[int, int]] = MappingProxyType({})


class Completion(msgspec.Struct, frozen=True, gc=False):
    """What has become of a unit of work."""

    number: int
    #: the reason for which nothing of the unit took effect, or MQRC_NONE
    failure: int = 0
    #: publications that the queue manager did not take, by index, with the reason
    refusals: Mapping[int, int] = NONE_REFUSED
    #: publications that went to the dead-letter queue, by index, with the reason
    diverted: Mapping[int, int] = NONE_REFUSED
    #: publications, by index, that no subscription is for (MQRC_NO_SUBS_MATCHED), where the queue manager says so
    unmatched: Sequence[int] = ()
