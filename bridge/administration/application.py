"""Messages of applications over HTTP, and the reasons for which their requests fail."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from bridge.mqtt.packets import PublishProperties, UserProperty


class ApplicationFailure(StrEnum):
    """The reason for which a request of an application failed."""

    INVALID = "invalid"
    NOT_AUTHORIZED = "not_authorized"
    NO_SUBSCRIBER = "no_subscriber"
    #: another call waits for the same `reply_topic`
    BUSY = "busy"
    LIMIT = "limit"
    TIMEOUT = "timeout"
    UNAVAILABLE = "unavailable"


class ApplicationFailed(Exception):
    """A request of an application failed. The text is for display. `pause` is the delay of the next attempt, in seconds."""

    def __init__(self, failure: ApplicationFailure, text: str, pause: float = 1.0) -> None:
        super().__init__(text)
        self.failure = failure
        self.pause = pause


class ApplicationMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that an application publishes."""

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False
    #: seconds after which the message expires, or None if it does not expire
    expiry: int | None = None
    content_type: str | None = None
    #: whether the payload is UTF-8
    text: bool = False
    user_property: UserProperty = ()

    def properties(
        self, response_topic: str | None = None, correlation_data: bytes | None = None
    ) -> PublishProperties | None:
        """Return the properties of the PUBLISH, or None if it has none."""
        properties = PublishProperties(
            payload_format_indicator=1 if self.text else None,
            message_expiry_interval=self.expiry,
            content_type=self.content_type,
            response_topic=response_topic,
            correlation_data=correlation_data,
            user_property=self.user_property,
        )
        return None if properties == PublishProperties() else properties


class ApplicationCall(ApplicationMessage, frozen=True):
    """A request to a device, whose reply the application waits for."""

    #: maximum time to wait for the reply, or None for `call_timeout` of the application
    seconds: float | None = None
    #: the topic of replies of a device without Response Topic, or blank for other devices
    reply_topic: str = ""
