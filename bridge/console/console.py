"""The console: routes of pages and changes, and what all of them have in common.

A page module has a `Routes` object. Its functions get a `Visit` (the request, its sender and the bridge), and the query or
form as a struct. A page returns a struct, which is the model of its template and its JSON. A change returns Done.
"""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, TypeVar, get_type_hints

import msgspec
from jinja2 import Environment
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

import bridge
from bridge.administration import protocol
from bridge.administration.answers import age
from bridge.administration.health import last, mean
from bridge.administration.protocol import Answer, result_of, result_type
from bridge.archive.report_page import environment
from bridge.config.models import Configuration
from bridge.console.access import CSRF_FIELD, Access, ConsolePrincipal
from bridge.console.bridge_access import BridgeAccess
from bridge.console.forms import RequestProblem, anchor, form_of, here, link, local, parsed
from bridge.console.live_views import LiveViews
from bridge.console.navigation import GROUPS, match_page
from bridge.log_messages.printable import LINE_LENGTH, printable
from bridge.security import audit_log
from bridge.security.tokens import Right
from bridge.telemetry.subscription import user_data_in_words

T = TypeVar("T")

#: Maximum length of a name or topic in a table.
_SHORT: Final = 120
#: Maximum number of lines of a result that a page shows.
_LINES: Final = 50
#: The field of a form that confirms a change, and the one that contains the address of the page with the form.
CONFIRM_FIELD, BACK_FIELD = "confirm", "back"


class LoginNeeded(Exception):
    """The request has no credentials."""


class Nothing(msgspec.Struct):
    """The query of a page without parameters."""


class Done(msgspec.Struct, frozen=True):
    """The result of a change."""

    lines: list[str]
    ok: bool = True
    #: the page to show next, or blank for the page with the form
    to: str = ""
    #: HTTP status for programs
    status: int = 200


class ErrorReport(msgspec.Struct):
    """Why a request failed."""

    title: str
    #: details or advice
    lines: list[str]


class Console:
    """The common parts of all pages. Used on the event loop of the admin port only."""

    def __init__(self, access: BridgeAccess) -> None:
        self.bridge = access
        self.access = Access(access, access.configuration)
        self.live_views = LiveViews(access)
        self._templates = templates()

    @property
    def configuration(self) -> Configuration:
        """The configuration from the start or the last reload."""
        return self.bridge.configuration

    @property
    def payloads(self) -> bool:
        """Whether message contents are shown."""
        return self.configuration.admin.payloads

    async def visit(self, request: Request, right: Right = Right.READ) -> Visit:
        """Authenticate a request, which needs a right. Raises LoginNeeded or RequestProblem."""
        principal = await self.access.authenticate(request)
        if principal is None:
            raise LoginNeeded
        principal.check(right)
        request.state.principal = principal
        return Visit(self, request, principal)

    def render(
        self, template: str, request: Request, principal: ConsolePrincipal | None, code: int = 200, **values: Any
    ) -> Response:
        """Return a page rendered from a template."""
        notice = None
        if principal is not None and principal.login is not None:
            notice, principal.login.notice = principal.login.notice, None
        html = self._templates.get_template(template).render(
            principal=principal,
            notice=notice,
            path=request.url.path,
            here=here(request),
            version=bridge.__version__,
            queue_manager=self.configuration.queue_manager.name,
            now=time.time(),
            payloads=self.payloads,
            **values,
        )
        return HTMLResponse(html, code)

    def report(self, request: Request, problem: RequestProblem) -> Response:
        """Return the answer to a request that failed: JSON, text for programs, or a page."""
        if wants_json(request):
            return json_of(ErrorReport(problem.title, problem.lines), problem.status, problem.headers)
        if "authorization" in request.headers:
            return _text([problem.title, *problem.lines], problem.status, problem.headers)
        principal = getattr(request.state, "principal", None)
        answer = self.render("problem.html", request, principal, problem.status, problem=problem)
        answer.headers.update(problem.headers)
        return answer


class Visit:
    """A request with its user."""

    def __init__(self, console: Console, request: Request, principal: ConsolePrincipal) -> None:
        self.console = console
        self.request = request
        self.principal = principal

    @property
    def payloads(self) -> bool:
        """Whether message contents are shown."""
        return self.console.payloads

    def is_valid(self) -> bool:
        """Return whether the credentials are still valid."""
        return self.console.access.is_in(self.request, self.principal)

    async def ask(self, request: protocol.Request[T]) -> T:
        """Return the bridge's answer to a request. Raises RequestProblem or NotRunning."""
        answer = await self._answer(request)
        if not answer.ok:
            raise RequestProblem(_status_of(answer), answer.lines[0], answer.lines[1:])
        return result_of(request, answer)

    async def change(self, request: protocol.Request[Any], to: str = "") -> Done:
        """Perform a change. If it succeeds, the page `to` is shown next. Raises NotRunning."""
        answer = await self._answer(request)
        return Done(answer.lines, answer.ok, to if answer.ok else "", 200 if answer.ok else _status_of(answer))

    async def _answer(self, request: protocol.Request[Any]) -> Answer:
        return await self.console.bridge.answer(request, self.principal.name)

    def audit(self, action: str, **facts: Any) -> None:
        """Write an entry to the audit log about something that is not an administration request."""
        audit_log.note("console", what=action, user=self.principal.name, address=self.principal.address, **facts)


def _status_of(answer: Answer) -> int:
    """Return the HTTP status of a request that the bridge refused."""
    statuses = ((answer.failed, 500), (answer.unavailable, 503), (answer.invalid, 422), (answer.not_found, 404))
    return next((status for flag, status in statuses if flag), 409)


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A route of the console."""

    method: str
    path: str
    handler: Callable[..., Awaitable[Any]]
    #: the struct of the query or form, and the type of the answer
    input: type[Any]
    output: Any
    #: blank for endpoints that return a response
    template: str = ""
    changes: bool = False
    #: a change for which the right `operate` is sufficient
    operates: bool = False
    #: a request of an application: its fields are in the query, and its body is a payload
    of_application: bool = False
    #: the question to ask before a change. `{}` stands for the selected names
    question: str = ""

    @property
    def right(self) -> Right:
        """The right that a request needs."""
        if self.of_application:
            return Right.APPLICATION
        if self.changes:
            return Right.OPERATE if self.operates else Right.CHANGE
        return Right.READ

    @property
    def summary(self) -> str:
        """The first line of the documentation."""
        documented = self.input if self.handler in (Visit.ask, Visit.change) else self.handler
        return inspect.cleandoc(documented.__doc__ or "").partition("\n")[0]

    async def answer(self, request: Request) -> Response:
        """Answer a request. Raises the exceptions for which the application has handlers."""
        # A form of another site is reported before a missing right to change.
        right = Right.READ if self.changes else self.right
        visit = await request.app.state.console.visit(request, right)
        if self.method == "GET" or self.of_application:
            return await self._page(visit, request.query_params.multi_items())
        form = await form_of(request)
        fields = dict(form)
        if not self.changes:
            visit.console.access.check_form(request, visit.principal, fields)
            return await self._page(visit, [*request.query_params.multi_items(), *form])
        visit.console.access.check_change(request, visit.principal, fields, self.right)
        if self.question and not fields.get(CONFIRM_FIELD):
            return self._ask(visit, form)
        back = local(str(fields.get(BACK_FIELD) or "/"))
        answer: Done = await self.handler(visit, parsed(form, self.input))
        if wants_json(request):
            return json_of(answer, answer.status)
        if visit.principal.login is None:
            return _text(answer.lines, answer.status)
        visit.principal.login.notice = answer.ok, answer.lines[:_LINES]
        return RedirectResponse(answer.to or back, 303)

    async def _page(self, visit: Visit, fields: list[tuple[str, Any]]) -> Response:
        query = parsed(fields, self.input)
        page = await self.handler(visit, query)
        if isinstance(page, Response):
            return page
        if wants_json(visit.request) or not self.template:
            return json_of(page)
        return visit.console.render(self.template, visit.request, visit.principal, page=page, query=query)

    def _ask(self, visit: Visit, form: list[tuple[str, str | bytes]]) -> Response:
        """Return the page that asks for confirmation. Programs must send the confirmation with the request."""
        if visit.principal.login is None or wants_json(visit.request):
            raise RequestProblem(409, f"This needs {CONFIRM_FIELD}=1", [self.question])
        parsed(form, self.input)
        fields = [(name, value) for name, value in form if name != CSRF_FIELD]
        names = [
            value for name, value in fields if name in ("id", "ids", "name", "patterns", "topic", "user_name") and value
        ]
        back = local(str(dict(form).get(BACK_FIELD) or "/"))
        return visit.console.render(
            "confirm.html",
            visit.request,
            visit.principal,
            question=self.question,
            fields=fields,
            names=names,
            back=back,
        )


#: The rights that changes need, by their paths. Templates show only the buttons that a user may use.
_RIGHTS: Final[dict[str, Right]] = {}


class Routes:
    """The endpoints of a page module."""

    def __init__(self) -> None:
        self.endpoints: list[Endpoint] = []

    def page(self, path: str, template: str = "") -> Callable[[T], T]:
        """Add a page. Without a template, the function returns a response."""
        return partial(self._add, method="GET", path=path, template=template)

    def form(self, path: str, template: str) -> Callable[[T], T]:
        """Add a form that changes nothing."""
        return partial(self._add, method="POST", path=path, template=template)

    def change(self, path: str, question: str = "", *, operates: bool = False) -> Callable[[T], T]:
        """Add a change. If there is a question, the change must be confirmed.

        `operates`: the right `operate` is sufficient.
        """
        return partial(self._add, method="POST", path=path, changes=True, question=question, operates=operates)

    def application(self, path: str) -> Callable[[T], T]:
        """Add a request of applications. Its function reads the payload from the body."""
        return partial(self._add, method="POST", path=path, of_application=True)

    def show(self, path: str, request: type[protocol.Request[Any]], template: str) -> None:
        """Add a page with the result of an administration request. Its fields are those of the query."""
        output = result_type(request)
        self._append(
            Endpoint(method="GET", path=path, handler=Visit.ask, input=request, output=output, template=template)
        )

    def request(self, path: str, request: type[protocol.Request[Any]], question: str = "") -> None:
        """Add a change that is an administration request. Its fields are those of the form."""
        self._append(
            Endpoint(
                method="POST",
                path=path,
                handler=Visit.change,
                input=request,
                output=Done,
                changes=True,
                operates=request.OPERATES,
                question=question,
            )
        )

    def _append(self, endpoint: Endpoint) -> None:
        self.endpoints.append(endpoint)
        if endpoint.changes:
            _RIGHTS[endpoint.path] = endpoint.right

    def _add(self, handler: Any, **fields: Any) -> Any:
        hints = get_type_hints(handler)
        output = hints.pop("return")
        _, input_type = hints.values()
        self._append(Endpoint(handler=handler, input=input_type, output=output, **fields))
        return handler


def wants_json(request: Request) -> bool:
    """Return whether a client prefers JSON to a page."""
    accept = request.headers.get("accept", "")
    return "application/json" in accept and "text/html" not in accept


def json_of(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a value as JSON."""
    return Response(msgspec.json.encode(value), status, headers, "application/json")


def _text(lines: list[str], status: int, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse("".join(f"{line}\n" for line in lines), status, headers)


# Templates -----------------------------------------------------------------------------------------------------------


def templates() -> Environment:
    """Return the environment of all templates."""
    filters = {
        "moment": moment,
        "age": age,
        "anchor": anchor,
        "count": count,
        "rate": rate,
        "query": _with,
        "commands": commands,
        "short": short,
        "bytes": size,
        "last_known": last,
        "mean": mean,
        "options": user_data_in_words,
        "whole": partial(short, max_length=2 * LINE_LENGTH),
    }
    template_environment = environment(Path(__file__).parent / "templates", filters)
    template_environment.globals |= {
        "link": link,
        "groups": GROUPS,
        "match_page": match_page,
        "right_of": _RIGHTS.__getitem__,
    }
    return template_environment


def moment(seconds: float | None) -> Markup:
    """Return an element with a time in UTC, which the console's script can show in the browser's time zone."""
    if not seconds:
        return Markup()
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return Markup('<time datetime="{}Z">{}</time>').format(text.replace(" ", "T"), text)


def commands(text: str) -> Markup:
    """Return a text with commands in backticks as elements."""
    # str: re.sub of a Markup would escape the elements.
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def short(text: str, max_length: int = _SHORT) -> str:
    """Return a text with unprintable characters escaped, truncated if it is long."""
    text = printable(text)
    return text if len(text) <= max_length else f"{text[: max_length - 1]}…"


def count(value: float | None) -> str:
    """Return a number with thousands separators, or "–" if it is unknown."""
    if value is None:
        return "–"
    return f"{value:,.1f}" if isinstance(value, float) and value != int(value) else f"{int(value):,}"


def size(value: float) -> str:
    """Return a number of bytes in the largest unit of which it has at least one."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= factor:
            return f"{value / factor:,.1f} {unit}"
    return f"{value:,.0f} bytes"


def rate(value: float | None) -> str:
    """Return a rate per second, or "–" if it is unknown."""
    return count(value if value is None else round(value, 1))


def _with(query: msgspec.Struct, **changes: object) -> dict[str, object]:
    """Return the fields of a query that differ from their defaults, with some of them changed."""
    fields, defaults = msgspec.structs.asdict(query) | changes, _defaults(type(query))
    return {name: value for name, value in fields.items() if value != defaults[name]}


@cache
def _defaults(query: type[msgspec.Struct]) -> dict[str, object]:
    return {field.name: field.default for field in msgspec.structs.fields(query)}
