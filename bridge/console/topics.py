"""Topics: the tree with retained publications and subscriptions, publishers, routes, live views, and publishing."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from starlette.responses import Response

from bridge.administration.answers import PublisherPage, TopicDetails, TopicNode, TopicRoute
from bridge.administration.requests import ClearTopic, ListPublishers, ListTopics, Publish, RouteTopic, ShowTopic
from bridge.console.console import Done, Routes, Visit
from bridge.console.forms import RequestProblem, link
from bridge.mapping.message_view import body_text
from bridge.mqtt.topics import is_wildcard, topic_filter_error

routes = Routes()

#: Levels of a page, and retained publications and subscriptions of one.
ROWS: Final = 200


class TopicsQuery(msgspec.Struct):
    """A part of the topic tree."""

    #: the parent topic, which may be blank. Absent for the root
    below: str | None = None
    #: start after this name
    after: str | None = None


class TopicsPage(msgspec.Struct, kw_only=True):
    """The levels below a topic."""

    topics: list[TopicNode]
    #: there are further levels
    more: bool

    def trail(self, below: str | None) -> list[tuple[str, str]]:
        """Return the names and topics of the levels above."""
        levels = [] if below is None else below.split("/")
        return [(level, "/".join(levels[: index + 1])) for index, level in enumerate(levels)]


class TopicQuery(msgspec.Struct):
    """A topic filter."""

    filter: Annotated[str, msgspec.Meta(min_length=1)]


class TopicPage(msgspec.Struct, kw_only=True):
    """Retained publications, subscriptions and publishers of a topic filter."""

    details: TopicDetails
    publishers: PublisherPage
    wildcard: bool

    def value(self, payload: bytes) -> str:
        """Return a payload for display."""
        return body_text(payload)


class PublishForm(msgspec.Struct):
    """A message to publish."""

    topic: str = ""
    payload: str = ""
    retain: bool = False
    persistent: bool = False


@routes.page("/topics", "topics.html")
async def topics(visit: Visit, query: TopicsQuery) -> TopicsPage:
    """List the levels below a topic."""
    nodes = await visit.ask(ListTopics(below=query.below, after=query.after, rows=ROWS + 1))
    return TopicsPage(topics=nodes[:ROWS], more=len(nodes) > ROWS)


@routes.page("/topics/show", "topic.html")
async def topic(visit: Visit, query: TopicQuery) -> TopicPage:
    """Return the retained publications, the subscriptions and the publishers of a topic filter."""
    request = ShowTopic(topic_filter=query.filter, rows=ROWS, payloads=visit.payloads)
    details = await visit.ask(request)
    publishers = await visit.ask(ListPublishers(topic_filter=query.filter))
    return TopicPage(details=details, publishers=publishers, wildcard=is_wildcard(query.filter))


@routes.page("/topics/live", "live_view.html")
async def live(visit: Visit, query: TopicQuery) -> TopicQuery:
    """Return the page that shows publications as they arrive."""
    _check(query.filter)
    # The page's script does not see why its request for events is rejected.
    visit.console.live_views.check(visit.principal.name)
    return query


@routes.page("/topics/events")
async def events(visit: Visit, query: TopicQuery) -> Response:
    """Return server-sent events with the publications of a topic filter."""
    _check(query.filter)
    visit.audit("live view", topic_filter=query.filter)
    views = visit.console.live_views
    return views.topic(visit.principal.name, query.filter, visit.payloads, visit.is_valid)


def _check(topic_filter: str) -> None:
    if (error := topic_filter_error(topic_filter)) is not None:
        raise RequestProblem(400, f"The topic filter is not valid: {error}")


class RouteForm(msgspec.Struct):
    """A publication whose route is requested."""

    topic: str = ""
    payload: str = ""
    qos: Annotated[int, msgspec.Meta(ge=0, le=2)] = 1
    retain: bool = False
    client_id: str = ""


class RoutePage(msgspec.Struct, kw_only=True):
    """The route of a publication."""

    form: RouteForm
    #: None without a topic
    route: TopicRoute | None = None


@routes.page("/topics/route", "route.html")
async def route_form(visit: Visit, query: RouteForm) -> RoutePage:
    """Return the form that asks for the route of a publication."""
    return RoutePage(form=query)


@routes.form("/topics/route", "route.html")
async def route(visit: Visit, form: RouteForm) -> RoutePage:
    """Return the route of a publication: rules, subscriptions, mappings and queues. Nothing is published."""
    request = RouteTopic(
        topic=form.topic,
        payload=form.payload.encode("utf-8", "surrogateescape"),
        qos=form.qos,
        retain=form.retain,
        client_id=form.client_id,
    )
    return RoutePage(form=form, route=await visit.ask(request))


routes.request("/topics/clear", ClearTopic, "Delete the retained publication of this topic?")


@routes.change("/topics/publish")
async def publish(visit: Visit, form: PublishForm) -> Done:
    """Publish a message. An empty retained message clears the retained publication."""
    payload = form.payload.encode("utf-8", "surrogateescape")
    request = Publish(topic=form.topic, payload=payload, retain=form.retain, persistent=form.persistent)
    return await visit.change(request, to=link("/topics/show", filter=form.topic))
