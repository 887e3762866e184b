"""Requests of applications: publish a message, and call a device. The body is the payload, the query has the other fields."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Coroutine
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from bridge.administration.application import ApplicationCall, ApplicationFailed, ApplicationFailure, ApplicationMessage
from bridge.console.console import Routes, Visit
from bridge.console.forms import FORM_TYPES, RequestProblem, body_of

T = TypeVar("T")

routes = Routes()

#: Header with the user properties of a reply, encoded like a query.
USER_PROPERTIES: Final = "MQTT-User-Properties"
#: Header with the length of the user properties in bytes, if they are longer than MAX_HEADER.
OMITTED: Final = "MQTT-User-Properties-Omitted"
#: Maximum length of a header in bytes. HTTP libraries and proxies reject a reply with longer ones: Node.js more than 16 KiB.
MAX_HEADER: Final = 8_192
_STATUSES: Final = {
    ApplicationFailure.INVALID: 422,
    ApplicationFailure.NOT_AUTHORIZED: 403,
    ApplicationFailure.NO_SUBSCRIBER: 404,
    ApplicationFailure.BUSY: 409,
    ApplicationFailure.LIMIT: 429,
    ApplicationFailure.TIMEOUT: 504,
    ApplicationFailure.UNAVAILABLE: 503,
}
_TRY_AGAIN: Final = frozenset({ApplicationFailure.BUSY, ApplicationFailure.LIMIT, ApplicationFailure.UNAVAILABLE})
#: Content types that a reply may have as a header.
_CONTENT_TYPE: Final = re.compile(r"[!-~]+/[ -~]{1,200}")


def problem_of(error: ApplicationFailed) -> RequestProblem:
    """Return the answer to a request that failed."""
    headers = {"Retry-After": str(math.ceil(error.pause))} if error.failure in _TRY_AGAIN else {}
    text = str(error)
    return RequestProblem(_STATUSES[error.failure], text[:1].upper() + text[1:], headers=headers)


class PayloadQuery(msgspec.Struct, kw_only=True):
    """The fields of a message."""

    topic: Annotated[str, msgspec.Meta(min_length=1, max_length=10_240)]
    qos: Annotated[int, msgspec.Meta(ge=0, le=2)] = 1
    #: seconds after which the message expires
    expiry: Annotated[int, msgspec.Meta(ge=1, le=0xFFFF_FFFF)] | None = None
    #: user properties `NAME=VALUE`
    user_property: list[str] = []

    def fields(self) -> dict[str, Any]:
        """Return the fields for an ApplicationMessage."""
        fields = msgspec.structs.asdict(self)
        pairs = [text.partition("=") for text in self.user_property]
        return fields | {"user_property": tuple((name, value) for name, _, value in pairs)}


class PublishQuery(PayloadQuery, kw_only=True):
    """The fields of a message that is not a call."""

    retain: bool = False


class CallQuery(PayloadQuery, kw_only=True):
    """The fields of a call."""

    #: seconds to wait for the reply, at most `call_timeout` of the application, which is the default
    seconds: Annotated[float, msgspec.Meta(ge=0.1, le=600)] | None = None
    #: the topic of replies of a device without Response Topic
    reply_topic: str = ""


class PublicationOutcome(msgspec.Struct):
    """The result of a publication."""

    #: whether the queue manager has accepted the message. False with QoS 0, which is not acknowledged
    acknowledged: bool
    #: whether the topic is known to have no subscriber. IBM MQ does not report that
    unmatched: bool


@routes.application("/application/publish")
async def publish(visit: Visit, query: PublishQuery) -> PublicationOutcome:
    """Publish a message as an application. The body is the payload.

    The header Content-Type is the content type, except `application/x-www-form-urlencoded`. With `text/...` and
    `application/json`, the payload is text in UTF-8.
    """
    message = ApplicationMessage(**query.fields(), **await _payload(visit))
    matched = await _while_connected(visit.request, visit.console.bridge.publish(visit.principal.application, message))
    return PublicationOutcome(query.qos > 0, not matched)


@routes.application("/application/call")
async def call(visit: Visit, query: CallQuery) -> Response:
    """Publish a request as an application, and return the payload of the reply. The body is the payload.

    The request has a Response Topic and Correlation Data, and expires when the call ends. Content-Type is as for a
    publication. User properties of the reply are in the header MQTT-User-Properties, encoded like a query. If they are longer
    than 8 KiB, the header MQTT-User-Properties-Omitted has their length instead.
    """
    request = ApplicationCall(**query.fields(), **await _payload(visit))
    reply = await _while_connected(visit.request, visit.console.bridge.call(visit.principal.application, request))
    headers, content_type = {}, "application/octet-stream"
    if (properties := reply.properties) is not None:
        declared_type = properties.content_type or (
            "text/plain; charset=utf-8" if properties.payload_format_indicator else ""
        )
        content_type = declared_type if _CONTENT_TYPE.fullmatch(declared_type) else content_type
        if properties.user_property:
            encoded = urlencode(properties.user_property)
            fits = len(encoded) <= MAX_HEADER
            headers = {USER_PROPERTIES: encoded} if fits else {OMITTED: str(len(encoded))}
    # Not media_type: Starlette would add a charset to a text.
    return Response(reply.payload, headers=headers | {"Content-Type": content_type})


async def _payload(visit: Visit) -> dict[str, Any]:
    """Return payload and content type. Raises RequestProblem."""
    config = visit.console.configuration.admin.applications.get(visit.principal.application)
    if config is None:
        text = f"the configuration has no application {visit.principal.application} (admin.applications)"
        raise ApplicationFailed(ApplicationFailure.NOT_AUTHORIZED, text)
    payload = await body_of(visit.request, config.max_payload)
    content_type = visit.request.headers.get("content-type")
    kind = (content_type or "").partition(";")[0].strip().lower()
    if kind in FORM_TYPES:
        content_type = None  # the default of curl
    is_text = kind.startswith("text/") or kind == "application/json"
    if is_text:
        try:
            payload.decode()
        except UnicodeDecodeError as error:
            raise ApplicationFailed(
                ApplicationFailure.INVALID, f"the payload is not UTF-8, as {kind} requires"
            ) from error
    return {"payload": payload, "content_type": content_type, "text": is_text}


async def _while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine, which is cancelled if the client disconnects. Raises RequestProblem."""
    task, disconnection = asyncio.ensure_future(work), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({task, disconnection}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise RequestProblem(400, "The client has disconnected")
        return task.result()
    finally:
        task.cancel()
        disconnection.cancel()
