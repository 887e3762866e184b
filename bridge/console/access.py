"""Who asks at the admin port, and what they may: by a token in a header, or logged in to the console.

Programs send `Authorization: Bearer TOKEN`. People log in with a token, or as a user of `admin.authentication`; a cookie says
from then on who they are, and each change carries the token of their login, so that no other site's page can have it made
(OWASP: Session Management, Cross-Site Request Forgery Prevention).
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from bridge.config import AdminConfig, Configuration
from bridge.console.bridge_access import BridgeAccess, NotRunning
from bridge.console.logins import LONGEST, Login, Logins
from bridge.console.problem import Problem
from bridge.console.tokens import Right, TokenFile
from bridge.security import audit_log
from bridge.security.authenticator import Authenticated, AuthenticationFailed, AuthenticatorUnavailable, Presented
from bridge.security.failed_connects import Attempt, FailedConnects

log = logging.getLogger(__name__)

#: Field and header that carry the token of a login.
CSRF_FIELD: Final = "csrf_token"
CSRF_HEADER: Final = "X-CSRF-Token"
#: Header of requests that a page makes by itself.
REFRESH_HEADER: Final = "X-Refresh"
_COOKIE: Final = "mqbridge"
_SECURE_COOKIE: Final = f"__Host-{_COOKIE}"
#: Failures of a user of one address before the next attempt waits, the longest wait, and attempts that wait at a time.
_FREE, _LONGEST_WAIT, _MOST_WAITING = 5, 30.0, 8
#: Seconds that the judgement of a password may take.
_JUDGEMENT: Final = 30.0
#: How a channel names itself to authenticators.
_CHANNEL: Final = "admin"


class NobodyKnows(Exception):
    """Who somebody is cannot be found out now; words for the log."""


class Who(msgspec.Struct, frozen=True, eq=False):
    """Somebody who may read, or change something."""

    #: for the audit log: `token admin`, `user alice`
    name: str
    right: Right
    address: str
    #: None: a program, by a token in a header
    login: Login | None = None

    @property
    def may_change(self) -> bool:
        """Return whether they may change something."""
        return self.right is Right.CHANGE


class Access:
    """Tells who asks. Used on the event loop of the admin port alone."""

    def __init__(self, bridge: BridgeAccess, configuration: Configuration) -> None:
        self._bridge = bridge
        path = configuration.token_file_path
        self._tokens = None if path is None else TokenFile(path)
        self._logins = Logins(time.monotonic)
        self._failed = FailedConnects(time.monotonic)
        self._waiting = 0

    @property
    def _config(self) -> AdminConfig:
        return self._bridge.bridge.configuration.admin

    @property
    def by_token(self) -> bool:
        """Return whether there is a token file."""
        return self._tokens is not None

    @property
    def by_password(self) -> bool:
        """Return whether users can log in."""
        return bool(self._config.authentication)

    async def who(self, request: Request) -> Who | None:
        """Return who asks; None: somebody who has shown nothing. Raises Problem for a token that is none."""
        address = address_of(request)
        header = request.headers.get("authorization")
        if header is not None:
            scheme, _, shown = header.partition(" ")
            token = None
            if scheme.lower() == "bearer" and self._tokens is not None:
                token = self._tokens.holder(shown.strip())
            if token is None:
                await self._no_token(address)
                raise Problem(401, "This token is not known", headers={"WWW-Authenticate": "Bearer"})
            return Who(f"token {token.name}", token.right, address)
        login = self._login(request, by_hand=REFRESH_HEADER not in request.headers)
        if login is None:
            return None
        return Who(login.name, login.right, address, login)

    def check_change(self, request: Request, who: Who, form: Mapping[str, str]) -> None:
        """Make sure that somebody may change something, and has asked for it by a page of this console. Raises Problem."""
        self.check_form(request, who, form)
        if not who.may_change:
            raise Problem(403, f"{who.name} may read, and change nothing", ["Log in with a token of right change."])

    def check_form(self, request: Request, who: Who, form: Mapping[str, str]) -> None:
        """Make sure that a form is of a page of this console that was made for who sends it. Raises Problem."""
        if who.login is None:
            return
        check_origin(request)
        shown = request.headers.get(CSRF_HEADER) or form.get(CSRF_FIELD, "")
        if not hmac.compare_digest(shown.encode("utf-8", "replace"), who.login.csrf_token.encode()):
            raise Problem(403, "This form is of another login", ["Go back, load the page again, and send it once more."])

    async def log_in(self, request: Request, form: Mapping[str, str]) -> str:
        """Let somebody in who shows a token, or user and password; return the identifier for the cookie. Raises Problem."""
        check_origin(request)
        address = address_of(request)
        if form.get("token"):
            token = None if self._tokens is None else self._tokens.holder(form["token"].strip())
            if token is None:
                await self._no_token(address)
                raise Problem(403, "This token is not known")
            name, right = f"token {token.name}", token.right
            identifier = self._logins.begin(name, right, token=token)
        else:
            authentication = self._bridge.authentication
            user, seconds = await self._judged(form.get("user", ""), form.get("password", ""), address)
            name = f"user {user}"
            right = Right.CHANGE if user in self._config.administrators else Right.READ
            identifier = self._logins.begin(name, right, seconds=seconds, authentication=authentication)
        audit_log.note("console login", user=name, address=address, right=right)
        return identifier

    def log_out(self, request: Request, who: Who) -> None:
        """End a login."""
        for cookie in (_COOKIE, _SECURE_COOKIE):
            if cookie in request.cookies:
                self._logins.end(request.cookies[cookie])
        audit_log.note("console logout", user=who.name, address=who.address)

    def _login(self, request: Request, *, by_hand: bool) -> Login | None:
        for cookie in (_SECURE_COOKIE, _COOKIE):
            if cookie in request.cookies:
                identifier = request.cookies[cookie]
                login = self._logins.find(identifier, by_hand=by_hand)
                if login is None:
                    continue
                if self._holds(login):
                    return login
                self._logins.end(identifier)
        return None

    def _holds(self, login: Login) -> bool:
        """Return whether that by which somebody has logged in is still there: the token, or users as before a reload."""
        if login.token is None:
            return login.authentication is self._bridge.authentication
        return self._tokens is not None and self._tokens.has(login.token)

    def is_in(self, request: Request, who: Who) -> bool:
        """Return whether somebody may still have the answer of a request that goes on and on."""
        if who.login is not None:
            return self._login(request, by_hand=False) is who.login
        _, _, shown = request.headers.get("authorization", "").partition(" ")
        return self._tokens is not None and self._tokens.holder(shown.strip()) is not None

    async def _judged(self, user: str, password: str, address: str) -> tuple[str, float | None]:
        """Return who somebody is, and for how many seconds that is true (None: for ever). Raises Problem."""
        if not self.by_password or not user:
            raise Problem(400, "Log in with a token" if not self.by_password else "Log in with a token, or user and password")
        attempt = await self._attempt(address, user)
        try:
            found = await self._shown(Presented("", user, password.encode("utf-8", "surrogatepass"), None, address, _CHANNEL))
            attempt.end(True)
        except NobodyKnows as error:
            attempt.end(True)  # it has not failed
            log.warning("MQB9201W console: whether user %r is who they say cannot be found out: %s", user, error)
            raise Problem(503, "Who you are cannot be found out just now", ["The log of the bridge says why."]) from error
        except AuthenticationFailed as error:
            self._refused(address, str(error), user)
            raise Problem(403, "User or password are not right") from error
        finally:
            attempt.end(False)
        name = found.user_name if found.user_name is not None else user
        seconds = None if found.expires is None else min(found.expires - time.time(), LONGEST)
        return name, seconds

    async def _shown(self, presented: Presented) -> Authenticated:
        """Return who somebody is by what they present. Raises AuthenticationFailed, NobodyKnows."""
        try:
            async with asyncio.timeout(_JUDGEMENT):
                found = await self._bridge.authenticate(presented)
        except (AuthenticatorUnavailable, NotRunning) as error:
            raise NobodyKnows(str(error)) from error
        except TimeoutError as error:
            raise NobodyKnows(f"it takes longer than {_JUDGEMENT:g} s") from error
        if found.user_name == "":
            raise AuthenticationFailed("what it presents is of nobody in particular")
        return found

    async def _no_token(self, address: str) -> None:
        """Note that somebody has shown a token that is none; who does so again and again waits for the answer."""
        (await self._attempt(address, "")).end(False)
        self._refused(address, "an unknown token")

    async def _attempt(self, address: str, user: str) -> Attempt:
        """Begin to judge who somebody is: at once, or later where others of their address or user have failed.

        Raises Problem where too many wait.
        """
        attempt = self._failed.begin(address, user, _FREE, _LONGEST_WAIT)
        if attempt is not None and attempt.delay and self._waiting >= _MOST_WAITING:
            attempt.end(True)  # it is not judged
            attempt = None
        if attempt is None:
            raise Problem(429, "Too many logins fail just now", ["Try again in a moment."], {"Retry-After": "30"})
        if attempt.delay:
            log.warning(
                "MQB9203W console: %s is judged %g s late, for others of its address have failed before",
                address,
                attempt.delay,
            )
            self._waiting += 1
            try:
                await asyncio.sleep(attempt.delay)
            except asyncio.CancelledError:
                attempt.end(False)
                raise
            finally:
                self._waiting -= 1
        return attempt

    def _refused(self, address: str, why: str, user: str = "") -> None:
        """Note that somebody has not shown who they are."""
        audit_log.note("console login refused", address=address, why=why, user=user)
        log.warning("MQB9202W console: %s is refused: %s", address, why)


def address_of(request: Request) -> str:
    """Return the IP address at the other end of a connection."""
    return request.client.host if request.client is not None else ""


def check_origin(request: Request) -> None:
    """Make sure that a form was sent by a page of this console. Raises Problem."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None:
        own = site in ("same-origin", "none")
    else:
        own = origin is None or urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()
    if not own:
        raise Problem(403, "This form was sent by a page of another site", ["Nothing was changed."])


def is_secure(request: Request) -> bool:
    """Return whether the browser speaks TLS: to this port, or to a proxy in front of it, as its Origin says."""
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")


def set_cookie(response: Response, request: Request, identifier: str) -> None:
    """Have a browser keep the identifier of a login until it is closed."""
    secure = is_secure(request)
    name = _SECURE_COOKIE if secure else _COOKIE
    response.set_cookie(name, identifier, path="/", secure=secure, httponly=True, samesite="strict")


def delete_cookies(response: Response) -> None:
    """Have a browser forget a login."""
    response.delete_cookie(_COOKIE, path="/", httponly=True, samesite="strict")
    response.delete_cookie(_SECURE_COOKIE, path="/", secure=True, httponly=True, samesite="strict")
