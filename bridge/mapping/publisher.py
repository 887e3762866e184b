"""The authority of the publisher for the destination of a mapping (`as: publisher`).

The publisher is the user in MQMD.UserIdentifier of the message that the mapping takes. The queue manager checks this user's
authorities. The topics of a channel's clients are in the configuration only, so the rule checks them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from bridge.config.mapping import AnyMapping, ConfiguredNames
from bridge.security.privileged import NOBODY
from bridge.telemetry.identity import TopicAccess, user_identifier
from bridge.telemetry.message import Destination, Publication, Unmappable
from bridge.wire import cmqc

#: Maximum number of publishers whose topic filters are cached.
_REMEMBERED: Final = 1_000


class PublisherIdentity:
    """Determines the user whose authority applies to the destination of a publication."""

    def __init__(self, names: ConfiguredNames) -> None:
        self._names = names
        self._access = lru_cache(_REMEMBERED)(self._access_of)

    def authority(self, publication: Publication, destination: Destination) -> str:
        """Return the user of MQOO_ALTERNATE_USER_AUTHORITY. Raises Unmappable for a topic that the publisher may not use."""
        user = publication.user.decode("utf-8", "replace").strip()
        if destination.is_topic and publication.client_id:
            for access in self._access(publication.client_id, user):
                if not access.may_publish(destination.name):
                    raise Unmappable(
                        cmqc.MQRC_NOT_AUTHORIZED,
                        f"client {publication.client_id!r} may not publish to {destination.name[:100]!r}"
                        " (publish_topics of a channel that it may use)",
                    )
        return user or NOBODY

    def _access_of(self, client_id: str, user: str) -> Sequence[TopicAccess]:
        """Return the rules of each channel that a client with an MQ user may use.

        A message does not name the channel. The user name is known if it is the MQ user. Otherwise filters with %u match
        nothing.
        """
        accesses = []
        mapped = user in self._names.mapped_users
        for channel in self._names.channels:
            if channel.use_client_id:
                used, name = user == user_identifier(client_id, use_client_id=True).decode(), ""
            elif channel.mcauser is not None:
                used, name = user == channel.mcauser, ""
            else:
                used, name = True, user
            if used or mapped:
                accesses.append(TopicAccess(channel.topics, None, client_id, "" if mapped else name))
        return accesses


def publisher_of(config: AnyMapping) -> PublisherIdentity | None:
    """Return the PublisherIdentity of a mapping, or None if the bridge's own authority applies to its destination."""
    return PublisherIdentity(config.names) if config.destination.authority == "publisher" else None
