"""The HTTP application of the admin port: routes, exception handlers, security headers, logins, and the OpenAPI document."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import bridge
from bridge.administration.application import ApplicationFailed
from bridge.administration.protocol import Request as AdministrationRequest
from bridge.config.values import is_loopback
from bridge.console import (
    applications,
    archive,
    clients,
    dead_letters,
    mappings,
    objects,
    operation,
    queues,
    topics,
    users,
)
from bridge.console.access import delete_cookies, set_cookie
from bridge.console.applications import problem_of
from bridge.console.bridge_access import NotRunning
from bridge.console.console import Console, Done, Endpoint, ErrorReport, LoginNeeded, json_of, wants_json
from bridge.console.forms import ANONYMOUS_SIZE, FORM_TYPES, RequestProblem, form_of, here, link, local
from bridge.console.metrics import MetricsPage, health, readiness
from bridge.console.pace import Pace, PacedRequests
from bridge.security.tokens import Right

log = logging.getLogger(__name__)

ENDPOINTS: Final[list[Endpoint]] = [
    endpoint
    for module in (operation, clients, topics, queues, objects, dead_letters, users, mappings, archive, applications)
    for endpoint in module.routes.endpoints
]


def application(console: Console) -> ASGIApp:
    """Return the application of one bridge's admin port."""
    pace = Pace()

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await console.live_views.stop()

    async def may_scrape(request: Request) -> bool:
        if console.configuration.admin.open_metrics:
            return True
        principal = await console.access.authenticate(request)
        return principal is not None and principal.may(Right.READ)

    app = Starlette(
        routes=[
            Route("/healthz", partial(health, console.bridge)),
            Route("/readyz", partial(readiness, console.bridge, may_scrape)),
            Route("/metrics", MetricsPage(console.bridge, may_scrape, pace).answer),
            Route("/openapi.json", _openapi),
            Mount("/static", _Static(directory=Path(__file__).parent / "static")),
            Route("/login", _login_page),
            Route("/login", _log_in, methods=["POST"]),
            Route("/logout", _log_out, methods=["POST"]),
            *_routes(),
        ],
        exception_handlers={
            LoginNeeded: _to_login,
            NotRunning: _report(lambda error: RequestProblem(503, f"The bridge is not available: {error}")),
            TimeoutError: _report(lambda error: RequestProblem(504, "The bridge did not answer in time")),
            ApplicationFailed: _report(problem_of),
            RequestProblem: _report(lambda error: error),
            HTTPException: _report(_http_problem),
            Exception: _failed,
        },
        lifespan=lifespan,
    )
    app.state.console = console
    stopping = SecurityHeaders(PlainTextResponse("The bridge is stopping\n", 503), console)
    return PacedRequests(SecurityHeaders(app, console), console.access, pace, stopping)


def _routes() -> Iterator[Route]:
    """Yield one route for each path, so that the header Allow of status 405 has all of its methods."""
    paths: dict[str, dict[str, Endpoint]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    for path, methods in paths.items():
        yield Route(path, partial(_answer, methods), methods=list(methods))


async def _answer(methods: Mapping[str, Endpoint], request: Request) -> Response:
    return await methods["GET" if request.method == "HEAD" else request.method].answer(request)


# Exception handlers --------------------------------------------------------------------------------------------------


def _report(problem: Callable[[Any], RequestProblem]) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def handler(request: Request, error: Exception) -> Response:
        console: Console = request.app.state.console
        return console.report(request, problem(error))

    return handler


def _http_problem(error: HTTPException) -> RequestProblem:
    titles = {404: "This page does not exist", 405: "This page cannot be used with this method"}
    title = titles.get(error.status_code, HTTPStatus(error.status_code).phrase)
    detail = [] if error.status_code in titles else [error.detail]
    return RequestProblem(error.status_code, title, detail, dict(error.headers or {}))


async def _failed(request: Request, error: Exception) -> Response:
    log.error("MQB9204E console: %s %s failed", request.method, request.url.path, exc_info=error)
    console: Console = request.app.state.console
    return console.report(
        request, RequestProblem(500, "The console failed", ["The log of the bridge contains the reason."])
    )


async def _to_login(request: Request, error: Exception) -> Response:
    after = here(request) if request.method == "GET" and request.url.path != "/" else None
    target = link("/login", next=after)
    if "hx-request" in request.headers:
        return Response(status_code=401, headers={"HX-Redirect": target})
    if wants_json(request):
        return json_of({"title": "Authentication is required", "lines": []}, 401, {"WWW-Authenticate": "Bearer"})
    return RedirectResponse(target, 303)


# Logins --------------------------------------------------------------------------------------------------------------


def _login_form(request: Request, target: str, problem: RequestProblem | None = None) -> Response:
    console: Console = request.app.state.console
    status = 200 if problem is None else problem.status
    methods = {"by_token": console.access.by_token, "by_password": console.access.by_password}
    answer = console.render("login.html", request, None, status, problem=problem, target=target, **methods)
    if problem is not None:
        answer.headers.update(problem.headers)
    return answer


async def _login_page(request: Request) -> Response:
    target = local(request.query_params.get("next", "/"))
    if await request.app.state.console.access.authenticate(request) is not None:
        return RedirectResponse(target, 303)
    return _login_form(request, target)


async def _log_in(request: Request) -> Response:
    form = dict(await form_of(request, ANONYMOUS_SIZE))
    target = local(str(form.get("next", "/")))
    try:
        identifier = await request.app.state.console.access.log_in(request, form)
    except RequestProblem as problem:
        return _login_form(request, target, problem)
    answer = RedirectResponse(target, 303)
    set_cookie(answer, request, identifier)
    return answer


async def _log_out(request: Request) -> Response:
    access = request.app.state.console.access
    principal = await access.authenticate(request)
    if principal is not None and principal.login is not None:
        access.check_form(request, principal, dict(await form_of(request)))
        access.log_out(request, principal)
    answer = RedirectResponse("/login", 303)
    delete_cookies(answer)
    return answer


# OpenAPI -------------------------------------------------------------------------------------------------------------


async def _openapi(request: Request) -> Response:
    await request.app.state.console.visit(request)
    return json_of(openapi())


def openapi() -> dict[str, Any]:
    """Return the OpenAPI document of all pages and changes."""
    types = (
        [endpoint.output for endpoint in ENDPOINTS if not _is_response(endpoint)]
        + [endpoint.input for endpoint in ENDPOINTS]
        + [ErrorReport]
    )
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    outputs = iter(schemas)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        operation: dict[str, Any] = {"summary": endpoint.summary}
        fields = components[endpoint.input.__name__]
        if issubclass(endpoint.input, AdministrationRequest):  # the path stands for the name of the command
            fields["properties"].pop("command", None)
            fields["required"] = [name for name in fields["required"] if name != "command"]
        for schema in fields["properties"].values():
            if schema.get("type") == "boolean":
                schema["description"] = _BOOLEAN
        content: dict[str, Any] = (
            {"*/*": {}} if _is_response(endpoint) else {"application/json": {"schema": next(outputs)}}
        )
        if endpoint.method == "GET" or endpoint.of_application:
            operation["parameters"] = [
                {"name": name, "in": "query", "required": name in fields.get("required", ()), "schema": schema}
                for name, schema in fields["properties"].items()
            ]
        if endpoint.of_application:
            operation["description"] = inspect.cleandoc(endpoint.handler.__doc__ or "")
            operation["requestBody"] = {"content": {"*/*": {}}}
        elif endpoint.method == "POST":
            reference = {"$ref": f"#/components/schemas/{endpoint.input.__name__}"}
            forms = {kind: {"schema": reference} for kind in FORM_TYPES}
            operation["requestBody"] = {"content": forms}
            if endpoint.question:
                operation["description"] = "Must be confirmed with the additional field `confirm=1`."
        operation["responses"] = {"200": {"description": "OK", "content": content}} | _errors(endpoint)
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "mqbridge", "version": bridge.__version__},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }


#: Forms and queries contain text.
_BOOLEAN: Final = "`true` or `1`, `false` or `0`. Blank: the default."
#: Meanings of statuses, including those that only requests with a form, changes, and live views can have.
_STATUSES: Final = {
    400: "A field is missing, or has a value that its schema does not permit.",
    401: "The token is missing or unknown.",
    403: "The token does not have the right, or the form was sent by a page of another site.",
    404: "The object of the request does not exist.",
    408: "The form did not arrive in time.",
    409: "The bridge refused the request, it was performed only in part, or it must be confirmed.",
    413: "The form is too large.",
    415: "The form has another content type.",
    422: "The bridge does not accept a value.",
    429: "There are too many requests, failed logins or live views. Retry-After has the number of seconds.",
    500: "The bridge failed to answer. Its log contains the reason.",
    503: "The bridge is starting, standing by or stopping, or it or its queue manager does not keep up or is unavailable.",
    504: "The bridge did not answer in time.",
}
#: Their meanings for requests of applications.
_STATUSES_OF_APPLICATIONS: Final = {
    403: "The token is not that of an application, or the application may not publish to the topic or receive replies.",
    404: "The topic of a call has no subscriber.",
    408: "The body did not arrive in time.",
    409: "Another call waits for a reply to the same topic (`reply_topic`).",
    413: "The payload is larger than `max_payload` of the application.",
    422: "The topic, a property or the payload is not valid.",
    429: "The application has too many requests in progress, or sends them too fast. Retry-After has the number of seconds.",
    504: "No reply arrived in time. The device may still have acted.",
}
_FORM_ONLY: Final = frozenset({408, 413, 415})


def _errors(endpoint: Endpoint) -> dict[str, Any]:
    """Return the responses of an endpoint other than success."""
    report = {"application/json": {"schema": {"$ref": f"#/components/schemas/{ErrorReport.__name__}"}}}
    statuses = _STATUSES | (_STATUSES_OF_APPLICATIONS if endpoint.of_application else {})
    errors: dict[str, Any] = {
        str(status): {"description": text, "content": report}
        for status, text in statuses.items()
        if endpoint.method == "POST" or status not in _FORM_ONLY
    }
    if endpoint.changes:
        # A change that was refused has a result with ok: false.
        done_schema = {"$ref": f"#/components/schemas/{Done.__name__}"}
        for status in ("404", "409", "422", "503"):
            schema = {"anyOf": [done_schema, report["application/json"]["schema"]]}
            errors[status] = errors[status] | {"content": {"application/json": {"schema": schema}}}
    return errors


def _is_response(endpoint: Endpoint) -> bool:
    return isinstance(endpoint.output, type) and issubclass(endpoint.output, Response)


# Headers and files ---------------------------------------------------------------------------------------------------

#: Source: OWASP Secure Headers Project, CSP level 3. No Strict-Transport-Security, which would apply to all ports of a host.
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self';"
        " base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class SecurityHeaders:
    """Adds the headers to each answer, and rejects requests for other hosts if the port listens on a loopback address.

    It also answers the requests that the server cancels when the bridge stops.
    """

    def __init__(self, app: ASGIApp, console: Console) -> None:
        self._app = app
        self._console = console
        self._is_loopback = is_loopback(console.configuration.admin.address)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        # With DNS rebinding, the name of another site resolves to 127.0.0.1, and its pages could use the port as their own.
        host = _name_of(Headers(scope=scope).get("host", ""))
        if self._is_loopback and host and not is_loopback(host):
            text = f"The admin port listens on a loopback address and does not serve host {host[:100]!r}. hint: let a proxy\n"
            text += "send the address that it connects to (nginx: proxy_set_header Host $proxy_host).\n"
            await PlainTextResponse(text, 421)(scope, receive, send_with_headers)
            return
        try:
            await self._app(scope, receive, send_with_headers)
        except Exception:
            # Starlette raises an exception again after its handler has logged and answered it.
            if not started:
                raise
        except asyncio.CancelledError:
            # The server would answer with status 500 and log a traceback.
            if not started:
                stopping = self._console.report(Request(scope), RequestProblem(503, "the bridge is stopping"))
                await stopping(scope, receive, send_with_headers)


def _name_of(host: str) -> str:
    """Return the name or address in a Host header, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


class _Static(StaticFiles):
    """The style sheet, scripts and pictures, which browsers may cache and revalidate."""

    def file_response(self, *args: object, **options: object) -> Response:
        response = super().file_response(*args, **options)  # type: ignore[arg-type]
        response.headers["Cache-Control"] = "no-cache"
        return response
