"""Authentication and authorization at the admin port: bearer tokens, logins and their cookies.

Programs send `Authorization: Bearer TOKEN`. People log in with a token, or as a user of `admin.authentication`. A cookie
identifies their login, and each form carries the CSRF token of the login (OWASP: Session Management, Cross-Site Request
Forgery Prevention).
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from bridge.administration.requests import ClientColumn
from bridge.config.models import Configuration
from bridge.config.operations import AdminConfig
from bridge.console.bridge_access import BridgeAccess, NotRunning
from bridge.console.forms import RequestProblem
from bridge.security import audit_log, authenticator
from bridge.security.authenticators import ChannelAuthentication
from bridge.security.tokens import Right, Token, TokenFile, digest_of

log = logging.getLogger(__name__)

#: Field and header that carry the token of a login.
CSRF_FIELD: Final = "csrf_token"
CSRF_HEADER: Final = "X-CSRF-Token"
#: Header of requests that a page sends without user interaction.
REFRESH_HEADER: Final = "X-Refresh"
_COOKIE: Final = "mqbridge"
_SECURE_COOKIE: Final = f"__Host-{_COOKIE}"
#: Failures of a user or address before attempts are delayed, the maximum delay in seconds, and maximum number of delayed
#: attempts at a time.
_FREE, _MAX_DELAY, _MAX_DELAYED = 5, 30.0, 8
#: Maximum time to check a password, in seconds.
AUTHENTICATION_TIMEOUT: Final = 30.0
#: The name of the admin port for authenticators.
_CHANNEL: Final = "admin"


# Logins --------------------------------------------------------------------------------------------------------------

#: Seconds without user interaction after which a login expires, and its maximum duration in seconds.
IDLE: Final = 30 * 60.0
MAX_DURATION: Final = 12 * 3600.0
#: Maximum number of logins, in total and per name. If there are too many, the one that has been idle longest ends.
MAX_LOGINS, MAX_LOGINS_PER_NAME = 100, 10


class Login(msgspec.Struct, eq=False):
    """A login of a person."""

    name: str
    right: Right
    #: carried by each form
    csrf_token: str
    began: float
    #: time of the last request with user interaction
    last_used: float
    #: time at which the credentials expire, by the clock of the logins, or None if they do not expire
    expires: float | None = None
    #: the token, or None for a login with user and password
    token: Token | None = None
    #: the authentication that checked user and password
    authentication: ChannelAuthentication | None = None
    #: the result of the last change, shown once by the next page: success, and lines
    notice: tuple[bool, list[str]] | None = None
    #: the columns of clients that the user has chosen
    columns: list[ClientColumn] = []


class Logins:
    """All logins, in memory, by the digest of the identifier in their cookie. `clock` is monotonic."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._logins: dict[bytes, Login] = {}

    def begin(
        self,
        name: str,
        right: Right,
        *,
        token: Token | None = None,
        authentication: ChannelAuthentication | None = None,
        seconds: float | None = None,
    ) -> str:
        """Begin a login of at most `seconds`. Return the identifier for the cookie."""
        now = self._clock()
        for key in [key for key, login in self._logins.items() if self._has_ended(login, now)]:
            del self._logins[key]
        own = [key for key, login in self._logins.items() if login.name == name]
        for keys, limit in ((own, MAX_LOGINS_PER_NAME), (self._logins, MAX_LOGINS)):
            if len(keys) >= limit:
                del self._logins[min(keys, key=lambda key: self._logins[key].last_used)]
        identifier = secrets.token_urlsafe(32)
        expires = None if seconds is None else now + seconds
        self._logins[digest_of(identifier)] = Login(
            name, right, secrets.token_urlsafe(32), now, now, expires, token, authentication
        )
        return identifier

    def find(self, identifier: str, *, by_hand: bool = True) -> Login | None:
        """Return the login with an identifier, or None if it is unknown or has expired.

        Only requests with user interaction (`by_hand`) extend a login.
        """
        login = self._logins.get(digest_of(identifier))
        if login is None:
            return None
        now = self._clock()
        if self._has_ended(login, now):
            del self._logins[digest_of(identifier)]
            return None
        if by_hand:
            login.last_used = now
        return login

    def end(self, identifier: str) -> None:
        """End a login."""
        self._logins.pop(digest_of(identifier), None)

    @staticmethod
    def _has_ended(login: Login, now: float) -> bool:
        has_expired = login.expires is not None and now >= login.expires
        return has_expired or now - login.last_used > IDLE or now - login.began > MAX_DURATION


class AuthenticationUnavailable(Exception):
    """The credentials cannot be checked now. The text is for the log."""


#: Begins the names of tokens.
_TOKEN: Final = "token "


class ConsolePrincipal(msgspec.Struct, frozen=True, eq=False):
    """An authenticated user or program."""

    #: as in the audit log: `token admin`, `user alice`
    name: str
    right: Right
    address: str
    #: None for a program with a bearer token
    login: Login | None = None

    def may(self, right: Right) -> bool:
        """Return whether the user has a right."""
        return right in self.right.included

    @property
    def may_change(self) -> bool:
        """Whether the user may change everything."""
        return self.may(Right.CHANGE)

    @property
    def application(self) -> str:
        """The name of the application to which the token belongs."""
        return self.name.removeprefix(_TOKEN)

    def check(self, right: Right) -> None:
        """Raise RequestProblem if the user does not have a right."""
        if not self.may(right):
            text = f"{self.name} has the right `{self.right}`, and this needs `{right}`"
            raise RequestProblem(403, text, ["Use a token that has this right."])


class Access:
    """Authenticates requests. Used on the event loop of the admin port only."""

    def __init__(self, bridge: BridgeAccess, configuration: Configuration) -> None:
        self._bridge = bridge
        path = configuration.token_file_path
        self._tokens = None if path is None else TokenFile(path)
        self._logins = Logins(time.monotonic)
        self._failed = authenticator.FailedConnects(time.monotonic)
        self._waiting = 0

    @property
    def _config(self) -> AdminConfig:
        return self._bridge.configuration.admin

    @property
    def by_token(self) -> bool:
        """Whether there is a token file."""
        return self._tokens is not None

    @property
    def by_password(self) -> bool:
        """Whether users can log in with a password."""
        return bool(self._config.authentication)

    async def authenticate(self, request: Request) -> ConsolePrincipal | None:
        """Return the sender of a request, or None without credentials. Raises RequestProblem for an unknown token."""
        address = address_of(request)
        header = request.headers.get("authorization")
        if header is not None:
            token = self._bearer(header)
            if token is None:
                await self._no_token(address)
                raise RequestProblem(401, "Unknown token", headers={"WWW-Authenticate": "Bearer"})
            return ConsolePrincipal(f"{_TOKEN}{token.name}", token.right, address)
        login = self._login(request, by_hand=REFRESH_HEADER not in request.headers)
        if login is None:
            return None
        return ConsolePrincipal(login.name, login.right, address, login)

    def knows(self, request: Request) -> bool:
        """Return whether a request has valid credentials, without extending its login or recording a failure."""
        header = request.headers.get("authorization")
        if header is not None:
            return self._bearer(header) is not None
        return self._login(request, by_hand=False) is not None

    def _bearer(self, header: str) -> Token | None:
        """Return the token in an Authorization header, or None if it is unknown."""
        scheme, _, token_text = header.partition(" ")
        if scheme.lower() != "bearer" or self._tokens is None:
            return None
        return self._tokens.holder(token_text.strip())

    def check_change(
        self, request: Request, principal: ConsolePrincipal, form: Mapping[str, str | bytes], right: Right
    ) -> None:
        """Check that a change comes from a page of this console and is permitted. Raises RequestProblem."""
        self.check_form(request, principal, form)
        principal.check(right)

    def check_form(self, request: Request, principal: ConsolePrincipal, form: Mapping[str, str | bytes]) -> None:
        """Check that a form comes from a page of this console and of the same login. Raises RequestProblem."""
        if principal.login is None:
            return
        check_origin(request)
        token = request.headers.get(CSRF_HEADER) or str(form.get(CSRF_FIELD, ""))
        if not hmac.compare_digest(token.encode("utf-8", "replace"), principal.login.csrf_token.encode()):
            raise RequestProblem(
                403, "This form belongs to another login", ["Go back, reload the page, and send it again."]
            )

    async def log_in(self, request: Request, form: Mapping[str, str | bytes]) -> str:
        """Log in with a token, or with user and password. Return the identifier for the cookie. Raises RequestProblem."""
        check_origin(request)
        address = address_of(request)
        if token_text := str(form.get("token", "")):
            token = None if self._tokens is None else self._tokens.holder(token_text.strip())
            if token is None:
                await self._no_token(address)
                raise RequestProblem(403, "Unknown token")
            if token.right is Right.APPLICATION:
                raise RequestProblem(403, "This is the token of an application", ["It cannot log in."])
            name, right = f"{_TOKEN}{token.name}", token.right
            identifier = self._logins.begin(name, right, token=token)
        else:
            authentication = self._bridge.authentication
            user, seconds = await self._authenticated(str(form.get("user", "")), str(form.get("password", "")), address)
            name = f"user {user}"
            config = self._config
            right = Right.OPERATE if user in config.operators else Right.READ
            right = Right.CHANGE if user in config.administrators else right
            identifier = self._logins.begin(name, right, seconds=seconds, authentication=authentication)
        audit_log.note("console login", user=name, address=address, right=right)
        return identifier

    def log_out(self, request: Request, principal: ConsolePrincipal) -> None:
        """End a login."""
        for cookie in (_COOKIE, _SECURE_COOKIE):
            if cookie in request.cookies:
                self._logins.end(request.cookies[cookie])
        audit_log.note("console logout", user=principal.name, address=principal.address)

    def _login(self, request: Request, *, by_hand: bool) -> Login | None:
        for cookie in (_SECURE_COOKIE, _COOKIE):
            if cookie in request.cookies:
                identifier = request.cookies[cookie]
                login = self._logins.find(identifier, by_hand=by_hand)
                if login is None:
                    continue
                if self._is_valid(login):
                    return login
                self._logins.end(identifier)
        return None

    def _is_valid(self, login: Login) -> bool:
        """Return whether the token of a login still exists, or users have not been reloaded since."""
        if login.token is None:
            return login.authentication is self._bridge.authentication
        return self._tokens is not None and self._tokens.has(login.token)

    def is_in(self, request: Request, principal: ConsolePrincipal) -> bool:
        """Return whether the credentials of a long-running request are still valid."""
        if principal.login is not None:
            return self._login(request, by_hand=False) is principal.login
        return self._bearer(request.headers.get("authorization", "")) is not None

    async def _authenticated(self, user: str, password: str, address: str) -> tuple[str, float | None]:
        """Check a password. Return the user and the validity in seconds, None for unlimited. Raises RequestProblem."""
        if not self.by_password or not user:
            raise RequestProblem(400, f"Log in with a token{', or with user and password' if self.by_password else ''}")
        attempt = await self._attempt(address, user)
        try:
            secret = password.encode("utf-8", "surrogatepass")
            authentication = await self._checked(authenticator.Presented("", user, secret, None, address, _CHANNEL))
            attempt.end(True)
        except AuthenticationUnavailable as error:
            attempt.end(True)  # it has not failed
            log.warning("MQB9201W console: authenticating user %r failed: %s", user, error)
            raise RequestProblem(
                503, "Authentication is unavailable", ["The log of the bridge contains the reason."]
            ) from error
        except authenticator.AuthenticationFailed as error:
            self._refused(address, str(error), user)
            raise RequestProblem(403, "User or password is wrong") from error
        finally:
            attempt.end(False)
        name = authentication.user_name if authentication.user_name is not None else user
        seconds = None if authentication.expires is None else min(authentication.expires - time.time(), MAX_DURATION)
        return name, seconds

    async def _checked(self, presented: authenticator.Presented) -> authenticator.Authenticated:
        """Authenticate a user. Raises AuthenticationFailed or AuthenticationUnavailable."""
        try:
            async with asyncio.timeout(AUTHENTICATION_TIMEOUT):
                authentication = await self._bridge.authenticate(presented)
        except (authenticator.AuthenticatorUnavailable, NotRunning) as error:
            raise AuthenticationUnavailable(str(error)) from error
        except TimeoutError as error:
            raise AuthenticationUnavailable(f"timeout after {AUTHENTICATION_TIMEOUT:g} s") from error
        if authentication.user_name == "":
            raise authenticator.AuthenticationFailed("the credentials name no user")
        return authentication

    async def _no_token(self, address: str) -> None:
        """Record an unknown token. Repeated failures delay the answer."""
        (await self._attempt(address, "")).end(False)
        self._refused(address, "an unknown token")

    async def _attempt(self, address: str, user: str) -> authenticator.Attempt:
        """Begin an attempt to log in, delayed after failures. Raises RequestProblem if too many attempts wait."""
        attempt = self._failed.begin(address, user, _FREE, _MAX_DELAY)
        if attempt is not None and attempt.delay and self._waiting >= _MAX_DELAYED:
            attempt.end(True)  # nothing was checked
            attempt = None
        if attempt is None:
            raise RequestProblem(429, "Too many logins have failed", ["Try again in a moment."], {"Retry-After": "30"})
        if attempt.delay:
            log.warning(
                "MQB9203W console: delayed a login from %s by %g s after failed attempts from its address",
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

    def _refused(self, address: str, reason: str, user: str = "") -> None:
        """Log rejected credentials."""
        audit_log.note("console login refused", address=address, why=reason, user=user)
        log.warning("MQB9202W console: rejected %s: %s", address, reason)


def address_of(request: Request) -> str:
    """Return the IP address of the client."""
    return request.client.host if request.client is not None else ""


def check_origin(request: Request) -> None:
    """Check that a form was sent by a page of this console. Raises RequestProblem."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None:
        own = site in ("same-origin", "none")
    else:
        own = origin is None or urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()
    if not own:
        raise RequestProblem(403, "This form was sent by a page of another site", ["Nothing was changed."])


def is_secure(request: Request) -> bool:
    """Return whether the browser uses TLS, to this port or to a proxy in front of it (according to its Origin)."""
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")


def set_cookie(response: Response, request: Request, identifier: str) -> None:
    """Set the cookie of a login, which lasts until the browser is closed."""
    secure = is_secure(request)
    name = _SECURE_COOKIE if secure else _COOKIE
    response.set_cookie(name, identifier, path="/", secure=secure, httponly=True, samesite="strict")


def delete_cookies(response: Response) -> None:
    """Delete the cookies of a login."""
    response.delete_cookie(_COOKIE, path="/", httponly=True, samesite="strict")
    response.delete_cookie(_SECURE_COOKIE, path="/", secure=True, httponly=True, samesite="strict")
