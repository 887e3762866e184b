"""The standard profile as rules: the integration tables, both directions, without the hop mark that a mapping leaves."""

from __future__ import annotations

from typing import Protocol

import msgspec

from bridge.mapping.rendered import topic_name, topic_string
from bridge.telemetry.conversion import message_of, publication_of, received_message
from bridge.telemetry.message import Destination, MappedMessage, Message, Publication


class ToMq(Protocol):
    """What makes messages of publications: `ToMqRule`, and the standard profile."""

    def map(self, publication: Publication, /) -> MappedMessage | None:
        """Return the message; None for a publication that is passed by. Raises Unmappable."""


class ToMqtt(Protocol):
    """What makes publications of messages: `ToMqttRule`, and the standard profile."""

    def map(self, message: Message, /, *, topic: str | None = None) -> Publication | None:
        """Return the publication; None for a message that is passed by. Raises Unmappable."""


class StandardToMq:
    """The integration tables 1 to 3.

    `destination` is where all messages go; None: each to the topic of its publication. To a topic it is the message that
    the service puts; to a queue it has, as a subscriber would receive it, the mqps folder, too.
    """

    def __init__(self, destination: Destination | None) -> None:
        self.destination = destination

    def map(self, publication: Publication) -> MappedMessage:
        """Return the message. Raises Unmappable."""
        to = self.destination or Destination(topic_string(publication.topic), True)
        made = message_of(publication)
        if to.is_topic:
            return msgspec.structs.replace(made, destination=to)
        return msgspec.structs.replace(
            made, destination=to, message=received_message(publication), retain=False, clear=False
        )


class StandardToMqtt:
    """The integration tables 4 and 5, for a subscriber that takes any QoS.

    `topic` is where all messages go; None: each to the topic it was published to.
    """

    def __init__(self, topic: str | None) -> None:
        self.topic = topic

    def map(self, message: Message, *, topic: str | None = None) -> Publication:
        """Return the publication. Raises Unmappable, also for a message that says of no topic."""
        made = publication_of(message, topic=self.topic if self.topic is not None else topic)
        topic_name(made.topic)
        return made
