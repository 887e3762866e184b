"""Where a dead letter goes when it is tried again: a queue, a queue at another queue manager or client, or a topic."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.mq.dead_letters import as_name
from bridge.mq.errors import MQError
from bridge.mq.letter import Letter, characters, content_of, put_application, transmitted
from bridge.mq.mapping_subscription import names
from bridge.mq.message_producer import name_of
from bridge.mq.mqi import Connection
from bridge.mq.worker import LOST
from bridge.telemetry.headers import is_set
from bridge.telemetry.message import Destination, Message
from bridge.wire.mq import RFH2, MalformedHeader, decode_chain, encode_chain


def sources_of(mappings: Mapping[str, ToMqMapping | ToMqttMapping]) -> dict[str, str]:
    """Return the queue that each mapping takes from, "" where it takes from none, by its name as an MQDLH has it."""
    return {put_application(name): getattr(one.source, "queue", None) or "" for name, one in mappings.items()}


class NoDestination(Exception):
    """A letter does not say where it was bound; the text says what to do."""


class Delivery(msgspec.Struct, frozen=True):
    """A message as it is put, and where."""

    destination: Destination
    message: Message
    #: the publication was to be retained
    retain: bool = False
    #: the mapping that takes the message from the destination, and maps it again
    mapping: str = ""
    #: where the mapping wanted to put it; blank if it could not tell
    mapped_to: str = ""

    @property
    def place(self) -> str:
        """Return the destination in words."""
        if self.mapping:
            return f"{self.mapped_to} by mapping {self.mapping}" if self.mapped_to else f"mapping {self.mapping}"
        return name_of(self.destination)


class Destinations:
    """Finds out where letters were bound, for one connection."""

    def __init__(self, connection: Connection, queue_manager: str, sources: Mapping[str, str]) -> None:
        """Begin.

        `queue_manager` is the name of the queue manager that is connected; `sources` the queue that each mapping takes
        from, "" where it takes from none.
        """
        self._connection = connection
        self._queue_manager = queue_manager
        self._sources = sources
        #: mapping -> queue of its subscription, "" for none
        self._subscribed: dict[str, str] = {}

    def of(self, letter: Letter, message: Message) -> Delivery:
        """Return what is to be put for a letter, and where. Raises NoDestination, or MQError.

        A publication that was refused (`refused_to_dead_letters`) is published again. A message that a mapping has not
        mapped goes back to where the mapping takes it from. All others go where the MQDLH says, those of a transmission
        queue without their MQXQH, which the queue manager writes anew.
        """
        if not letter.has_header:
            raise NoDestination("it has no MQDLH, which would say where to: name a queue by --to")
        if (publication := self._publication(letter, message)) is not None:
            return publication
        if (source := self._source(letter)) is not None:
            # A message that the mapping could not map names the mapping's source instead of a destination.
            known = letter.destination not in (source, letter.topic) and not set("+#") & set(letter.destination)
            mapped_to = letter.destination if known else ""
            return Delivery(Destination(source), message, mapping=letter.put_by, mapped_to=mapped_to)
        name, manager = letter.destination, letter.destination_queue_manager
        found = transmitted(message)
        if found is not None:
            header, message = found
            name, manager = characters(header.RemoteQName), characters(header.RemoteQMgrName)
        if not name:
            raise NoDestination("its MQDLH names no destination: name a queue by --to")
        return Delivery(Destination(name, queue_manager="" if manager == self._queue_manager else manager), message)

    def _publication(self, letter: Letter, message: Message) -> Delivery | None:
        """Return the publication that was refused to its publisher's topic; None for a letter that is none.

        Its MQDLH has as much of the topic string as it has room for, the RFH2 all of it. What a subscription was to get has
        the user data of that (mqps.Sud), and goes to that one only.
        """
        if not letter.topic or letter.destination_queue_manager not in ("", self._queue_manager):
            return None
        if as_name(letter.topic).decode().rstrip() != letter.destination:
            return None
        md = message.md
        try:
            chain = decode_chain(md.Format, md.Encoding, md.CodedCharSetId, message.data)
            if not chain.headers or not isinstance(header := chain.headers[0], RFH2):
                return None
            mqps = content_of(header, "mqps")
            if "Sud" in mqps:
                return None
            # The mqps folder is the queue manager's to write, for each subscription.
            bare = msgspec.structs.replace(header, folders=tuple(one for one in header.folders if one.name != "mqps"))
            format_, encoding, ccsid, data = encode_chain(msgspec.structs.replace(chain, headers=(bare, *chain.headers[1:])))
        except MalformedHeader as error:
            raise NoDestination(f"its headers cannot be read ({error}): name a queue by --to") from error
        described = msgspec.structs.replace(md, Format=format_, Encoding=encoding, CodedCharSetId=ccsid)
        topic = Destination(letter.topic, is_topic=True)
        return Delivery(topic, Message(described, data), retain=is_set(mqps.get("Ret", "")))

    def _source(self, letter: Letter) -> str | None:
        """Return the queue that the mapping of a letter takes from, so that it maps the message anew; None for no mapping."""
        mapping = letter.put_by
        if not mapping or mapping == "mqbridge":
            return None
        if source := self._sources.get(mapping):
            return source
        if not letter.topic and mapping not in self._sources:
            return None
        if mapping not in self._subscribed:
            if len(self._subscribed) >= _REMEMBERED:
                self._subscribed.clear()
            self._subscribed[mapping] = self._subscription_queue(mapping)
        queue = self._subscribed[mapping]
        if not queue and mapping in self._sources:
            raise NoDestination(
                f"mapping {mapping} took it from a link, or has no subscription now: name a queue by --to"
            )
        return queue or None

    def _subscription_queue(self, mapping: str) -> str:
        """Return the queue of the subscription of a mapping, "" where it has none."""
        for name in names(mapping):
            quoted = name.replace("'", "''")
            try:
                responses = self._connection.command(f"DISPLAY SUB('{quoted}') DEST")
            except MQError as error:
                if error.reason in LOST:
                    raise
                return ""  # commands are not for this user: the MQDLH has to do
            for response in responses:
                for shown in response.objects if response.ok else ():
                    return str(shown.get("DEST", ""))
        return ""


#: Mappings whose subscriptions are remembered.
_REMEMBERED = 1_000
