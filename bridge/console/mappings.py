"""Mappings: what they did, paused and resumed, and tried: the message in, the message out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bridge.administration.requests import ListMappings, PauseMapping, ResumeMapping
from bridge.config import Configuration, ToMqMapping
from bridge.config.description import describe_mapping
from bridge.console.access import Who
from bridge.console.console import Console, Done
from bridge.console.problem import Problem
from bridge.console.urls import asked_for, number
from bridge.mapping.made_message import message_of, with_properties
from bridge.mapping.message_view import fields
from bridge.mapping.rules.rule import ToMqRule
from bridge.mapping.rules.trial import NotTaken, message_json, publication_json, trial_of
from bridge.mqtt.packets import PublishProperties
from bridge.service.mappings.status import Status
from bridge.telemetry.identity import USER_IDENTIFIER_LENGTH, fits_user_identifier
from bridge.telemetry.message import Publication, Unmappable
from bridge.wire import cmqc

_CHANGES: Final[dict[str, type[PauseMapping] | type[ResumeMapping]]] = {"pause": PauseMapping, "resume": ResumeMapping}
#: Fields of a trial.
FIELDS: Final = (
    "topic", "payload", "qos", "client_id", "user", "expiry", "response_topic", "correlation_data", "content_type",
    "properties", "format", "retain",
)  # fmt: skip


class Outcome(msgspec.Struct, frozen=True):
    """What came of a trial: words, and what the mapping has made."""

    ok: bool
    text: str
    made: list[tuple[str, str]] = []


def routes(console: Console) -> list[Route]:
    """Return the routes."""

    async def page(request: Request, who: Who) -> Response:
        found = await console.asked(ListMappings(), list[Status], who)
        return console.render("mappings.html", request, who, mappings=found)

    async def change(request: Request, who: Who, form: Mapping[str, str]) -> Done:
        made = _CHANGES.get(request.path_params["what"])
        if made is None:
            raise Problem(404, "A mapping can be paused and resumed")
        return await console.changed(made(name=form.get("name", "")), who, "/mappings")

    def shown(request: Request, who: Who, form: Mapping[str, str], outcome: Outcome | None) -> Response:
        name = asked_for(request, "name")
        config = console.configuration.mappings.get(name)
        if config is None:
            raise Problem(404, f"There is no mapping {name}")
        return console.render(
            "trial.html",
            request,
            who,
            name=name,
            to_mq=isinstance(config, ToMqMapping),
            lines=describe_mapping(name, config),
            given={field: form.get(field, "") for field in FIELDS},
            outcome=outcome,
        )

    async def trial(request: Request, who: Who) -> Response:
        return shown(request, who, {}, None)

    async def tried(request: Request, who: Who, form: Mapping[str, str]) -> Response:
        name = asked_for(request, "name")
        if name not in console.configuration.mappings:
            raise Problem(404, f"There is no mapping {name}")
        return shown(request, who, form, await asyncio.to_thread(_tried, name, console.configuration, form))

    return [
        console.page("/mappings", page),
        console.page("/mappings/try", trial),
        console.form("/mappings/try", tried),
        console.change("/mappings/{what}", change),
    ]


def _tried(name: str, configuration: Configuration, form: Mapping[str, str]) -> Outcome:
    """Return what a mapping makes of the message in a form."""
    trial = trial_of(name, configuration)
    try:
        body, properties = form.get("payload", "").encode("utf-8", "surrogateescape"), _properties(form)
        if isinstance(trial.rule, ToMqRule):
            user = form.get("user", "")
            if not fits_user_identifier(user):
                raise ValueError(f"the user name is longer than {USER_IDENTIFIER_LENGTH} bytes, the length of an MQ user")
            qos = number(form.get("qos"), 0, 2)
            mapped = trial.message(
                Publication(
                    topic=form.get("topic", ""),
                    payload=body,
                    qos=qos,
                    retain=bool(form.get("retain")),
                    message_id=1 if qos else 0,
                    client_id=form.get("client_id") or trial.publisher,
                    user=user.encode(),
                    expiry=float(form["expiry"]) if form.get("expiry") else None,
                    properties=PublishProperties(
                        response_topic=form.get("response_topic") or None,
                        correlation_data=form.get("correlation_data", "").encode() or None,
                        content_type=form.get("content_type") or None,
                        user_property=(*properties.items(),),
                    ),
                )
            )
            to = mapped.destination
            where = f"published to topic {to.name}" if to.is_topic else f"put to queue {to.name}"
            return Outcome(True, f"It would be {where}", list(fields(message_json(mapped))))
        message = message_of(body, form.get("format") or None, None)
        message = with_properties(message, properties) if properties else message
        publication = trial.publication(message, form.get("topic") or None)
        made = publication_json(trial.rule.config.destination.link, publication)
        return Outcome(True, f"It would be published to topic {publication.topic}", list(fields(made)))
    except Unmappable as error:
        reason = f"{cmqc.reason_name(error.reason)} ({error.reason})"
        return Outcome(False, f"The mapping refuses it, and it would go to the dead-letter queue with {reason}: {error}")
    except NotTaken as error:
        return Outcome(False, f"The mapping does not take it: {error}")
    except ValueError as error:
        return Outcome(False, f"The message cannot be made: {error}")


def _properties(form: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a form, a line NAME=VALUE each. Raises ValueError."""
    found = {}
    for line in form.get("properties", "").splitlines():
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"a property is NAME=VALUE, not {line[:100]!r}")
        found[name.strip()] = value
    return found
