"""The only module that uses paho: paho's client manages the connection, the bridge's own codec handles messages.

paho handles TCP, TLS, CONNECT, SUBSCRIBE and keep-alive. `LinkHandshake` processes its callbacks. `bridge.mqtt` decodes and
encodes PUBLISH, PUBACK, PUBREC, PUBREL and PUBCOMP. Both share the socket in a `Stream`, which may be a WebSocket.

Differences from plain paho:

- The steps of QoS 2 are separate. paho answers PUBLISH with PUBREC and PUBREC with PUBREL by itself, even with `manual_ack`,
  but the bridge has to commit in between. paho also drops a PUBREL for an unknown message, which after a restart is every
  PUBREL. It also chooses the packet identifiers, which after a restart must be the previous ones.
- Speed. paho reads a packet with three system calls, creates a dictionary, a message and a properties object for it, and
  takes six locks. Here, `loop_read` decodes all available bytes and passes the messages on once per call. It forwards other
  packets as bytes to paho's own `loop_read`. Publications and answers enter paho's output queue as encoded packets, many at a
  time.

PROTECTED lists the protected names that this module depends on. A test compares them with the installed paho.
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
from bridge.link.stream import MalformedWebSocket, Stream, WebSocketStream
from bridge.link.violations import Violation
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


class Protected(NamedTuple):
    """A protected name of paho."""

    #: parameters of a method, or None for an attribute
    parameters: tuple[str, ...] | None
    #: why paho's public interface is not sufficient
    reason: str


#: The protected names of paho that `LinkClient` overrides, calls or sets.
PROTECTED: dict[str, Protected] = {
    "_create_socket": Protected(
        ("self",),
        "The codec reads PUBLISH and its acknowledgements from the socket before paho: paho answers them by itself.",
    ),
    "_loop_rc_handle": Protected(
        ("self", "rc"), "An overridden loop_read reports a lost connection as paho's own does."
    ),
    "_mid_generate": Protected(
        ("self",), "The packet identifiers of SUBSCRIBE and UNSUBSCRIBE must not be those of a publication in flight."
    ),
    "_packet_queue": Protected(
        ("self", "command", "packet", "mid", "qos", "info"),
        "Publications keep their packet identifiers after a restart, and PUBREC and PUBREL are sent after a commit. publish()"
        " chooses identifiers, and ack() does not separate the steps of QoS 2.",
    ),
    "_ping_t": Protected(None, "PINGRESP cannot arrive while the link reads nothing because of flow control."),
}

_PUBLISH = 0x30
"""A first byte that needs no action by paho after it has written the packet."""

_FOREVER = 0xFFFFFFFF
"""Session Expiry Interval of a session that does not expire (MQTT 5 section 3.1.2.11.2)."""

# Temporary errors among CONNACK's reason codes. The others require an administrator's action.
_PASSING = frozenset((0x80, 0x81, 0x82, 0x83, 0x88, 0x89, 0x97, 0x9C, 0x9F))

#: Packet identifiers of SUBSCRIBE and UNSUBSCRIBE. At most one of each is in flight. Publications never use them.
SUBSCRIBE_PACKET_ID, UNSUBSCRIBE_PACKET_ID = 65535, 65534
#: The highest packet identifier of a publication.
HIGHEST_PACKET_ID = 65533

Answer = Puback | Pubrec | Pubcomp
"""A broker's acknowledgement of a publication from the link."""


class Sinks(NamedTuple):
    """Callbacks for received packets. The network thread calls each with everything that one read returned."""

    #: raises MalformedPacket for packets that the link does not allow
    publications: Callable[[list[Publish]], None]
    #: raises WrongAcknowledgement
    answers: Callable[[list[Answer]], None]
    #: packet identifiers of PUBREL
    releases: Callable[[list[int]], None]
    #: how many more publications may be read
    room: Callable[[], int]


class LinkClient(Client):
    """One connection, used once. One thread calls `loop_read`, `loop_write` and `loop_misc`."""

    def __init__(
        self, client_id: str, version_5: bool, clean: bool, sinks: Sinks, websocket_path: str | None = None
    ) -> None:
        super().__init__(
            CallbackAPIVersion.VERSION2,
            client_id,
            None if version_5 else clean,
            protocol=MQTTProtocolVersion.MQTTv5 if version_5 else MQTTProtocolVersion.MQTTv311,
            # Otherwise paho reconnects with MQTT 3.1 by itself if the broker refuses MQTT 3.1.1.
            reconnect_on_failure=False,
        )
        self._sinks = sinks
        #: the path of the WebSocket, or None without WebSocket
        self._path = websocket_path
        self._stream: Stream | None = None
        self._decoder = Decoder(
            server=False, protocol_level=LEVEL_MQTT_5 if version_5 else LEVEL_MQTT_3_1_1, messages_only=True
        )
        #: decoded packets that were not passed on yet because the inbox had no room for publications
        self._packets: list[Packet] = []
        #: why the connection broke, if the reason is more specific than paho's, otherwise ""
        self.fault = ""
        #: the broker's violation of the protocol, or None
        self.violation: Violation | None = None
        self._asked = False
        # With this callback set, paho leaves all writing to the thread that calls loop_write. The callback does nothing
        # because that thread checks for output before it waits.
        self.on_socket_register_write = lambda *_: None

    def _create_socket(self) -> Any:
        connected: Any = super()._create_socket()
        # Batches are written whole. A small last segment must not wait for the peer's delayed acknowledgement.
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
        # paho asks once for each of its own packets with a packet identifier: SUBSCRIBE, then UNSUBSCRIBE.
        self._asked = not self._asked
        return SUBSCRIBE_PACKET_ID if self._asked else UNSUBSCRIBE_PACKET_ID

    def queue(self, packets: bytes) -> None:
        """Queue encoded packets for writing. May be called on any thread, which then must wake the network thread."""
        # With QoS 1, paho calls no callback after writing. A memoryview avoids copies after partial writes.
        self._packet_queue(_PUBLISH, memoryview(packets), 0, 1)  # type: ignore[arg-type]

    def forgive_silence(self) -> None:
        """Don't expect PINGRESP for the last PINGREQ, because it cannot arrive while nothing is read."""
        self._ping_t = 0.0

    def loop_read(self, max_packets: int = 1) -> MQTTErrorCode:
        """Read available bytes and pass them to the sinks. Return an error code, like paho, if the connection is lost."""
        stream = self._stream
        if stream is None or self.socket() is None:
            return MQTTErrorCode.MQTT_ERR_NO_CONN
        if not self._packets:
            try:
                self._packets = self._decoder.feed(stream.fill(self._decoder.missing))
            except MalformedWebSocket as error:
                self.fault = str(error)
                self.violation = Violation.MALFORMED
                return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_PROTOCOL)
            except OSError as error:
                self.fault = f"the connection broke: {error}"
                return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)
        try:
            code = self._deal(stream)
            if self._decoder.error is not None and not self._packets:
                raise self._decoder.error
        except MalformedPacket as error:
            self.fault = f"the broker sent a malformed packet: {error}"
            self.violation = Violation.MALFORMED
            return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_PROTOCOL)
        except WrongAcknowledgement as error:
            self.fault = f"the broker violated MQTT: {error}"
            self.violation = Violation.WRONG_ACKNOWLEDGEMENT
            return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_PROTOCOL)
        if stream.ended and not self._packets and self.socket() is not None:
            self.fault = "the broker closed the connection"
            return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)
        return code

    def want_write(self) -> bool:
        """Return whether there is unwritten output."""
        return super().want_write() or (self._stream is not None and self._stream.unsent)

    def loop_write(self) -> MQTTErrorCode:
        """Write as much as the network accepts. Return an error code, like paho, if the connection is lost."""
        stream = self._stream
        if stream is not None and stream.unsent:
            stream.flush()
            if stream.error is not None:
                return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)
        return super().loop_write()

    @property
    def backlog(self) -> bool:
        """Whether received packets are waiting because the inbox has no room for publications."""
        return bool(self._packets)

    def _deal(self, stream: Stream) -> MQTTErrorCode:
        """Pass decoded packets on in order, as long as the inbox has room."""
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
                releases.append(packet.packet_id)
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
        """Return the error of the last failed write, or ""."""
        stream = self._stream
        return "" if stream is None or stream.error is None else f"the connection broke: {stream.error}"


class LinkHandshake:
    """Processes paho's callbacks for one connection."""

    def __init__(
        self, client: LinkClient, config: LinkConfig, address: tuple[str, int], accepted: Callable[[bool], None]
    ) -> None:
        """Set paho's callbacks. `accepted` is called at CONNACK with Session Present. `address` is host and port."""
        self.client = client
        self._config = config
        self._address = address
        self._on_accepted = accepted
        self._version_5 = config.version == "5"
        self._clean = False
        self.accepted = False
        self.session_present = False
        self.limits = Limits()
        #: the reason codes of SUBACK, or None before SUBACK
        self.granted: list[ReasonCode] | None = None
        #: UNSUBACK was received, or nothing had to be unsubscribed. Unknown filters are not failures
        self.unsubscribed = True
        self._refused: LinkLost | None = None
        self._last_words = ""
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_unsubscribe = self._on_unsubscribe
        client.on_disconnect = self._on_disconnect

    def connect(self, password: str | None, clean: bool) -> None:
        """Open the network connection and queue CONNECT. Raises LinkLost."""
        client, config = self.client, self._config
        self._clean = clean
        if config.user is not None or password is not None:
            client.username_pw_set(config.user or "", password)
        if config.bridge_bit:
            client.enable_bridge_mode()
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
            raise LinkRefused(f"the broker's certificate was rejected: {error.verify_message}") from error
        except (OSError, UnicodeError) as error:
            # UnicodeError: the host name cannot be encoded with IDNA.
            raise LinkLost(f"cannot connect: {error}") from error

    def subscribe(self, topic_filter: str, qos: int) -> None:
        """Queue SUBSCRIBE. Raises LinkRefused if the topic filter is invalid."""
        # Keep the retain flag. Request retained messages only for a new subscription, not after each reconnect. A shared
        # subscription must not set No Local (MQTT-3.8.3-4).
        options = SubscribeOptions(
            qos,
            noLocal=not topic_filter.startswith("$share/"),
            retainAsPublished=True,
            retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB,
        )
        try:
            if self._version_5:
                self.client.subscribe(topic_filter, options=options)
            else:
                self.client.subscribe(topic_filter, qos)
        except ValueError as error:
            raise LinkRefused(f"{topic_filter!r} is not a valid topic filter: {error}") from error

    def unsubscribe(self, topic_filters: Sequence[str]) -> None:
        """Queue UNSUBSCRIBE. Called after `subscribe`, so that both are sent in one write."""
        self.unsubscribed = False
        self.client.unsubscribe(list(topic_filters))

    def granted_qos(self, topic_filter: str) -> int:
        """Return the granted QoS. Raises LinkRefused if SUBACK contains a failure."""
        reason = self.granted[0] if self.granted else None
        if reason is None or reason.is_failure:
            raise LinkRefused(f"the broker rejected the subscription to {topic_filter}: {reason}")
        return reason.value

    def lost(self) -> LinkLost:
        """Return the best known reason for the loss of the connection."""
        client = self.client
        failure = self._refused or LinkLost(client.fault or client.write_error() or self._last_words or "it broke")
        failure.violation = client.violation
        return failure

    # paho callbacks ---------------------------------------------------------------------------------------------------

    def _on_connect(
        self, client: Any, userdata: Any, flags: ConnectFlags, reason: ReasonCode, properties: Properties | None
    ) -> None:
        if reason.is_failure:
            text = f"the broker rejected CONNECT: {_explained(reason, properties)}"
            self._refused = (LinkLost if reason.value in _PASSING else LinkRefused)(text)
            return
        if self._version_5 and self._clean and flags.session_present:
            # The link has no state of this session, so packet identifiers could have another meaning at the broker.
            failure = LinkLost("MQTT-3.2.2-4: the broker continues a session although the link requested a new one")
            failure.violation = Violation.MALFORMED
            raise failure
        self.limits = Limits(
            receive_maximum=getattr(properties, "ReceiveMaximum", 65535),
            maximum_qos=getattr(properties, "MaximumQoS", 2),
            retain_available=bool(getattr(properties, "RetainAvailable", 1)),
            maximum_packet_size=getattr(properties, "MaximumPacketSize", Limits().maximum_packet_size),
        )
        self.session_present = flags.session_present
        self.accepted = True
        self._on_accepted(flags.session_present)

    def _on_subscribe(
        self, client: Any, userdata: Any, packet_id: int, reasons: list[ReasonCode], properties: Any
    ) -> None:
        self.granted = reasons

    def _on_unsubscribe(self, client: Any, userdata: Any, packet_id: int, reasons: Any, properties: Any) -> None:
        self.unsubscribed = True

    def _on_disconnect(
        self, client: Any, userdata: Any, flags: DisconnectFlags, reason: ReasonCode, properties: Properties | None
    ) -> None:
        if flags.is_disconnect_packet_from_server:
            self._last_words = f"the broker disconnected: {_explained(reason, properties)}"
        elif not self.accepted and not self._version_5:
            # paho calls no callback for this refusal of MQTT 3.1.1.
            self._last_words = "the broker rejected CONNECT: Unsupported protocol version, or no MQTT broker"
            if self._config.bridge_bit:
                self._last_words += " (hint: the broker may not support bridge_bit)"
        else:
            self._last_words = str(reason)


def _explained(reason: ReasonCode, properties: Properties | None) -> str:
    """Return the name of a reason code, with the broker's Reason String if present."""
    explanation = getattr(properties, "ReasonString", "")
    return f"{reason} ({explanation})" if explanation else str(reason)
