"""The console: pages for people, each behind the question who asks, and changes, each behind the question who may."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

import bridge
from bridge.administration.requests import Answer, AnyRequest
from bridge.config import Configuration
from bridge.console.access import Access, Who
from bridge.console.bridge_access import BridgeAccess, NotRunning
from bridge.console.form import form_of
from bridge.console.live_views import LiveViews
from bridge.console.problem import Problem
from bridge.console.queue_manager_connection import QueueManagerConnection
from bridge.console.rendering import environment
from bridge.console.samples import Sampler
from bridge.console.urls import here, link
from bridge.mq.mqi import MQError
from bridge.security import audit_log
from bridge.service.log import LogTail

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Answers who may read.
Page = Callable[[Request, Who], Awaitable[Response]]


#: Answers who may read, as the fields of a form say.
Form = Callable[[Request, Who, Mapping[str, str]], Awaitable[Response]]


class Done(msgspec.Struct, frozen=True):
    """What came of a change: lines for a person, and the page that is shown then."""

    lines: list[str]
    to: str
    ok: bool = True


#: Makes a change for who may, as the fields of a form say.
Change = Callable[[Request, Who, Mapping[str, str]], Awaitable[Done]]


class Console:
    """What all pages of one bridge's console have in common. Used on the event loop of the admin port alone."""

    def __init__(self, access: BridgeAccess, tail: LogTail) -> None:
        self.bridge = access
        self.access = Access(access, access.bridge.configuration)
        self.queue_manager = QueueManagerConnection(access)
        self.sampler = Sampler(access)
        self.live_views = LiveViews(access)
        self.tail = tail
        self._templates = environment()

    @property
    def configuration(self) -> Configuration:
        """Return the configuration, as the last reload has left it."""
        return self.bridge.bridge.configuration

    @property
    def dead_letter_queue(self) -> str:
        """Return the name of the bridge's dead-letter queue; "" where it is the one that the queue manager names."""
        settings = self.configuration.queue_manager
        return settings.dead_letter_queue if settings.type == "ibm" else ""

    @property
    def payloads(self) -> bool:
        """Return whether what is in messages is shown."""
        return self.configuration.admin.payloads

    def page(self, path: str, answer: Page) -> Route:
        """Return the route of a page that who may read can have."""

        async def answered(request: Request) -> Response:
            try:
                who = await self._known(request)
                if who is None:
                    return _to_login(request)
                return await answer(request, who)
            except Exception as error:
                return self._failed(request, error)

        return Route(path, answered)

    def change(self, path: str, change: Change) -> Route:
        """Return the route of a change that who has the right can have made."""

        async def answered(request: Request) -> Response:
            try:
                who = await self._known(request)
                if who is None:
                    return _to_login(request)
                form = await form_of(request)
                self.access.check_change(request, who, form)
                done = await change(request, who, form)
            except Exception as error:
                return self._failed(request, error)
            if who.login is None:
                return PlainTextResponse("".join(f"{line}\n" for line in done.lines), 200 if done.ok else 409)
            who.login.said = done.ok, done.lines[:50]
            return RedirectResponse(done.to, 303)

        return Route(path, answered, methods=["POST"])

    def form(self, path: str, answer: Form) -> Route:
        """Return the route of a form that who may read can send: it changes nothing."""

        async def answered(request: Request) -> Response:
            try:
                who = await self._known(request)
                if who is None:
                    return _to_login(request)
                form = await form_of(request)
                self.access.check_form(request, who, form)
                return await answer(request, who, form)
            except Exception as error:
                return self._failed(request, error)

        return Route(path, answered, methods=["POST"])

    def open(self, path: str, answer: Callable[[Request], Awaitable[Response]], method: str = "GET") -> Route:
        """Return a route for everybody who reaches the port."""

        async def answered(request: Request) -> Response:
            try:
                return await answer(request)
            except Exception as error:
                return self._failed(request, error)

        return Route(path, answered, methods=[method])

    def render(self, template: str, request: Request, who: Who | None, code: int = 200, **values: Any) -> Response:
        """Return a page made of a template."""
        said = None
        if who is not None and who.login is not None:
            said, who.login.said = who.login.said, None
        html = self._templates.get_template(template).render(
            who=who,
            said=said,
            path=request.url.path,
            here=here(request),
            version=bridge.__version__,
            queue_manager=self.configuration.queue_manager.name,
            now=time.time(),
            payloads=self.payloads,
            **values,
        )
        return HTMLResponse(html, code)

    async def ask(self, request: AnyRequest, who: Who) -> Answer:
        """Have the bridge answer a request. Raises Problem where it refuses."""
        answer = await self.bridge.answer(request, who.name)
        if not answer.ok:
            raise Problem(404, "That cannot be shown", answer.lines)
        return answer

    async def asked(self, request: AnyRequest, type: type[T], who: Who) -> T:
        """Return what the bridge answers a request. Raises Problem where it refuses."""
        return msgspec.json.decode((await self.ask(request, who)).result, type=type)

    async def changed(self, request: AnyRequest, who: Who, to: str) -> Done:
        """Have the bridge do what a request says, which notes it in the audit log."""
        answer = await self.bridge.answer(request, who.name)
        return Done(answer.lines, to, answer.ok)

    def note(self, what: str, who: Who, **facts: Any) -> None:
        """Note in the audit log a change that the console itself has made, or tried to."""
        audit_log.note("console", what=what, user=who.name, address=who.address, **facts)

    async def _known(self, request: Request) -> Who | None:
        """Return who asks, and remember it for a page that tells what went wrong. Raises Problem."""
        request.state.who = who = await self.access.who(request)
        return who

    def _failed(self, request: Request, error: Exception) -> Response:
        match error:
            case Problem():
                problem = error
            case NotRunning():
                problem = Problem(503, f"The bridge cannot be asked: {error}", ["This page looks again every few seconds."])
            case MQError():
                problem = Problem(502, f"The queue manager answers {error.name} ({error.reason})", [error.detail])
            case TimeoutError():
                problem = Problem(504, "The bridge does not answer in time")
            case _:
                log.error("MQB9204E console: %s %s fails", request.method, request.url.path, exc_info=error)
                problem = Problem(500, "The console fails at that", ["The log of the bridge says why."])
        if "authorization" in request.headers:
            lines = "".join(f"{line}\n" for line in (problem.title, *problem.lines))
            return PlainTextResponse(lines, problem.status, problem.headers)
        who = getattr(request.state, "who", None)
        answer = self.render("problem.html", request, who, problem.status, problem=problem)
        answer.headers.update(problem.headers)
        return answer


def _to_login(request: Request) -> Response:
    after = here(request) if request.method == "GET" and request.url.path != "/" else None
    target = link("/login", next=after)
    if "hx-request" in request.headers:
        return Response(status_code=401, headers={"HX-Redirect": target})
    return RedirectResponse(target, 303)
