"""Message selectors: the SQL-92 subset of IBM MQ (IBM MQ documentation, "Message selector syntax")."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

from bridge.mq.embedded.appearance import Appearance
from bridge.mq.embedded.property import RESERVED, USER_FOLDER, split
from bridge.mq.embedded.queue import StoredMessage
from bridge.mq.embedded.subscription import Glob, Wildcard
from bridge.mq.mqi import MQError
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

Value: TypeAlias = "str | bytes | bool | int | float | None"
#: Kinds of values.
NUMBER, STRING, BYTES, BOOLEAN = "number", "string", "byte string", "condition"

#: Comparison operators.
COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC: Final[dict[str, Callable[[Any, Any], Any]]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def _kind(value: Value) -> str:
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, (int, float)):
        return NUMBER
    return STRING if isinstance(value, str) else BYTES


def compare(sign: str, left: Value, right: Value) -> bool | None:
    """Return the result of a comparison, or None for unknown."""
    if left is None or right is None:
        return None
    kind = _kind(left)
    if kind != _kind(right) or (kind != NUMBER and sign not in ("=", "<>")):
        return False
    return bool(COMPARISONS[sign](left, right))


def calculate(sign: str, left: Value, right: Value) -> int | float | None:
    """Return the result of `+`, `-`, `*` or `/`. It is None (unknown) for other operands and for division by zero."""
    if left is None or right is None or _kind(left) != NUMBER or _kind(right) != NUMBER:
        return None
    assert isinstance(left, (int, float)) and isinstance(right, (int, float))
    try:
        if sign != "/":
            return _ARITHMETIC[sign](left, right)  # type: ignore[no-any-return]
        if isinstance(left, int) and isinstance(right, int):
            quotient = abs(left) // abs(right)  # toward zero, as Java and C divide
            return quotient if (left < 0) == (right < 0) else -quotient
        return left / right
    except (ZeroDivisionError, OverflowError):
        return None


def _negation(value: bool | None) -> bool | None:
    return None if value is None else not value


def _rank(value: bool | None) -> int:
    """Return a sort key. AND is the minimum of conditions, OR the maximum. Unknown is between false and true."""
    return 1 if value is None else 2 * value


def like_pattern(pattern: str, escape: str | None) -> Glob | None:
    """Return the pattern of LIKE, or None if it uses its escape character incorrectly."""
    tokens: list[str | Wildcard] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None or escaped not in ("%", "_", escape):
                return None
            tokens.append(escaped)
        else:
            tokens.append({"%": Wildcard.ANY, "_": Wildcard.ONE}.get(character, character))
    return Glob(tokens)


#: Returns the value of an identifier.
Lookup: TypeAlias = Callable[[str], Value]
#: True, False, or None for unknown.
Selector: TypeAlias = Callable[[Lookup], "bool | None"]

#: MQ's limit for SelectionString.
MAX_LENGTH: Final = 10_240
#: The maximum nesting of parentheses, NOTs and signs, because the parser is recursive.
MAX_DEPTH: Final = 50

_TOKEN: Final = re.compile(
    r"""\s*(?:
    (?P<string>'(?:[^']|'')*')
  | (?P<bytes>"0[xX](?:[0-9A-Fa-f]{2})*")
  | (?P<hex>0[xX][0-9A-Fa-f]+)[lL]?(?![\w.])
  | (?P<float>(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+(?:[eE][+-]?[0-9]+[fFdD]?|[fFdD])))[fFdD]?(?![\w.])
  | (?P<int>[0-9]{1,400})[lL]?(?![\w.])
  | (?P<word>[^\W\d][\w.$:]*|\$[\w.$:]*)
  | (?P<sign><>|<=|>=|[=<>+\-*/(),])
  | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
#: Types of expressions. The types of identifiers are not known when parsing.
_IDENTIFIER, _CONDITION = "identifier", BOOLEAN


class _Node(NamedTuple):
    kind: str
    evaluate: Callable[[Lookup], Any]
    #: the value of a literal, the name of an identifier
    literal: Any = None


def selector(text: str) -> Selector:
    """Parse a selector. Raises MQError (MQRC_SELECTOR_SYNTAX_ERROR, or MQRC_SELECTION_STRING_ERROR if it is too long)."""
    if len(text) > MAX_LENGTH:
        raise MQError(cmqc.MQRC_SELECTION_STRING_ERROR, f"{len(text)} characters, the maximum is {MAX_LENGTH}")
    return _Reader(text).read()


class _Reader:
    """A recursive descent parser with one token of lookahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._start = 0
        self._kind = self._token = ""
        self._advance()

    def _fail(self, detail: str) -> NoReturn:
        raise MQError(cmqc.MQRC_SELECTOR_SYNTAX_ERROR, f"{detail}, at {self._text[self._start : self._start + 20]!r}")

    def _advance(self) -> None:
        self._start = self._at
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            self._fail("unknown character")
        self._kind = match.lastgroup or ""
        self._token = match[self._kind]
        self._start = match.start(self._kind)
        self._at = match.end()
        if self._kind == "word" and self._token.upper() in RESERVED:
            self._kind, self._token = "key", self._token.upper()

    def _accept(self, *tokens: str) -> str:
        """Consume the next token if it is one of these keywords or signs. Return its text, or an empty string."""
        if self._kind in ("key", "sign") and self._token in tokens:
            token = self._token
            self._advance()
            return token
        return ""

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            self._fail(f"expected {token}")

    def read(self) -> Selector:
        condition = self._condition(self._or())
        if self._kind != "end":
            self._fail("expected the end")
        return condition

    def _condition(self, node: _Node) -> Selector:
        if node.kind == _CONDITION:
            return node.evaluate
        if node.kind != _IDENTIFIER:
            self._fail(f"a {node.kind} is not a condition")
        evaluate = node.evaluate

        def is_true(lookup: Lookup) -> bool | None:
            value = evaluate(lookup)
            return value if isinstance(value, bool) else None

        return is_true

    def _or(self) -> _Node:
        return self._row("OR", max, self._and)

    def _and(self) -> _Node:
        return self._row("AND", min, self._not)

    def _row(self, word: str, join: Callable[..., bool | None], parse: Callable[[], _Node]) -> _Node:
        """Read conditions that are joined with AND or OR. It does not recurse, because a selector may have a thousand."""
        node = parse()
        if not self._accept(word):
            return node
        operands = [self._condition(node), self._condition(parse())]
        while self._accept(word):
            operands.append(self._condition(parse()))
        return _Node(_CONDITION, lambda lookup: join((operand(lookup) for operand in operands), key=_rank))

    def _not(self) -> _Node:
        if not self._accept("NOT"):
            return self._predicate()
        self._enter()
        operand = self._condition(self._not())
        self._depth -= 1
        return _Node(_CONDITION, lambda lookup: _negation(operand(lookup)))

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(f"more than {MAX_DEPTH} levels")

    def _predicate(self) -> _Node:
        operand = self._sum()
        sign = self._accept(*COMPARISONS)
        if sign:
            return self._comparison(sign, operand, self._sum())
        if self._accept("IS"):
            negated = bool(self._accept("NOT"))
            self._expect("NULL")
            evaluate = self._identifier(operand, "IS NULL").evaluate
            return _Node(_CONDITION, lambda lookup: (evaluate(lookup) is None) != negated)
        negated = bool(self._accept("NOT"))
        if self._accept("BETWEEN"):
            node = self._between(operand)
        elif self._accept("IN"):
            node = self._in(operand)
        elif self._accept("LIKE"):
            node = self._like(operand)
        elif negated:
            self._fail("expected BETWEEN, IN or LIKE")
        else:
            return operand
        evaluate = node.evaluate
        return _Node(_CONDITION, lambda lookup: _negation(evaluate(lookup))) if negated else node

    def _identifier(self, node: _Node, construct: str) -> _Node:
        if node.kind != _IDENTIFIER:
            self._fail(f"{construct} must follow an identifier")
        return node

    def _comparison(self, sign: str, left: _Node, right: _Node) -> _Node:
        kinds = {left.kind, right.kind} - {_IDENTIFIER}
        if len(kinds) > 1:
            self._fail(f"a {left.kind} cannot be compared with a {right.kind}")
        if kinds and kinds != {NUMBER} and sign not in ("=", "<>"):
            self._fail(f"{sign} requires numbers")
        evaluate_left, evaluate_right = left.evaluate, right.evaluate
        return _Node(_CONDITION, lambda lookup: compare(sign, evaluate_left(lookup), evaluate_right(lookup)))

    def _number(self, node: _Node) -> Callable[[Lookup], Any]:
        if node.kind not in (NUMBER, _IDENTIFIER):
            self._fail(f"a {node.kind} is not a number")
        return node.evaluate

    def _between(self, operand: _Node) -> _Node:
        low = self._number(self._sum())
        self._expect("AND")
        high = self._number(self._sum())
        value = self._number(operand)

        def is_between(lookup: Lookup) -> bool | None:
            middle = value(lookup)
            return min(compare(">=", middle, low(lookup)), compare("<=", middle, high(lookup)), key=_rank)

        return _Node(_CONDITION, is_between)

    def _in(self, operand: _Node) -> _Node:
        evaluate = self._identifier(operand, "IN").evaluate
        self._expect("(")
        items = [self._literal()]
        while self._accept(","):
            items.append(self._literal())
        self._expect(")")

        def is_in(lookup: Lookup) -> bool | None:
            value = evaluate(lookup)
            return None if value is None else any(compare("=", value, item) for item in items)

        return _Node(_CONDITION, is_in)

    def _literal(self) -> Value:
        node = self._unary()
        if node.literal is None or node.kind not in (STRING, NUMBER, BYTES):
            self._fail("expected a string or number")
        value: Value = node.literal
        return value

    def _like(self, operand: _Node) -> _Node:
        evaluate = self._identifier(operand, "LIKE").evaluate
        text = self._string()
        escape = self._string() if self._accept("ESCAPE") else None
        if escape is not None and len(escape) != 1:
            self._fail("ESCAPE requires one character")
        pattern = like_pattern(text, escape)
        if pattern is None:
            self._fail("the escape character must precede `%`, `_` or itself")

        def is_like(lookup: Lookup) -> bool | None:
            value = evaluate(lookup)
            if value is None:
                return None
            return isinstance(value, str) and pattern.matches(value)

        return _Node(_CONDITION, is_like)

    def _string(self) -> str:
        if self._kind != "string":
            self._fail("expected a string")
        text = self._token[1:-1].replace("''", "'")
        self._advance()
        return text

    def _sum(self) -> _Node:
        return self._chain(self._product, "+", "-")

    def _product(self) -> _Node:
        return self._chain(self._unary, "*", "/")

    def _chain(self, operand: Callable[[], _Node], *signs: str) -> _Node:
        node = operand()
        others: list[tuple[str, Callable[[Lookup], Any]]] = []
        while sign := self._accept(*signs):
            others.append((sign, self._number(operand())))
        if not others:
            return node
        first = self._number(node)

        def calculated(lookup: Lookup) -> Any:
            result = first(lookup)
            for sign, value in others:
                result = calculate(sign, result, value(lookup))
            return result

        return _Node(NUMBER, calculated)

    def _unary(self) -> _Node:
        sign = self._accept("+", "-")
        if not sign:
            return self._primary()
        self._enter()
        node = self._unary()
        self._depth -= 1
        value = self._number(node)
        if node.literal is not None and node.kind == NUMBER:
            number = -node.literal if sign == "-" else node.literal
            return _Node(NUMBER, lambda _: number, number)
        return _Node(NUMBER, lambda lookup: calculate(sign, 0, value(lookup)))

    def _primary(self) -> _Node:
        kind, token = self._kind, self._token
        if self._accept("("):
            self._enter()
            node = self._or()
            self._expect(")")
            self._depth -= 1
            return node
        if kind == "string":
            text = self._string()
            return _Node(STRING, lambda _: text, text)
        if kind == "key" and token in ("TRUE", "FALSE"):
            self._advance()
            return _Node(_CONDITION, lambda _: token == "TRUE")
        value: Any
        if kind == "int":
            value = int(token)
        elif kind == "hex":
            value = int(token, 16)
        elif kind == "float":
            value = float(token.rstrip("fFdD"))
        elif kind == "bytes":
            value = bytes.fromhex(token[3:-1])
        elif kind == "word":
            self._advance()
            return _Node(_IDENTIFIER, lambda lookup: lookup(token), token)
        else:
            self._fail("expected a value")
        self._advance()
        return _Node(BYTES if kind == "bytes" else NUMBER, lambda _: value, value)


#: A predicate for selected messages.
Selection: TypeAlias = Callable[[StoredMessage], bool]

_MQMD = "Root.MQMD."
#: MQBYTEn fields of the MQMD. The other byte fields are text.
_BYTE_FIELDS = frozenset(("MsgId", "CorrelId", "AccountingToken", "GroupId"))
#: JMS names of MQMD fields and properties.
_SYNONYMS = {
    "JMSCorrelationID": "jms.Cid",
    "JMSDeliveryMode": "Root.MQMD.Persistence",
    "JMSDestination": "jms.Dst",
    "JMSExpiration": "Root.MQMD.Expiry",
    "JMSMessageID": "Root.MQMD.MsgId",
    "JMSPriority": "Root.MQMD.Priority",
    "JMSReplyTo": "jms.Rto",
    "JMSTimestamp": "jms.Tms",
    "JMSType": "mcd.Type",
    "JMSXAppID": "Root.MQMD.PutApplName",
    "JMSXDeliveryCount": "Root.MQMD.BackoutCount",
    "JMSXGroupID": "jms.Gid",
    "JMSXGroupSeq": "jms.Seq",
    "JMSXUserID": "Root.MQMD.UserIdentifier",
}


def selection_of(appearance: Appearance, text: str) -> Selection | None:
    """Return the predicate for a SelectionString, or None if it is blank. Raises MQError."""
    if not text.strip():
        return None
    condition = selector(text)

    def is_selected(stored: StoredMessage) -> bool:
        return condition(_Identifiers(appearance, stored).value) is True

    return is_selected


class _Identifiers:
    """The values of identifiers for one message. MQMD and properties are created lazily, once."""

    def __init__(self, appearance: Appearance, stored: StoredMessage) -> None:
        self._appearance = appearance
        self._stored = stored
        self._md: MQMD | None = None
        self._properties: dict[str, Value] | None = None

    def value(self, name: str) -> Value:
        name = _SYNONYMS.get(name, name)
        if name.startswith(_MQMD):
            return self._field(name[len(_MQMD) :])
        if self._properties is None:
            md, data = self._appearance.whole(self._stored)
            self._properties = {
                message_property.name: message_property.value for message_property in split(md, data)[2]
            }
        folder, dot, path = name.partition(".")
        if dot and folder == USER_FOLDER and "." not in path:
            name = path
        return self._properties.get(name)

    def _field(self, name: str) -> Value:
        if self._md is None:
            self._md = self._appearance.descriptor(self._stored)
        value = getattr(self._md, name, None)
        if name in _BYTE_FIELDS or not isinstance(value, (bytes, int)):
            return value if isinstance(value, bytes) else None
        return value if isinstance(value, int) else value.rstrip(b" \0").decode(errors="replace")
