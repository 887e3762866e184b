"""Topic Aliases of one connection: numbers in place of topic names (MQTT 5 section 3.3.2.3.4). No I/O."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec

from bridge.wire.mqtt import MalformedPacket, Packet, Publish, ReasonCode

#: A topic name of no characters, as PUBLISH carries it.
_NO_TOPIC: Final = b"\0\0"


class IncomingTopicAliases:
    """The Topic Aliases that a client has given to topic names, from 1 to `maximum`."""

    __slots__ = ("_maximum", "_topics")

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._topics: dict[int, str] = {}

    def resolve(self, packets: list[Packet]) -> None:
        """Put topic names in place of Topic Aliases.

        Raises MalformedPacket for an alias that the client may not use; the packet, and those behind it, are removed.
        """
        for index, packet in enumerate(packets):
            if type(packet) is Publish and packet.properties is not None and packet.properties.topic_alias is not None:
                try:
                    packets[index] = self._resolved(packet, packet.properties.topic_alias)
                except MalformedPacket:
                    del packets[index:]
                    raise

    def _resolved(self, packet: Publish, alias: int) -> Publish:
        if alias > self._maximum:
            rule = f"MQTT-3.3.2-9: Topic Alias {alias} is above {self._maximum}, the server's Topic Alias Maximum"
            raise MalformedPacket("PUBLISH", 0, rule, ReasonCode.TOPIC_ALIAS_INVALID)
        if packet.topic:
            self._topics[alias] = packet.topic
            return packet
        topic = self._topics.get(alias)
        if topic is None:
            rule = f"MQTT 5 section 3.3.2.3.4: Topic Alias {alias} stands for no topic name"
            raise MalformedPacket("PUBLISH", 0, rule, ReasonCode.PROTOCOL_ERROR)
        return msgspec.structs.replace(packet, topic=topic)


class OutgoingTopicAliases:
    """The Topic Aliases of what a client is sent: the topic names that were sent last have them, at most `maximum`."""

    __slots__ = ("_aliases", "_maximum")

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        #: topic as PUBLISH carries it -> its alias, the one sent last at the end
        self._aliases: OrderedDict[bytes, int] = OrderedDict()

    def of(self, topic: bytes) -> tuple[bytes, int]:
        """Return what PUBLISH is to carry for a topic: the topic, empty where the client knows the alias; and the alias."""
        aliases = self._aliases
        alias = aliases.get(topic)
        if alias is not None:
            aliases.move_to_end(topic)
            return _NO_TOPIC, alias
        alias = len(aliases) + 1 if len(aliases) < self._maximum else aliases.popitem(last=False)[1]
        aliases[topic] = alias
        return topic, alias
