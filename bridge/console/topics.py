"""Topics: the tree with retained publications, who subscribes, publishing, and live views."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from bridge.administration.answers import TopicDetails, TopicNode
from bridge.administration.requests import ListTopics, ShowTopic
from bridge.console.access import Who
from bridge.console.console import Console, Done
from bridge.console.problem import Problem
from bridge.console.urls import asked_for, link
from bridge.mapping.made_message import descriptor
from bridge.mapping.message_view import body_text
from bridge.mq.administration import Administration
from bridge.mq.mqi import MQOD, Connection
from bridge.mqtt.topics import is_wildcard, topic_filter_error, topic_string_error
from bridge.telemetry.message import Message
from bridge.wire import cmqc

#: Levels of a page, and retained publications and subscriptions of one.
ROWS: Final = 200


def routes(console: Console) -> list[Route]:
    """Return the routes."""

    async def page(request: Request, who: Who) -> Response:
        below, after = request.query_params.get("below"), request.query_params.get("after")
        found = await console.asked(ListTopics(below=below, after=after, rows=ROWS + 1), list[TopicNode], who)
        following = _address(below, found[ROWS - 1].name) if len(found) > ROWS else None
        levels = [] if below is None else below.split("/")
        return console.render(
            "topics.html",
            request,
            who,
            first=None if after is None else _address(below),
            topics=found[:ROWS],
            following=following,
            is_root=below is None,
            trail=[(level, _address("/".join(levels[: place + 1]))) for place, level in enumerate(levels)],
            addresses=[_address(one.topic) for one in found],
        )

    async def topic(request: Request, who: Who) -> Response:
        topic_filter = _filter(request)
        asked = ShowTopic(topic_filter=topic_filter, rows=ROWS, payloads=console.payloads)
        found = await console.asked(asked, TopicDetails, who)
        values = [body_text(one.payload) for one in found.retained] if console.payloads else []
        return console.render(
            "topic.html",
            request,
            who,
            topic=found,
            values=values,
            wildcard=is_wildcard(topic_filter),
        )

    async def live(request: Request, who: Who) -> Response:
        topic_filter = _filter(request)
        # The page's script is not told why its request for events is rejected.
        console.live_views.check(who.name)
        return console.render("live_view.html", request, who, topic_filter=topic_filter)

    async def events(request: Request, who: Who) -> Response:
        topic_filter = _filter(request)
        console.note("live view", who, topic_filter=topic_filter)
        view = console.live_views.begin(who.name, topic_filter, console.payloads)
        events = console.live_views.events(view, lambda: console.access.is_in(request, who))
        return StreamingResponse(events, media_type="text/event-stream")

    async def publish(request: Request, who: Who, form: Mapping[str, str]) -> Done:
        name, body = form.get("topic", ""), form.get("payload", "").encode("utf-8", "surrogateescape")
        here = link("/topics/show", filter=name)
        why = topic_string_error(name) if name else "a topic has at least one character"
        if why is None and is_wildcard(name):
            why = "wildcards are for subscriptions"
        if why is not None:
            return Done([f"Nothing was published: {why}"], "/topics", ok=False)
        retain, persistent = bool(form.get("retain")), bool(form.get("persistent"))
        facts = {"topic": name, "size": len(body), "retain": retain, "persistent": persistent}
        try:
            await console.queue_manager.run(partial(_publish, name, body, retain, persistent), repeatable=False)
        except Exception as error:
            console.note("publish", who, ok=False, lines=[str(error)], **facts)
            raise
        console.note("publish", who, ok=True, **facts)
        if retain and not body:
            return Done([f"The retained publication of {name} is cleared"], here)
        return Done([f"{len(body)} bytes are published to {name}{', and retained' if retain else ''}"], here)

    return [
        console.page("/topics", page),
        console.page("/topics/show", topic),
        console.page("/topics/live", live),
        console.page("/topics/events", events),
        console.change("/topics/publish", publish),
    ]


def _address(below: str | None, after: str | None = None) -> str:
    """Return the address of the levels below a topic, which may be blank: None is the root."""
    asked = {name: value for name, value in (("below", below), ("after", after)) if value is not None}
    return f"/topics?{urlencode(asked)}" if asked else "/topics"


def _filter(request: Request) -> str:
    """Return the topic filter that a query names. Raises Problem."""
    topic_filter = asked_for(request, "filter")
    why = topic_filter_error(topic_filter)
    if why is not None:
        raise Problem(400, f"The topic filter is not right: {why}")
    return topic_filter


def _publish(topic: str, body: bytes, retain: bool, persistent: bool, connection: Connection) -> None:
    md = descriptor(body, persistent=persistent, priority=None, expiry=None)
    options = cmqc.MQPMO_NO_SYNCPOINT | cmqc.MQPMO_FAIL_IF_QUIESCING | (cmqc.MQPMO_RETAIN if retain else 0)
    connection.put1(MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=topic), Message(md, body), options)
    if retain and not body:
        administration = Administration(connection)
        try:
            administration.clear_retained(topic)
        finally:
            administration.close()
