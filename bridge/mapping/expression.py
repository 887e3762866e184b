"""Expressions of mappings: CEL (https://cel.dev), evaluated by Google's implementation in C++ (package cel-expr-python).

An expression is compiled and type-checked once. For a message, it computes a value from the payload, topic, captures,
properties and MQMD. It has no side effects. Its number of steps is limited: it has at most 4,096 characters and no loops. The
macros of CEL (`exists`, `map` and so on) are rejected, because the package limits their steps, but neither their time nor
their memory: `map` is quadratic. Functions that search for a text or a pattern take it as a literal, because it is quadratic
to search for one text of the payload in another. Functions whose result can be longer than their text are limited together.

JSON does not distinguish 21 and 21.0, but CEL has no arithmetic between integers and floating-point numbers. So an
expression that fails because of that is evaluated again with all numbers of the payload, and its own, as floating-point
numbers. Integers that have to be integers stay so. Integers that CEL cannot represent (64 bits) and digits beyond those of a
double pass unchanged if the expression does not compute with them.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, Protocol

from bridge.mapping.json_document import MISSING, ExactFloat, PathError, PayloadPath, path_of
from bridge.mapping.pattern_length import pattern_length
from bridge.mapping.table import NO_TABLES, LookupScope, Tables, key_text, row_of
from bridge.mapping.table_lookup import HAS, ROW, UNBOUND, LookupMistake, TableLookup, rewritten
from bridge.mapping.template import RuleError
from bridge.telemetry.message import Unmappable
from bridge.wire import cmqc


class ExpressionError(RuleError):
    """An invalid expression."""


class UnknownKey(Unmappable):
    """An expression looks up a key that a table does not have."""


class ExpressionScope(LookupScope, Protocol):
    """The values of a message that expressions use."""

    def __call__(self, name: str, /) -> str | None:
        """Return the value of a capture or of a word, or None if the message has none."""
        ...

    @property
    def document(self) -> Any:
        """The payload parsed as JSON. Raises Unmappable."""
        ...

    @property
    def part(self) -> Any:
        """The part of the document that `split` has made."""
        ...

    @property
    def user_properties(self) -> Mapping[str, str]:
        """The message properties of the usr folder."""
        ...

    @property
    def descriptor(self) -> Mapping[str, str | int]:
        """The fields of the MQMD, or nothing for a publication."""
        ...


#: Words that are variables of expressions -> description. Captures are variables, too.
WORDS: Final[Mapping[str, str]] = {
    "payload": "the JSON payload",
    "part": "the part of the payload, in mappings with `split`",
    "topic": "topic of the publication",
    "clientId": "client identifier of the publisher",
    "user": "user of the publisher",
    "usr": "message properties, or User Properties, by name: `usr.site`",
    "md": "fields of the MQMD by name, in mappings to MQTT: `md.Priority`",
    "time": "time of the evaluation",
}
#: Variables that are JSON documents.
_DOCUMENTS: Final = ("payload", "part")
#: Maximum length in characters.
_LENGTH: Final = 4_096
#: Maximum number of lookups inside each other. Later Pythons would otherwise recurse much deeper than earlier ones.
_LOOKUP_DEPTH: Final = 16
#: The macros that are loops.
_LOOPS: Final = frozenset(("all", "exists", "exists_one", "existsOne", "filter", "map"))
#: Functions of times. Their argument is a time zone, and the package opens the file of that name, also a named pipe.
_OF_TIMES: Final = frozenset(
    (
        "getDate",
        "getDayOfMonth",
        "getDayOfWeek",
        "getDayOfYear",
        "getFullYear",
        "getHours",
        "getMilliseconds",
        "getMinutes",
        "getMonth",
        "getSeconds",
    )
)
#: Functions whose arguments are literals, because the result contains them many times, or because they are searched for.
_WITH_LITERALS: Final = _OF_TIMES | {"contains", "indexOf", "join", "lastIndexOf", "matches", "replace", "split"}
#: Maximum factor by which the functions of an expression together can make a text longer.
_GROWTH: Final = _LENGTH
#: Maximum length of a pattern. Up to it, a byte of a text takes 2 µs at most (20 µs with counts of Unicode classes).
_MAX_PATTERN: Final = 256
#: Maximum number of integers in an expression that are examined separately.
_MAX_INTEGERS: Final = 64
#: Names of types, which cannot be names of variables.
_TYPES: Final = frozenset(
    ("bool", "bytes", "double", "dyn", "int", "list", "map", "null_type", "string", "type", "uint")
)
_TOKEN = re.compile(
    r"""(?P<string>[rRbB]{0,2}(?:'{3}(?:[^\\]|\\[\s\S])*?'{3}|"{3}(?:[^\\]|\\[\s\S])*?"{3}|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"))
    |(?P<number>0[xX][0-9a-fA-F]+[uU]?|(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[uU]?)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<comment>//[^\n]*)|(?P<other>\S)""",
    re.VERBOSE,
)
#: A text as hexadecimal digits in a format, or an escape that can stand for a character of that.
_HEXADECIMAL = re.compile(r"%[xX]|\\[xXuU0-7]")
_PLACE = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_REASON = re.compile(r"^[A-Z_]+: ")
#: Beginnings of errors: an operation that does not exist, a member that is missing, and the first one in a compilation.
_NO_OVERLOAD: Final = "No matching overloads found"
_NOT_FOUND: Final = "NOT_FOUND"
_NO_OVERLOAD_HERE: Final = "found no matching overload"
_MISTAKE: Final = "ERROR: "
#: Integers that CEL represents.
_INT64: Final = range(-(2**63), 2**63)
#: The name of the only member of the object that stands for a larger integer. CEL can compare it, and nothing else. No
#: payload can contain it.
_LARGE: Final = secrets.token_hex()


class Expression:
    """A compiled expression. Raises ExpressionError.

    `captures` are the names of the mapping's source. `of_publication`: messages have no MQMD. `of_part`: messages have parts.
    """

    __slots__ = (
        "_floating",
        "_keys",
        "_lookups",
        "_members",
        "_names",
        "_path",
        "_program",
        "_uses_payload",
        "_word",
        "reads_payload",
        "text",
    )

    def __init__(
        self,
        text: str,
        captures: Collection[str] = (),
        *,
        of_publication: bool = False,
        of_part: bool = False,
        tables: Tables = NO_TABLES,
        depth: int = 0,
    ) -> None:
        self.text = text
        if len(text) > _LENGTH:
            raise ExpressionError(f"an expression has at most {_LENGTH:,} characters, not {len(text):,}")
        unknown = {name for name, is_known in (("md", not of_publication), ("part", of_part)) if not is_known}
        words = frozenset((*captures, *WORDS)) - _TYPES - (unknown.difference(captures))
        #: the lookups, whose variables have their indexes as numbers, and the expressions of their keys
        self._lookups: Sequence[TableLookup] = ()
        self._keys: list[Expression] = []
        if not tables:
            self._compile(text, words)
        else:
            self._compile_lookups(text, words, of_publication, of_part, tables, depth)
        #: whether the expression uses the payload
        self.reads_payload: bool = self._uses_payload or any(key.reads_payload for key in self._keys)

    def _compile_lookups(
        self, text: str, words: frozenset[str], of_publication: bool, of_part: bool, tables: Tables, depth: int
    ) -> None:
        """Compile the expression with variables for its lookups, and their keys. Raises ExpressionError."""
        if depth > _LOOKUP_DEPTH:
            raise ExpressionError(f"lookups are nested too deeply: at most {_LOOKUP_DEPTH} are inside each other")
        try:
            variables = rewritten(text, _tokens_of(text), tables, words)
        except LookupMistake as error:
            raise ExpressionError(str(error), error.position + 1) from error
        self._lookups = variables.lookups
        for lookup in variables.lookups:
            try:
                key = Expression(
                    lookup.key, words, of_publication=of_publication, of_part=of_part, tables=tables, depth=depth + 1
                )
            except ExpressionError as error:
                error.column = None if error.column is None else error.column + lookup.position
                raise
            self._keys.append(key)
        try:
            self._compile(variables.text, words)
        except ExpressionError as error:
            error.column = None if error.column is None else variables.original(error.column - 1) + 1
            raise

    def _compile(self, text: str, words: frozenset[str]) -> None:
        """Compile the expression, whose lookups are variables in `text`. Raises ExpressionError."""
        tokens = _tokens_of(text)
        _check_cost(tokens)
        environment = _environment(words, len(self._lookups))
        floating = _floating(environment, text, tokens)
        #: the program with the numbers of the expression as floating-point numbers, or None if that has another meaning
        self._floating = floating
        try:
            self._program = environment.compile(text)
        except RuntimeError as error:
            if floating is None or _NO_OVERLOAD_HERE not in str(error):
                raise _mistake(self.text, text, str(error), words) from error
            #: the program. None: the expression mixes integers and floating-point numbers
            self._program = None
        _check_literals(environment, tokens)
        #: the query of an expression that only selects a field: its value passes unchanged
        self._path: PayloadPath | None = None
        for name, root in zip(_DOCUMENTS, "$@", strict=True):
            if text.startswith(name) and name in words:
                with contextlib.suppress(PathError):
                    self._path = path_of(text.strip().replace(name, root, 1), root)
        #: the variables in use, or more
        self._names = frozenset(token["name"] for token in tokens if token["name"]) & words
        self._uses_payload = "payload" in self._names
        #: the variable of an expression that is only that, and a text
        self._word = text.strip() if text.strip() in words - _READ.keys() else None
        #: the members of the payload that the expression uses, or None for all
        self._members = _members_of(tokens)

    def value(self, scope: ExpressionScope) -> Any:
        """Return the value for a message, as JSON. Raises Unmappable if it has none."""
        if self._path is not None:
            selected = self._path.value(scope.part if self._path.of_part else scope.document)
            if selected is MISSING:
                raise Unmappable(cmqc.MQRC_PROPERTY_NOT_AVAILABLE, f"the payload has no {self._path.text}")
            return selected
        if self._word is not None:
            return scope(self._word) or ""
        variables = {name: _READ[name](scope) if name in _READ else scope(name) or "" for name in self._names}
        digits: dict[float, str] = {}
        lacks: dict[int, Unmappable] = {}
        try:
            for name, words in variables.items():
                if name not in ("payload", "time"):
                    variables[name] = _plain(words, digits)
            if self._uses_payload:
                document = variables["payload"]
                if self._members is not None and isinstance(document, dict):
                    document = {name: document[name] for name in self._members if name in document}
                variables["payload"] = _plain(document, digits)
            for number, lookup in enumerate(self._lookups):
                try:
                    self._look_up(number, lookup, scope, variables, digits)
                except Unmappable as error:
                    lacks[number] = error
            is_error, value = self._evaluated(variables)
            if is_error:
                if lacks and (unbound := UNBOUND.search(value)) is not None:
                    lack = lacks[int(unbound[1])]
                    raise type(lack)(lack.reason, f"{self.text!r} has no value: {lack}")
                missing = value.startswith(_NOT_FOUND)
                reason = cmqc.MQRC_PROPERTY_NOT_AVAILABLE if missing else cmqc.MQRC_FORMAT_ERROR
                raise Unmappable(reason, f"{self.text!r} has no value: {_reason(value)}")
            return _json(value, digits)
        except (ValueError, RecursionError) as error:
            raise Unmappable(cmqc.MQRC_FORMAT_ERROR, f"{self.text!r} has no value: {error}") from error

    def _look_up(
        self,
        number: int,
        lookup: TableLookup,
        scope: ExpressionScope,
        variables: dict[str, Any],
        digits: dict[float, str],
    ) -> None:
        """Add the variables of a lookup to those of an evaluation. Raises Unmappable if the key or its row is missing."""
        key = key_text(self._keys[number].value(scope))
        row = None if key is None else row_of(scope, lookup.table, key)
        if lookup.asks:
            variables[f"{HAS}{number}"] = row is not None
        if not lookup.uses_row:
            return
        if row is None:
            kind = f"row {key[:100]!r}" if key is not None else "row for a key that is neither text nor a number"
            raise UnknownKey(cmqc.MQRC_PROPERTY_NOT_AVAILABLE, f"table {lookup.table} has no {kind}")
        members = scope.tables[lookup.table].members(row, lookup.columns)
        variables[f"{ROW}{number}"] = {column: _plain(value, digits) for column, value in members.items()}

    def _evaluated(self, variables: dict[str, Any]) -> tuple[bool, Any]:
        """Return whether the result is an error, and the result or the text of the error."""
        is_error, value = True, _NO_OVERLOAD
        if self._program is not None:
            is_error, value = _run(self._program, variables)
        if is_error and _NO_OVERLOAD in value and self._floating is not None:
            rows = [name for name in variables if name.startswith(ROW)]
            variables = variables | {
                name: _as_floats(variables[name]) for name in (*_DOCUMENTS, *rows) if name in variables
            }
            is_error_again, again = _run(self._floating, variables)
            if not is_error_again or self._program is None:
                return is_error_again, again
        return is_error, value

    def truth(self, scope: ExpressionScope) -> bool:
        """Return whether the expression is true for a message. Raises Unmappable."""
        value = self.value(scope)
        if isinstance(value, bool):
            return value
        raise Unmappable(cmqc.MQRC_FORMAT_ERROR, f"{self.text!r} is {value!r}, neither true nor false")

    @property
    def can_be_true(self) -> bool:
        """Whether the type of the result can be true or false."""
        cel = _package()
        return (self._program or self._floating).return_type() in (cel.Type.BOOL, cel.Type.DYN)


_READ: Final[Mapping[str, Callable[[ExpressionScope], Any]]] = {
    "payload": lambda scope: scope.document,
    "part": lambda scope: scope.part,
    "usr": lambda scope: dict(scope.user_properties),
    "md": lambda scope: dict(scope.descriptor),
    "time": lambda _scope: datetime.now(UTC),
}


@cache
def _package() -> Any:
    # Imported late: few mappings have expressions, and the package is large.
    from cel_expr_python import cel

    return cel


def _tokens_of(text: str) -> list[re.Match[str]]:
    return [token for token in _TOKEN.finditer(text) if not token["comment"]]


@cache
def _environment(words: frozenset[str], lookups: int) -> Any:
    """Return the environment of expressions with these variables, and those of a number of lookups."""
    from cel_expr_python.ext import ext_math, ext_strings

    cel = _package()
    types = {
        "payload": cel.Type.DYN,
        "part": cel.Type.DYN,
        "usr": cel.Type.Map(cel.Type.STRING, cel.Type.STRING),
        "md": cel.Type.Map(cel.Type.STRING, cel.Type.DYN),
        "time": cel.Type.TIMESTAMP,
    }
    variables = {word: types.get(word, cel.Type.STRING) for word in words}
    for number in range(lookups):
        variables[f"{ROW}{number}"] = cel.Type.Map(cel.Type.STRING, cel.Type.DYN)
        variables[f"{HAS}{number}"] = cel.Type.BOOL
    return cel.NewEnv(variables=variables, extensions=[ext_math.ExtMath(), ext_strings.ExtStrings()])


def _check_cost(tokens: Sequence[re.Match[str]]) -> None:
    """Reject functions that can take more time or memory than the payload allows. Raises ExpressionError."""
    words = [token[0] for token in tokens] + ["", ""]
    growth = 1
    for index, token in enumerate(tokens):
        name = token["name"]
        if name is None or words[index + 1] != "(":
            continue
        is_method = index > 0 and words[index - 1] == "."
        if name in _LOOPS and is_method:
            why = f"{name}() is a loop, which expressions do not support (hint: the filter json: $.list[?@.x > 1])"
            raise ExpressionError(why, token.start() + 1)
        arguments: list[re.Match[str]] = []
        if name == "format":
            if not is_method or index < 2 or not tokens[index - 2]["string"]:
                raise ExpressionError(
                    "format() needs a literal text before it, such as '%d'.format([x])", token.start() + 1
                )
        elif name in _WITH_LITERALS:
            if not is_method:
                raise ExpressionError(f"{name}() follows a text, such as topic.{name}('…')", token.start() + 1)
            end = words.index(")", index) if ")" in words[index:] else len(tokens)
            arguments = list(tokens[index + 2 : end])
            if not all(argument["string"] or argument["number"] or argument[0] == "," for argument in arguments):
                raise ExpressionError(f"{name}() needs literals between its parentheses", token.start() + 1)
        growth *= _growth(name, arguments, words[index - 2])
        if growth > _GROWTH:
            why = f"with {name}(), the result can be more than {_GROWTH:,} times as long as the payload"
            raise ExpressionError(why, token.start() + 1)


def _growth(name: str, arguments: Sequence[re.Match[str]], before: str) -> int:
    """Return the maximum factor by which a function makes a text longer. `before` is the token before the dot."""
    texts = [argument[0] for argument in arguments if argument["string"]]
    if name == "format":
        return 2 if _HEXADECIMAL.search(before) else 1
    if name == "quote":
        return 2
    if name == "join":
        return 1 + sum(_length(text) for text in texts)
    if name == "replace" and len(texts) == 2:
        old, new = map(_length, texts)
        return max(1, new + (not old))
    return 1


def _length(literal: str) -> int:
    """Return the maximum length of a literal text in bytes."""
    return len(literal.encode()) - 2


def _check_literals(environment: Any, tokens: Sequence[re.Match[str]]) -> None:
    """Raise ExpressionError for an invalid pattern or time zone, and a pattern that takes too long."""
    for name, bracket, literal in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if bracket[0] != "(" or not literal["string"]:
            continue
        if name["name"] == "matches":
            call, kind = f"''.matches({literal[0]})", "pattern"
        elif name["name"] in _OF_TIMES:
            call, kind = f"timestamp(0).getHours({literal[0]})", "time zone"
        else:
            continue
        is_error, value = _run(environment.compile(call), {})
        if is_error:
            raise ExpressionError(f"{literal[0]} is not a {kind}: {_reason(value)}", literal.start() + 1)
        if name["name"] == "matches":
            _, pattern = _run(environment.compile(literal[0]), {})
            if (length := pattern_length(pattern.value())) > _MAX_PATTERN:
                why = (
                    f"the pattern {literal[0][:100]} has {length:,} characters with its counts written out, of"
                    f" {_MAX_PATTERN:,} at most (hint: size(text) <= 1000)"
                )
                raise ExpressionError(why, literal.start() + 1)


def _integers_of(tokens: Sequence[re.Match[str]]) -> list[int]:
    """Return the indexes of the tokens that are integers, except indexes of lists."""
    return [
        index
        for index, token in enumerate(tokens)
        if (token["number"] or "").isdecimal()
        and not (
            index > 1 and tokens[index - 1][0] == "[" and (tokens[index - 2]["name"] or tokens[index - 2][0] in ")]")
        )
    ]


def _floating(environment: Any, text: str, tokens: Sequence[re.Match[str]]) -> Any:
    """Return the program of an expression whose integers are floating-point numbers, or None if it is invalid.

    Integers that have to be integers stay so: `text.substring(0, 3)`, `size(list) == 3`.
    """
    floats = set(_integers_of(tokens))
    program, mistakes = _compiled(environment, text, tokens, floats)
    if program is not None or len(floats) > _MAX_INTEGERS:
        return program
    calls: dict[int, set[int]] = {}
    positions: list[int] = []
    for index, token in enumerate(tokens):
        if token[0] == "(":
            positions.append(index)
        elif token[0] == ")" and positions:
            positions.pop()
        elif index in floats and positions:
            calls.setdefault(positions[-1], set()).add(index)
    each = [{index} for index in sorted(floats)]
    # Each integer, then those of one call. Finally those whose mistake hides another one.
    for sets, tolerated in ((each, -1), (calls.values(), -1), (each, 0)):
        for integers in sets:
            program, remaining = _compiled(environment, text, tokens, floats - integers)
            if program is not None:
                return program
            if remaining <= mistakes + tolerated:
                floats, mistakes = floats - integers, remaining
    return None


def _compiled(environment: Any, text: str, tokens: Sequence[re.Match[str]], floats: Collection[int]) -> tuple[Any, int]:
    """Compile an expression with some of its integers as floating-point numbers.

    Returns the program, or None and the number of mistakes.
    """
    parts, position = [], 0
    for index in sorted(floats):
        end = tokens[index].end()
        parts += [text[position:end], ".0"]
        position = end
    try:
        return environment.compile("".join([*parts, text[position:]])), 0
    except RuntimeError as error:
        return None, str(error).count(_MISTAKE)


def _members_of(tokens: Sequence[re.Match[str]]) -> frozenset[str] | None:
    """Return the members of the payload that an expression uses, or None if it uses the payload as a whole."""
    members = set()
    for index, token in enumerate(tokens):
        if token["name"] != "payload" or (index and tokens[index - 1][0] == "."):
            continue
        if len(tokens) < index + 3 or tokens[index + 1][0] != "." or not tokens[index + 2]["name"]:
            return None
        members.add(tokens[index + 2][0])
    return frozenset(members)


def _mistake(source: str, text: str, error: str, words: Collection[str]) -> ExpressionError:
    """Return the error for a text that the package rejects. `source` is the text of the configuration."""
    place = _PLACE.search(error)
    if place is None:
        return ExpressionError(f"{source!r} is not an expression of CEL: {_reason(error)}")
    column = sum(len(line) + 1 for line in text.split("\n")[: int(place[1]) - 1]) + int(place[2])
    sentence = place[3].removesuffix(" (in container '')")
    if sentence.startswith("undeclared reference"):
        sentence += f"; known names are {', '.join(sorted(words))} (a field of the payload is payload.NAME)"
    return ExpressionError(f"{source!r} is not an expression of CEL: {sentence}", column if column > 0 else None)


def _run(program: Any, variables: Mapping[str, Any]) -> tuple[bool, Any]:
    """Return whether the result of a program is an error, and the result (a Value) or the text of the error."""
    try:
        value = program.eval(data=variables)
        return (True, value.value()) if value.type() == _package().Type.ERROR else (False, value)
    except RuntimeError as error:
        return True, str(error)
    except MemoryError:
        return True, "the result is too long"


def _reason(error: str) -> str:
    """Return the text of an error of the package for display."""
    sentence = _REASON.sub("", error)
    if sentence.startswith(_NO_OVERLOAD):
        return sentence.replace(_NO_OVERLOAD + " : ", "this operation does not exist: ")
    return sentence


def _plain(value: Any, digits: dict[float, str]) -> Any:
    """Return a value of a document as CEL accepts it, and note the digits of its numbers.

    Raises ValueError for a text with U+0000, after which the package would end it.
    """
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("a text contains U+0000, which expressions cannot use")
        return value
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, dict):
        if any("\0" in name for name in value):
            raise ValueError("a name contains U+0000, which expressions cannot use")
        return {name: _plain(element, digits) for name, element in value.items()}
    if isinstance(value, list):
        return [_plain(element, digits) for element in value]
    if isinstance(value, ExactFloat):
        number = float(value)
        digits.setdefault(number, value.digits)
        return number
    return value if value in _INT64 else {_LARGE: str(value)}


def _as_floats(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _as_floats(element) for name, element in value.items()}
    if isinstance(value, list):
        return [_as_floats(element) for element in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _json(result: Any, digits: Mapping[float, str]) -> Any:
    """Return a result (a Value) as a value of a JSON document. Raises ValueError.

    Null is not read: the package returns it without a reference of its own, so that Python before 3.12 would abort after
    some thousands.
    """
    if result.type() == _package().Type.NULL:
        return None
    try:
        value = result.value()
    except TypeError as error:
        raise ValueError("the result is not UTF-8") from error
    if isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return ExactFloat(digits.get(value) or repr(value))
    if isinstance(value, dict):
        if value.keys() == {_LARGE}:
            return int(value[_LARGE].value())
        if not all(isinstance(name, str) for name in value):
            raise ValueError("the names of an object are text")
        # CEL has no order of members. Without one, the same message would have different results.
        return {name: _json(value[name], digits) for name in sorted(value)}
    if isinstance(value, list):
        return [_json(element, digits) for element in value]
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    raise ValueError(f"{type(value).__name__} is not a value of JSON (hint: string(…) or double(…))")
