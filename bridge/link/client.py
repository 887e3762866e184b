"""The one file that speaks to paho: its client for the connection, the bridge's own codec for messages.

TCP and TLS, CONNECT, SUBSCRIBE and keep-alive are paho's, and `Handshake` listens to them. PUBLISH, PUBACK, PUBREC, PUBREL
and PUBCOMP are read by `bridge.mqtt`, and go out as bytes. `stream` is the socket of both, with or without a WebSocket.

What is different, and why:

- The steps of QoS 2 stand apart. paho answers PUBLISH with PUBREC and PUBREC with PUBREL by itself, under `manual_ack`
  too; a bridge has to commit in between. paho also drops a PUBREL that it knows no message for, which after a restart is
  every one, and chooses the message ids, which after a restart have to be those of before.
- Speed. paho asks the socket for one byte, one byte and the rest, makes a dictionary, a message and a property object
  for each packet, and takes six locks. So `loop_read` decodes all that has come at once, and hands messages over once for
  each call; every other packet is given to paho's own `loop_read` as bytes. Publications and answers are given to paho's
  output queue as encoded packets, many at once.

The protected names that this depends on are listed in PROTECTED; a test compares them with the installed paho.
"""

from __future__ import annotations

import math
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from bridge.config.link import LinkConfig
from bridge.link.state import Limits, LinkLost, LinkRefused
from bridge.link.stream import Stream, WebSocketStream
from bridge.mqtt.flow import WrongAcknowledgement
from bridge.mqtt.packets import (
    LEVEL_MQTT_3_1_1,
    LEVEL_MQTT_5,
    OtherPacket,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
)
from bridge.mqtt.reader import Decoder
from bridge.mqtt.reason_codes import MalformedPacket
from bridge.security.tls import tls_context

#: The protected names of paho that are overridden, called or set: of methods the parameters, None for an attribute.
PROTECTED: dict[str, tuple[str, ...] | None] = {
    "_create_socket": ("self",),
    "_loop_rc_handle": ("self", "rc"),
    "_mid_generate": ("self",),
    "_packet_queue": ("self", "command", "packet", "mid", "qos", "info"),
    "_ping_t": None,
}

_PUBLISH = 0x30
"""A first byte that paho makes nothing of when it has written the packet."""

_FOREVER = 0xFFFFFFFF
"""Session Expiry Interval of a session that does not expire (MQTT 5 section 3.1.2.11.2)."""

# Reason codes of CONNACK that are about this moment; after the others a person has to do something.
_PASSING = frozenset((0x80, 0x81, 0x82, 0x83, 0x88, 0x89, 0x97, 0x9C, 0x9F))

#: The message ids of SUBSCRIBE and UNSUBSCRIBE. One of each is under way at most, and publications never have these ids.
SUBSCRIBE_MID, UNSUBSCRIBE_MID = 65535, 65534
#: The highest message id of a publication.
HIGHEST_MID = 65533

Answer = Puback | Pubrec | Pubcomp
"""What a broker answers to a publication of the link."""


class Sinks(NamedTuple):
    """Where packets go. Called on the network thread, each at most once for a read, with all that came."""

    #: raises MalformedPacket for what the link does not allow
    publications: Callable[[list[Publish]], None]
    #: raises WrongAcknowledgement
    answers: Callable[[list[Answer]], None]
    #: message ids of PUBREL
    releases: Callable[[list[int]], None]
    #: how many publications may be read
    room: Callable[[], int]


class LinkClient(Client):
    """One connection, to be driven by `loop_read`, `loop_write` and `loop_misc` on one thread; used once."""

    def __init__(
        self, client_id: str, version_5: bool, clean: bool, sinks: Sinks, websocket_path: str | None = None
    ) -> None:
        super().__init__(
            CallbackAPIVersion.VERSION2,
            client_id,
            None if version_5 else clean,
            protocol=MQTTProtocolVersion.MQTTv5 if version_5 else MQTTProtocolVersion.MQTTv311,
            # Else it answers a refusal of MQTT 3.1.1 by connecting anew with MQTT 3.1, on its own.
            reconnect_on_failure=False,
        )
        self._sinks = sinks
        #: the path of the WebSocket; None for a connection without one
        self._path = websocket_path
        self._stream: Stream | None = None
        self._decoder = Decoder(
            server=False, protocol_level=LEVEL_MQTT_5 if version_5 else LEVEL_MQTT_3_1_1, messages_only=True
        )
        #: decoded packets that are not handed over yet, as there was no room for publications
        self._packets: list[Packet] = []
        #: why the connection broke, where it is known better than by paho; "" else
        self.fault = ""
        self._asked = False
        # With this callback set paho leaves all writing to the thread that drives it; nothing is to be done in it,
        # as that thread looks before it waits.
        self.on_socket_register_write = lambda *_: None

    def _create_socket(self) -> Any:
        connected: Any = super()._create_socket()
        # Batches are written whole; a last small segment must not wait for the peer's delayed acknowledgement.
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._path is None:
            self._stream = Stream(connected)
            return self._stream
        try:
            self._stream = WebSocketStream(connected, self.host, self.port, self._path, self.connect_timeout)
        except BaseException:
            connected.close()
            raise
        return self._stream

    def _mid_generate(self) -> int:
        # paho asks once for each of its own packets with a message id: SUBSCRIBE, and UNSUBSCRIBE behind it.
        self._asked = not self._asked
        return SUBSCRIBE_MID if self._asked else UNSUBSCRIBE_MID

    def queue(self, packets: bytes) -> None:
        """Add encoded packets to what is to be written; callable on any thread, which then wakes the network's."""
        # With QoS 1 paho calls nobody when it is written. As a view, what is left after a short write is not copied.
        self._packet_queue(_PUBLISH, memoryview(packets), 0, 1)  # type: ignore[arg-type]

    def forgive_silence(self) -> None:
        """Go on sending PINGREQ without waiting for PINGRESP, which cannot come while nothing is read."""
        self._ping_t = 0.0

    def loop_read(self, max_packets: int = 1) -> MQTTErrorCode:
        """Read what has come, and hand it to the sinks; as paho's, with an error code where the connection is over."""
        stream = self._stream
        if stream is None or self.socket() is None:
            return MQTTErrorCode.MQTT_ERR_NO_CONN
        if not self._packets:
            try:
                self._packets = self._decoder.feed(stream.fill(self._decoder.missing))
            except OSError as error:
                self.fault = f"the connection broke: {error}"
                return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)
        try:
            code = self._deal(stream)
            if self._decoder.error is not None and not self._packets:
                raise self._decoder.error
        except MalformedPacket as error:
            self.fault = f"the broker sent a malformed packet: {error}"
            return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_PROTOCOL)
        except WrongAcknowledgement as error:
            self.fault = f"the broker broke MQTT: {error}"
            return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_PROTOCOL)
        if stream.ended and not self._packets and self.socket() is not None:
            self.fault = "the broker closed the connection"
            return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)
        return code

    def want_write(self) -> bool:
        """Return whether bytes wait for the network."""
        return super().want_write() or (self._stream is not None and self._stream.unsent)

    def loop_write(self) -> MQTTErrorCode:
        """Write as much as the network takes; like paho's, with an error code if the connection is over."""
        stream = self._stream
        if stream is not None and stream.unsent:
            stream.flush()
            if stream.error is not None:
                return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)
        return super().loop_write()

    @property
    def backlog(self) -> bool:
        """Return whether packets have come that there was no room for."""
        return bool(self._packets)

    def _deal(self, stream: Stream) -> MQTTErrorCode:
        """Hand decoded packets over in their order, as far as there is room."""
        publications: list[Publish] = []
        answers: list[Answer] = []
        releases: list[int] = []
        room = self._sinks.room()
        packets, self._packets = self._packets, []
        for position, packet in enumerate(packets):
            if isinstance(packet, Publish):
                if len(publications) >= room:
                    self._packets = packets[position:]
                    break
                publications.append(packet)
            elif isinstance(packet, (Puback, Pubrec, Pubcomp)):
                answers.append(packet)
            elif isinstance(packet, Pubrel):
                releases.append(packet.message_id)
            elif isinstance(packet, OtherPacket):
                self._hand_over(publications, answers, releases)
                publications, answers, releases = [], [], []
                room = self._sinks.room()
                stream.offer(packet.data)
                code = super().loop_read()
                if code or self.socket() is None:
                    return code
        self._hand_over(publications, answers, releases)
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _hand_over(self, publications: list[Publish], answers: list[Answer], releases: list[int]) -> None:
        if publications:
            self._sinks.publications(publications)
        if answers:
            self._sinks.answers(answers)
        if releases:
            self._sinks.releases(releases)

    def close(self) -> None:
        """Close the connection without DISCONNECT."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def write_error(self) -> str:
        """Return the error that the last write failed with, in words; "" where none did."""
        stream = self._stream
        return "" if stream is None or stream.error is None else f"the connection broke: {stream.error}"


class Handshake:
    """Listens to what paho tells of one connection."""

    def __init__(
        self, client: LinkClient, config: LinkConfig, address: tuple[str, int], accepted: Callable[[bool], None]
    ) -> None:
        """Set paho's callbacks; `accepted` is called at CONNACK with Session Present. `address` is host and port."""
        self._client = client
        self._config = config
        self._address = address
        self._on_accepted = accepted
        self._version_5 = config.version == "5"
        self.accepted = False
        self.session_present = False
        self.limits = Limits()
        #: the answers of SUBACK; None: it has not come
        self.granted: list[ReasonCode] | None = None
        #: UNSUBACK is there, or nothing was unsubscribed; a filter that there was none of is no failure
        self.unsubscribed = True
        self._refused: LinkLost | None = None
        self._last_words = ""
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_unsubscribe = self._on_unsubscribe
        client.on_disconnect = self._on_disconnect

    def connect(self, password: str | None, clean: bool) -> None:
        """Make the network connection and queue CONNECT. Raises LinkLost."""
        client, config = self._client, self._config
        if config.user is not None or password is not None:
            client.username_pw_set(config.user or "", password)
        options: dict[str, Any] = {}
        if self._version_5:
            properties: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.ReceiveMaximum = config.in_flight
            if not clean:
                properties.SessionExpiryInterval = _FOREVER
            options = {"clean_start": clean, "properties": properties}
        try:
            if config.tls is not None:
                try:
                    client.tls_set_context(tls_context(config.tls, config.tls.alpn))
                except OSError as error:
                    raise LinkRefused(str(error)) from error
            client.connect(*self._address, math.ceil(config.keep_alive), **options)
        except ssl.SSLCertVerificationError as error:
            raise LinkRefused(f"the broker's certificate is refused: {error.verify_message}") from error
        except (OSError, UnicodeError) as error:
            # UnicodeError: a host name that IDNA cannot encode.
            raise LinkLost(f"cannot connect: {error}") from error

    def subscribe(self, topic_filter: str, qos: int) -> None:
        """Queue SUBSCRIBE. Raises LinkRefused where the filter is none."""
        # Retained publications are wanted as retained, and when the subscription is new, not after each loss of the
        # network. A shared subscription must not have No Local (MQTT-3.8.3-4).
        options = SubscribeOptions(
            qos,
            noLocal=not topic_filter.startswith("$share/"),
            retainAsPublished=True,
            retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB,
        )
        try:
            if self._version_5:
                self._client.subscribe(topic_filter, options=options)
            else:
                self._client.subscribe(topic_filter, qos)
        except ValueError as error:
            raise LinkRefused(f"{topic_filter!r} is no topic filter: {error}") from error

    def unsubscribe(self, topic_filters: Sequence[str]) -> None:
        """Queue UNSUBSCRIBE; called behind `subscribe`, so that both go in one write."""
        self.unsubscribed = False
        self._client.unsubscribe(list(topic_filters))

    def granted_qos(self, topic_filter: str) -> int:
        """Return the QoS that SUBACK grants. Raises LinkRefused where it grants none."""
        reason = self.granted[0] if self.granted else None
        if reason is None or reason.is_failure:
            raise LinkRefused(f"the broker refused the subscription to {topic_filter}: {reason}")
        return reason.value

    def lost(self) -> LinkLost:
        """Return the reason why the connection is over, as well as it is known."""
        client = self._client
        return self._refused or LinkLost(client.fault or client.write_error() or self._last_words or "it broke")

    # Called by paho --------------------------------------------------------------------------------------------------

    def _on_connect(
        self, client: Any, userdata: Any, flags: ConnectFlags, reason: ReasonCode, properties: Properties | None
    ) -> None:
        if reason.is_failure:
            text = f"the broker refused CONNECT: {_explained(reason, properties)}"
            self._refused = (LinkLost if reason.value in _PASSING else LinkRefused)(text)
            return
        self.limits = Limits(
            receive_maximum=getattr(properties, "ReceiveMaximum", 65535),
            maximum_qos=getattr(properties, "MaximumQoS", 2),
            retain_available=bool(getattr(properties, "RetainAvailable", 1)),
            maximum_packet_size=getattr(properties, "MaximumPacketSize", Limits().maximum_packet_size),
        )
        self.session_present = flags.session_present
        self.accepted = True
        self._on_accepted(flags.session_present)

    def _on_subscribe(self, client: Any, userdata: Any, mid: int, reasons: list[ReasonCode], properties: Any) -> None:
        self.granted = reasons

    def _on_unsubscribe(self, client: Any, userdata: Any, mid: int, reasons: Any, properties: Any) -> None:
        self.unsubscribed = True

    def _on_disconnect(
        self, client: Any, userdata: Any, flags: DisconnectFlags, reason: ReasonCode, properties: Properties | None
    ) -> None:
        if flags.is_disconnect_packet_from_server:
            self._last_words = f"the broker disconnected: {_explained(reason, properties)}"
        elif not self.accepted and not self._version_5:
            # paho calls nobody for this one refusal of MQTT 3.1.1.
            self._last_words = "the broker refused CONNECT: Unsupported protocol version, or no MQTT broker"
        else:
            self._last_words = str(reason)


def _explained(reason: ReasonCode, properties: Properties | None) -> str:
    """Return the name of a reason code, with the broker's Reason String where there is one."""
    explanation = getattr(properties, "ReasonString", "")
    return f"{reason} ({explanation})" if explanation else str(reason)
