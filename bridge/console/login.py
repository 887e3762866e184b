"""Logging in to the console, and out."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from bridge.console.access import delete_cookies, set_cookie
from bridge.console.console import Console
from bridge.console.form import form_of
from bridge.console.problem import Problem
from bridge.console.urls import local


def routes(console: Console) -> list[Route]:
    """Return the routes."""

    def shown(request: Request, target: str, problem: Problem | None = None) -> Response:
        status = 200 if problem is None else problem.status
        answer = console.render(
            "login.html",
            request,
            None,
            status,
            problem=problem,
            target=target,
            by_token=console.access.by_token,
            by_password=console.access.by_password,
        )
        if problem is not None:
            answer.headers.update(problem.headers)
        return answer

    async def page(request: Request) -> Response:
        target = local(request.query_params.get("next", "/"))
        if await console.access.who(request) is not None:
            return RedirectResponse(target, 303)
        return shown(request, target)

    async def log_in(request: Request) -> Response:
        form = await form_of(request)
        target = local(form.get("next", "/"))
        try:
            identifier = await console.access.log_in(request, form)
        except Problem as problem:
            return shown(request, target, problem)
        answer = RedirectResponse(target, 303)
        set_cookie(answer, request, identifier)
        return answer

    async def log_out(request: Request) -> Response:
        who = await console.access.who(request)
        if who is not None and who.login is not None:
            console.access.check_form(request, who, await form_of(request))
            console.access.log_out(request, who)
        answer = RedirectResponse("/login", 303)
        delete_cookies(answer)
        return answer

    return [
        console.open("/login", page),
        console.open("/login", log_in, "POST"),
        console.open("/logout", log_out, "POST"),
    ]
