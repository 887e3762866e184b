"""The base classes of administration requests and their answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Generic, TypeVar, cast, get_args

import msgspec

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Refused(Exception):
    """A request cannot be performed. The message is for display."""


class Invalid(Refused):
    """A request that contains an invalid value."""


class NotFound(Refused):
    """A request that names an object that does not exist."""


class Unavailable(Refused):
    """A request that cannot be performed now: the bridge is stopping, or its queue manager or a file is unavailable."""


class Request(msgspec.Struct, Generic[T_co], kw_only=True, tag_field="command"):
    """A request, with the type of the `result` of its answer, or None if the answer only has lines.

    Its tag is the command on the command line. Its docstring describes it in the help of the command and in OpenAPI, as the
    descriptions of its fields do.
    """

    #: whether the request changes something
    CHANGES: ClassVar[bool] = False
    #: whether users with the right `operate` may perform the change
    OPERATES: ClassVar[bool] = False
    #: whether the audit log records the request although it changes nothing
    AUDITED: ClassVar[bool] = False
    #: the fields that neither the log nor the audit log may contain
    SECRETS: ClassVar[tuple[str, ...]] = ()


def result_type(request: type[Request[T]]) -> type[T]:
    """Return the type of the result of a request."""
    (base,) = request.__orig_bases__  # type: ignore[attr-defined]
    (kind,) = get_args(base)
    return cast(type[T], kind)


def result_of(request: Request[T], answer: Answer) -> T:
    """Return the result in the answer to a request."""
    return msgspec.json.decode(answer.result, type=result_type(type(request)))


def concrete(base: type[Request[Any]]) -> Iterator[type[Request[Any]]]:
    """Yield the requests among the subclasses of a class, in the order of their definitions."""
    for kind in base.__subclasses__():
        yield from concrete(kind) if kind.__subclasses__() else (kind,)


class Answer(msgspec.Struct, kw_only=True):
    """The result of a request."""

    ok: bool = True
    #: for people: the effect, or the reason for a refusal
    lines: list[str] = []
    #: the requested data as JSON, of the type that the request specifies
    result: msgspec.Raw = msgspec.Raw(b"null")
    #: the request was refused because it contains an invalid value
    invalid: bool = False
    #: the request was refused because it names an object that does not exist
    not_found: bool = False
    #: the request was refused because the bridge is stopping, or its queue manager or a file is unavailable
    unavailable: bool = False
    #: the bridge failed to answer. Its log contains the reason
    failed: bool = False
