"""The JSON filter of a mapping: an RFC 9535 filter expression on the payload.

Supports releases 1 and 2 of jsonpath-rfc9535, and uses only their public names.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

import regex
from iregexp_check import check as is_regular_expression
from jsonpath_rfc9535 import JSONPathEnvironment, JSONPathError

from bridge.mapping.template import FilterError
from bridge.telemetry.message import Unmappable
from bridge.wire import cmqc

MATCH_TIMEOUT = 0.25
"""Time limit for the regular expressions of a filter, per message, in seconds.

Some expressions take time exponential in the length of the text.
"""
MAX_SECONDS = 2.0
"""Time limit for the filter expressions on the elements of arrays and objects, per message, in seconds of the processor."""
_DOT = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|(\.)", re.DOTALL)


class _Deadline(threading.local):
    """Per-thread deadlines of the filter under evaluation."""

    #: for regular expressions, from time.monotonic()
    value = 0.0
    #: from time.thread_time()
    of_processor = 0.0


class _TooLong(Exception):
    """The elements of a document took longer than MAX_SECONDS."""


_deadline = _Deadline()


class _Match:
    """`match()` or `search()` of RFC 9535, sections 2.4.6 and 2.4.7, with a time limit. Raises TimeoutError."""

    def __init__(self, unlimited: Any, method: str) -> None:
        self.arg_types, self.return_type = unlimited.arg_types, unlimited.return_type
        self._method = method

    def __call__(self, text: object, pattern: str) -> bool:
        if not isinstance(text, str):
            return False
        seconds = _deadline.value - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        return getattr(_compiled_expression(pattern), self._method)(text, timeout=seconds) is not None


@lru_cache(maxsize=256)
def _compiled_expression(pattern: str) -> Any:
    """Compile a regular expression of RFC 9485. Section 5.4 defines the dot. Raises regex.error."""
    return regex.compile(_DOT.sub(lambda match: r"[^\n\r]" if match[1] else match[0], pattern), regex.VERSION0)


class _Clock:
    """A function that is true, with the time limit of a filter. Raises _TooLong."""

    def __init__(self, match: Any, length: Any) -> None:
        self.arg_types, self.return_type = length.arg_types, match.return_type

    def __call__(self, _: object) -> bool:
        if time.thread_time() > _deadline.of_processor:
            raise _TooLong
        return True


def _environment(*, limited: bool) -> Any:
    """Return the functions of filters, with a function that limits the time if `limited`."""
    environment: Any = JSONPathEnvironment()
    # Release 2 uses another name for the same dictionary.
    functions = environment.functions if hasattr(environment, "functions") else environment.function_extensions
    for name, method in (("match", "fullmatch"), ("search", "search")):
        functions[name] = _Match(functions[name], method)
    if limited:
        functions[_CLOCK] = _Clock(functions["match"], functions["length"])
    return environment


_CLOCK = "mqbridge_clock"
_ENVIRONMENT, _LIMITED_ENVIRONMENT = _environment(limited=False), _environment(limited=True)
#: Prefix that turns a filter expression into a query (RFC 9535, section 2.3.5).
_BEFORE = "$[?"
#: Maximum length of a filter in characters, and maximum nesting depth. The parser is recursive.
_LENGTH, _DEPTH = 4_096, 64
_TOKEN = re.compile(
    r"""(?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<root>\$)|(?P<filter>\?)|(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)""",
    re.DOTALL | re.VERBOSE,
)
#: A query, up to the next one.
_QUERY = re.compile(r"[$@][^$@]*")
#: Selectors without a filter.
_BRACKETS = re.compile(r"\[[^\]?]*\]")
#: Maximum number of times that a query selects the same element by repeated selectors: `[0, 0]` selects it twice.
_SELECTIONS = 64
#: A leading name that is neither a literal nor a function.
_BARE_NAME = re.compile(r"\s*(?!(?:true|false|null)\b)([A-Za-z_][A-Za-z0-9_]*)\b(?!\s*\()")
#: Integers that IEEE 754 represents exactly (RFC 9535, section 2.1, I-JSON).
_EXACT = range(-(2**53) + 1, 2**53)


class WithDocument(Protocol):
    """An object with a JSON payload. `document` raises Unmappable if the payload is not JSON."""

    @property
    def document(self) -> Any: ...


def json_test(text: str) -> Callable[[WithDocument], bool]:
    """Return the payload test for the filter expression `text`. Raises FilterError."""
    query = _query(text)
    has_time_limit = "?" in text

    def test(message: WithDocument) -> bool:
        try:
            document = message.document
        except Unmappable:
            return False  # not JSON, so the filter does not match
        _deadline.value = time.monotonic() + MATCH_TIMEOUT
        if has_time_limit:  # thread_time is a system call
            _deadline.of_processor = time.thread_time() + MAX_SECONDS
        try:
            return query.find_one([document]) is not None
        except (JSONPathError, RecursionError) as error:
            raise Unmappable(
                cmqc.MQRC_FORMAT_ERROR, f"the filter {text!r} cannot be applied to the payload: {error}"
            ) from error
        except _TooLong as error:
            why = f"the filter {text!r} takes longer than {MAX_SECONDS:g} s of the processor for the payload"
            raise Unmappable(cmqc.MQRC_DATA_LENGTH_ERROR, why) from error
        except TimeoutError as error:
            why = f"the regular expressions of the filter {text!r} take longer than {MATCH_TIMEOUT:g} s for the payload"
            raise Unmappable(cmqc.MQRC_FORMAT_ERROR, why) from error

    return test


def _query(text: str) -> Any:
    """Return a query that finds the payload, wrapped in a list, if the filter expression is true. Raises FilterError."""
    if len(text) > _LENGTH:
        raise FilterError(f"a filter has at most {_LENGTH} characters, not {len(text)}")
    depth = max(text.count("("), text.count("["), text.count("!"), text.count("&&"), text.count("||"))
    if depth > _DEPTH:
        raise FilterError(f"a filter has at most {_DEPTH} parentheses, brackets or signs of a kind, not {depth}")
    _check_literals(text)
    _compiled(f"{_BEFORE}{text}]", text)
    _check_repetition(text)
    # In the list, `@` is the payload, so `$` must be replaced by `$[0]`. Each filter in a query checks the time first.
    replaced = {"$": "$[0]", "?": f"?{_CLOCK}(@) && "}
    rooted = _TOKEN.sub(lambda match: replaced.get(match[0], match[0]), text)
    try:
        # The parentheses reject text that contains more than one expression.
        return _LIMITED_ENVIRONMENT.compile(f"{_BEFORE}({rooted})]")
    except (JSONPathError, RecursionError, OverflowError, ValueError) as error:
        raise FilterError(
            f"{text!r} is more than one filter expression of RFC 9535, such as $.temp > 30 && $.unit == 'C'"
        ) from error


def _check_repetition(text: str) -> None:
    """Reject queries that can visit an element many times, outside filters that check the time. Raises FilterError.

    `$..a..a` visits an element once per element around it. Each further `..` multiplies that.
    """
    without_strings = _TOKEN.sub(lambda token: " " * len(token[0]) if token["string"] else token[0], text)
    for query in _QUERY.finditer(without_strings):
        if query[0].count("..") > 1:
            why = "a query has at most one `..`, because a large payload would take minutes"
            raise FilterError(f"{text!r} is too expensive: {why}", query.start() + query[0].rindex("..") + 1)
        if math.prod(selectors.count(",") + 1 for selectors in _BRACKETS.findall(query[0])) > _SELECTIONS:
            why = f"repeated selectors in brackets may select an element {_SELECTIONS} times at most"
            raise FilterError(f"{text!r} is too expensive: {why}", query.start() + 1)


def _compiled(query: str, text: str) -> None:
    try:
        _ENVIRONMENT.compile(query)
    except JSONPathError as error:
        if (name := _BARE_NAME.match(text)) is not None:
            hint = f"values of the payload begin with $, as $.{name[1]} does"
            raise FilterError(f"{text!r} is not a filter expression of RFC 9535: {hint}", name.start(1) + 1) from error
        message = error.args[0] if error.args else type(error).__name__
        raise FilterError(
            f"{text!r} is not a filter expression of RFC 9535: {message}", _column(error, text)
        ) from error
    except (RecursionError, OverflowError, ValueError) as error:
        raise FilterError(f"{text!r} is not a filter expression of RFC 9535: {error}") from error


def _column(error: JSONPathError, text: str) -> int:
    """Return the column of an error in `text`, from 1."""
    token: Any = getattr(error, "token", None)
    index = getattr(token, "index", None)
    if not isinstance(index, int):  # release 2 has a tuple: kind, start, end
        index = token[1] if token else len(_BEFORE)
    return min(max(index - len(_BEFORE), 0), len(text)) + 1


def _check_literals(text: str) -> None:
    """Reject literals that would silently be misread: inexact numbers, invalid regular expressions. Raises FilterError."""
    function: re.Match[str] | None = None
    for match in _TOKEN.finditer(text):
        number = match["number"]
        if number is not None and not re.search(r"[\w\])]$", text[: match.start()]):
            if number.lstrip("-").isdigit() and int(number) not in _EXACT:
                raise FilterError(f"{number} cannot be compared exactly: beyond 2^53", match.start() + 1)
            if float(number) in (float("inf"), float("-inf")):
                raise FilterError(f"{number} is too large a number", match.start() + 1)
        elif match["name"] in ("match", "search") and text.startswith("(", match.end()):
            _check_pattern_is_literal(function)
            function = match
        elif match["string"] is not None and function and text[: match.start()].rstrip().endswith(","):
            function = None
            pattern = match["string"][1:-1].replace("\\\\", "\\")
            if not is_regular_expression(pattern):
                raise FilterError(f"{match['string']} is not a regular expression of RFC 9485", match.start() + 1)
            try:
                _compiled_expression(pattern)
            except regex.error as error:
                raise FilterError(
                    f"{match['string']} is too large or not supported: {error}", match.start() + 1
                ) from error
    _check_pattern_is_literal(function)


def _check_pattern_is_literal(function: re.Match[str] | None) -> None:
    """Raise FilterError for a function without a literal pattern: an expression in a payload may be too large."""
    if function is not None:
        why = f"{function['name']}() needs a literal pattern, such as {function['name']}($.unit, 'C|F')"
        raise FilterError(why, function.start() + 1)
