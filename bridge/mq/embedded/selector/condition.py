"""Message selectors: the subset of SQL92 conditions that IBM MQ takes in SelectionString.

    selector   := or
    or         := and ( OR and )*
    and        := not ( AND not )*
    not        := NOT not | predicate
    predicate  := sum [ ( = | <> | < | <= | > | >= ) sum
                      | [NOT] BETWEEN sum AND sum
                      | [NOT] IN ( literal [, literal]* )
                      | [NOT] LIKE string [ESCAPE string]
                      | IS [NOT] NULL ]
    sum        := product ( ( + | - ) product )*
    product    := unary ( ( * | / ) unary )*
    unary      := ( + | - ) unary | primary
    primary    := string | number | "0x…" | TRUE | FALSE | identifier | ( or )

IN, LIKE and IS NULL take an identifier on their left. A string stands in apostrophes (two of them for one within); bytes
in quotation marks, in hexadecimal. Key words are of either case, identifiers are not. What an identifier does not name is
NULL, and whatever is done with NULL is unknown; a message is selected when the whole is true, not when it is unknown.
Values of unlike types are neither equal nor unequal: the comparison is false. Source: IBM MQ documentation, "Message
selector syntax"; Java Message Service, "Message selector syntax".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

from bridge.mq.embedded.property import RESERVED
from bridge.mq.embedded.selector.logic import (
    BOOLEAN,
    BYTES,
    COMPARISONS,
    NUMBER,
    STRING,
    Value,
    calculate,
    compare,
    conjunction,
    disjunction,
    like_pattern,
    negation,
)
from bridge.mq.errors import MQError
from bridge.wire import cmqc

#: Gives the value of an identifier.
Lookup: TypeAlias = Callable[[str], Value]
#: True, False, or None for unknown.
Selector: TypeAlias = Callable[[Lookup], "bool | None"]

#: MQ's limit for SelectionString.
MAX_LENGTH: Final = 10_240
#: Parentheses, NOTs and signs within each other; deeper is refused, since reading goes by recursion.
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
#: What an expression is: known when it is read, but for identifiers.
_IDENTIFIER, _CONDITION = "identifier", BOOLEAN


class _Node(NamedTuple):
    kind: str
    evaluate: Callable[[Lookup], Any]
    #: the value of a literal, the name of an identifier
    literal: Any = None


def _all(join: Callable[[bool | None, bool | None], bool | None], operands: list[Selector]) -> _Node:
    """Join conditions in a row with one word between them, in a loop: a selector may have a thousand of them."""

    def joined(lookup: Lookup) -> bool | None:
        result = operands[0](lookup)
        for operand in operands[1:]:
            result = join(result, operand(lookup))
        return result

    return _Node(_CONDITION, joined)


def _calculation(first: Callable[[Lookup], Any], others: list[tuple[str, Callable[[Lookup], Any]]]) -> _Node:
    """Join operands to a sum or product, from left to right."""

    def calculated(lookup: Lookup) -> Any:
        result = first(lookup)
        for sign, operand in others:
            result = calculate(sign, result, operand(lookup))
        return result

    return _Node(NUMBER, calculated)


def selector(text: str) -> Selector:
    """Read a selector. Raises MQError with MQRC_SELECTOR_SYNTAX_ERROR."""
    if len(text) > MAX_LENGTH:
        raise MQError(cmqc.MQRC_SELECTION_STRING_ERROR, f"{len(text)} characters, at most {MAX_LENGTH} are allowed")
    return _Reader(text).read()


class _Reader:
    """Reads a selector from left to right, one token ahead."""

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
            self._fail("no such sign")
        self._kind = match.lastgroup or ""
        self._token = match[self._kind]
        self._start = match.start(self._kind)
        self._at = match.end()
        if self._kind == "word" and self._token.upper() in RESERVED:
            self._kind, self._token = "key", self._token.upper()

    def _accept(self, *tokens: str) -> str:
        """Take the next token when it is one of these key words or signs; its text, or nothing."""
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
            self._fail(f"a {node.kind} is no condition")
        evaluate = node.evaluate

        def is_true(lookup: Lookup) -> bool | None:
            value = evaluate(lookup)
            return value if isinstance(value, bool) else None

        return is_true

    def _or(self) -> _Node:
        return self._row("OR", disjunction, self._and)

    def _and(self) -> _Node:
        return self._row("AND", conjunction, self._not)

    def _row(
        self, word: str, join: Callable[[bool | None, bool | None], bool | None], read: Callable[[], _Node]
    ) -> _Node:
        node = read()
        if not self._accept(word):
            return node
        operands = [self._condition(node), self._condition(read())]
        while self._accept(word):
            operands.append(self._condition(read()))
        return _all(join, operands)

    def _not(self) -> _Node:
        if not self._accept("NOT"):
            return self._predicate()
        self._enter()
        operand = self._condition(self._not())
        self._depth -= 1
        return _Node(_CONDITION, lambda lookup: negation(operand(lookup)))

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(f"more than {MAX_DEPTH} levels")

    def _predicate(self) -> _Node:
        left = self._sum()
        sign = self._accept(*COMPARISONS)
        if sign:
            return self._comparison(sign, left, self._sum())
        if self._accept("IS"):
            negated = bool(self._accept("NOT"))
            self._expect("NULL")
            evaluate = self._identifier(left, "IS NULL").evaluate
            return _Node(_CONDITION, lambda lookup: (evaluate(lookup) is None) != negated)
        negated = bool(self._accept("NOT"))
        if self._accept("BETWEEN"):
            node = self._between(left)
        elif self._accept("IN"):
            node = self._in(left)
        elif self._accept("LIKE"):
            node = self._like(left)
        elif negated:
            self._fail("expected BETWEEN, IN or LIKE")
        else:
            return left
        evaluate = node.evaluate
        return _Node(_CONDITION, lambda lookup: negation(evaluate(lookup))) if negated else node

    def _identifier(self, node: _Node, what: str) -> _Node:
        if node.kind != _IDENTIFIER:
            self._fail(f"{what} follows an identifier")
        return node

    def _comparison(self, sign: str, left: _Node, right: _Node) -> _Node:
        kinds = {left.kind, right.kind} - {_IDENTIFIER}
        if len(kinds) > 1:
            self._fail(f"a {left.kind} is not compared with a {right.kind}")
        if kinds and kinds != {NUMBER} and sign not in ("=", "<>"):
            self._fail(f"{sign} compares numbers")
        one, other = left.evaluate, right.evaluate
        return _Node(_CONDITION, lambda lookup: compare(sign, one(lookup), other(lookup)))

    def _number(self, node: _Node) -> Callable[[Lookup], Any]:
        if node.kind not in (NUMBER, _IDENTIFIER):
            self._fail(f"a {node.kind} is no number")
        return node.evaluate

    def _between(self, left: _Node) -> _Node:
        low = self._number(self._sum())
        self._expect("AND")
        high = self._number(self._sum())
        value = self._number(left)

        def is_between(lookup: Lookup) -> bool | None:
            middle = value(lookup)
            return conjunction(compare(">=", middle, low(lookup)), compare("<=", middle, high(lookup)))

        return _Node(_CONDITION, is_between)

    def _in(self, left: _Node) -> _Node:
        evaluate = self._identifier(left, "IN").evaluate
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

    def _like(self, left: _Node) -> _Node:
        evaluate = self._identifier(left, "LIKE").evaluate
        text = self._string()
        escape = self._string() if self._accept("ESCAPE") else None
        if escape is not None and len(escape) != 1:
            self._fail("ESCAPE takes one character")
        pattern = like_pattern(text, escape)
        if pattern is None:
            self._fail("the escape character stands before `%`, `_` or itself")

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
        return _calculation(self._number(node), others) if others else node

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
