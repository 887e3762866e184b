"""CONNECT, CONNACK, SUBSCRIBE and SUBACK of one connection, and what the broker says at its end."""

from __future__ import annotations

import math
import ssl
from collections.abc import Callable, Sequence
from typing import Any

from paho.mqtt.client import ConnectFlags, DisconnectFlags
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from bridge.config.link import LinkConfig
from bridge.mqtt.link.client import LinkClient
from bridge.mqtt.link.state import Limits, LinkLost, LinkRefused
from bridge.mqtt.link.tls import tls_context

_FOREVER = 0xFFFFFFFF
"""Session Expiry Interval of a session that does not expire (MQTT 5 section 3.1.2.11.2)."""

# Reason codes of CONNACK that are about this moment; after the others a person has to do something.
_PASSING = frozenset((0x80, 0x81, 0x82, 0x83, 0x88, 0x89, 0x97, 0x9C, 0x9F))


class Handshake:
    """Listens to what paho tells of one connection."""

    def __init__(self, client: LinkClient, config: LinkConfig, accepted: Callable[[bool], None]) -> None:
        """Set paho's callbacks; `accepted` is called at CONNACK with Session Present."""
        self._client = client
        self._config = config
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
                    client.tls_set_context(tls_context(config.tls))
                except OSError as error:
                    raise LinkRefused(str(error)) from error
            client.connect(config.host, config.broker_port, math.ceil(config.keep_alive), **options)
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
