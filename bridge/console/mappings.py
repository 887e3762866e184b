"""Mappings and their trials, links to other brokers, and pipelines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec

from bridge.administration.requests import ConnectLink, ListLinks, ListMappings, PauseMapping, ResumeMapping, TestLink
from bridge.config.effective import effective_yaml
from bridge.config.mapping import ToMqMapping
from bridge.config.models import Configuration
from bridge.console.console import Nothing, Routes, Visit
from bridge.console.forms import RequestProblem
from bridge.extras import install
from bridge.mapping.message_view import fields, with_properties
from bridge.mapping.rule import ToMqRule
from bridge.mapping.trial import NotTaken, message_json, publication_json, trial_of
from bridge.telemetry.message import Unmappable
from bridge.wire import cmqc

routes = Routes()


routes.show("/mappings", ListMappings, "mappings.html")
routes.request("/mappings/pause", PauseMapping, "Pause this mapping? Its source messages wait until it is resumed.")
routes.request("/mappings/resume", ResumeMapping)


# Trials --------------------------------------------------------------------------------------------------------------


class TrialQuery(msgspec.Struct):
    """A mapping to try."""

    name: Annotated[str, msgspec.Meta(min_length=1)]


class TrialForm(TrialQuery, kw_only=True):
    """A mapping to try, and a message for it."""

    topic: str = ""
    payload: str = ""
    qos: Annotated[int, msgspec.Meta(ge=0, le=2)] = 0
    retain: bool = False
    client_id: str = ""
    user: str = ""
    #: seconds
    expiry: str = ""
    response_topic: str = ""
    correlation_data: str = ""
    content_type: str = ""
    #: one NAME=VALUE per line
    properties: str = ""
    format: str = ""


#: Number of parts of a message that the trial shows.
SHOWN_PARTS: Final = 10


class TrialOutcome(msgspec.Struct, frozen=True):
    """The outcome of a trial: a description, and the fields of the resulting message."""

    ok: bool
    text: str
    fields: list[tuple[str, str]] = []


class TrialPage(msgspec.Struct, kw_only=True):
    """A mapping, and the outcome of a trial."""

    name: str
    #: the mapping maps MQTT to MQ
    to_mq: bool
    description: list[str]
    outcome: TrialOutcome | None = None


@routes.page("/mappings/try", "trial.html")
async def trial(visit: Visit, query: TrialQuery) -> TrialPage:
    """Describe a mapping."""
    config = visit.console.configuration.mappings.get(query.name)
    if config is None:
        raise RequestProblem(404, f"Mapping {query.name} does not exist")
    description = effective_yaml({"mappings": {query.name: config}}).splitlines()
    return TrialPage(name=query.name, to_mq=isinstance(config, ToMqMapping), description=description)


@routes.form("/mappings/try", "trial.html")
async def try_mapping(visit: Visit, form: TrialForm) -> TrialPage:
    """Return the result of a mapping for a message. Nothing is put or published."""
    page = await trial(visit, form)
    page.outcome = await asyncio.to_thread(_outcome, visit.console.configuration, form)
    return page


def _outcome(configuration: Configuration, form: TrialForm) -> TrialOutcome:
    trial = trial_of(form.name, configuration)
    try:
        body, properties = form.payload.encode("utf-8", "surrogateescape"), _properties(form.properties)
        if isinstance(trial.rule, ToMqRule):
            publication = trial.published(
                form.topic,
                body,
                qos=form.qos,
                retain=form.retain,
                client_id=form.client_id,
                user=form.user,
                expiry=float(form.expiry) if form.expiry else None,
                response_topic=form.response_topic,
                correlation_data=form.correlation_data,
                content_type=form.content_type,
                properties=properties,
            )
            messages = trial.messages(publication)
            to = messages[0].destination
            action = f"published to topic {to.name}" if to.is_topic else f"put to queue {to.name}"
            return _success(f"It would be {action}", [message_json(mapped) for mapped in messages])
        message = trial.message(body, form.format or None, None)
        message = with_properties(message, properties) if properties else message
        publications = trial.publications(message, form.topic or None)
        link = trial.rule.config.destination.link
        views = [publication_json(link, publication) for publication in publications]
        return _success(f"It would be published to topic {publications[0].topic}", views)
    except Unmappable as error:
        reason = f"{cmqc.reason_name(error.reason)} ({error.reason})"
        return TrialOutcome(False, f"The mapping rejects it: it would be dead-lettered with {reason}: {error}")
    except NotTaken as error:
        return TrialOutcome(False, f"The mapping does not take it: {error}")
    except ValueError as error:
        return TrialOutcome(False, f"The message is not valid: {error}")


def _success(text: str, views: Sequence[dict[str, Any]]) -> TrialOutcome:
    """Return the outcome of a trial with one message or several parts of it, of which the first `SHOWN_PARTS` are shown."""
    if len(views) == 1:
        return TrialOutcome(True, text, list(fields(views[0])))
    parts = [
        (f"part {index}: {name}", field)
        for index, view in enumerate(views[:SHOWN_PARTS])
        for name, field in fields(view)
    ]
    return TrialOutcome(True, f"{text}, as the first of {len(views):,} parts", parts)


def _properties(text: str) -> dict[str, str]:
    """Return the properties in lines NAME=VALUE. Raises ValueError."""
    properties = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"expected a property NAME=VALUE, found {line[:100]!r}")
        properties[name.strip()] = value
    return properties


# Links ---------------------------------------------------------------------------------------------------------------


routes.show("/links", ListLinks, "links.html")
routes.request("/links/test", TestLink)
routes.request("/links/connect", ConnectLink)


# Pipelines -----------------------------------------------------------------------------------------------------------


class PipelinesPage(msgspec.Struct):
    """The pipelines, and why their status is unknown."""

    pipelines: list[dict[str, Any]]
    problem: str = ""


@routes.page("/pipelines", "pipelines.html")
async def pipelines(visit: Visit, query: Nothing) -> PipelinesPage:
    """List the pipelines and their status."""
    configuration = visit.console.configuration
    if not configuration.pipelines:
        return PipelinesPage([])
    return await asyncio.to_thread(_pipelines, configuration)


def _pipelines(configuration: Configuration) -> PipelinesPage:
    # Imported on demand, because most bridges have no pipelines.
    try:
        from bridge.spark.administration import StatusDamaged, condition
        from bridge.spark.environment import environment_at_bridge
    except ImportError as error:
        return PipelinesPage([], f"{error.name} is not installed (hint: {install('spark')})")
    try:
        environment = environment_at_bridge(configuration)
        now = time.time()
        return PipelinesPage(
            [condition(name, config, environment, now) for name, config in configuration.pipelines.items()]
        )
    except (StatusDamaged, OSError) as error:
        return PipelinesPage([], str(error))
