"""Table lookups in expressions: `devices[payload.id].site` and `payload.id in devices`.

The package would convert a whole table for each evaluation. So a lookup becomes a variable: the row, with the columns that
the expression uses, or whether the row exists. A variable without a value is an error only if the expression uses it.
(Functions in Python would be simpler, but version 0.1.3 of the package leaks their arguments.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from bridge.mapping.table import Tables

#: Prefixes of the names of variables, before the number of the lookup.
ROW: Final = "__row_"
HAS: Final = "__has_"
#: The number of the lookup in an error of the package about a variable without a value.
UNBOUND: Final = re.compile(rf'No value with name "(?:{ROW}|{HAS})(\d+)"')
#: Tokens that can precede the left operand of `in`, and tokens that bind it in an unexpected way.
_BOUNDARIES: Final = frozenset("(,[{?:&|")
_AMBIGUOUS: Final = frozenset(("=", "<", ">", "!", "in"))
_CLOSED: Final = {")": "(", "]": "[", "}": "{"}
_OPENED: Final = frozenset(_CLOSED.values())


class LookupMistake(ValueError):
    """An invalid lookup. `position` is the index of the fault in the text."""

    def __init__(self, sentence: str, position: int) -> None:
        super().__init__(sentence)
        self.position = position


class TableLookup(msgspec.Struct):
    """The lookups of an expression in one table with one key."""

    table: str
    #: the expression of the key, and its index in the text
    key: str
    position: int
    #: the columns that the expression uses, or None for all
    columns: set[str] | None = msgspec.field(default_factory=set)
    #: whether the expression uses the row, and whether it checks if the row exists
    uses_row: bool = False
    asks: bool = False


class RewrittenExpression(msgspec.Struct):
    """An expression whose lookups are variables, numbered by their index in `lookups`."""

    text: str
    lookups: list[TableLookup]
    #: (index in `text`, index in the original text) at the beginning of each unchanged part
    parts: list[tuple[int, int]]

    def original(self, index: int) -> int:
        """Return the index in the original text of a character of the rewritten one."""
        mine, theirs = max(part for part in self.parts if part[0] <= index)
        return theirs + index - mine


class _Span(msgspec.Struct):
    """A lookup in a text."""

    start: int
    end: int
    table: str
    key_start: int
    key_end: int
    #: the column that follows, with its index. None: all columns
    column: tuple[str, int] | None = None
    is_row: bool = False


def rewritten(text: str, tokens: Sequence[re.Match[str]], tables: Tables, words: frozenset[str]) -> RewrittenExpression:
    """Rewrite the lookups of an expression. `words` are its variables. Raises LookupMistake."""
    expression = RewrittenExpression("", [], [(0, 0)])
    numbers: dict[tuple[str, str], int] = {}
    position = 0
    for span in _outermost(_spans(text, tokens, tables, words)):
        key = text[span.key_start : span.key_end].strip()
        number = numbers.setdefault((span.table, key), len(numbers))
        if number == len(expression.lookups):
            expression.lookups.append(TableLookup(span.table, key, span.key_start))
        lookup = expression.lookups[number]
        if span.is_row:
            lookup.uses_row = True
            _add_column(lookup, span, tables)
        else:
            lookup.asks = True
        expression.text += f"{text[position : span.start]}{ROW if span.is_row else HAS}{number}"
        position = span.end
        expression.parts.append((len(expression.text), position))
    expression.text += text[position:]
    return expression


def _add_column(lookup: TableLookup, span: _Span, tables: Tables) -> None:
    """Add the column that follows a lookup to those that are used. Raises LookupMistake."""
    if span.column is None:
        lookup.columns = None
        return
    column, position = span.column
    columns = tables[span.table].columns
    if not tables[span.table].may_have(column):
        raise LookupMistake(f"table {span.table} has no column {column!r}, only {', '.join(columns)}", position)
    if lookup.columns is not None:
        lookup.columns.add(column)


def _spans(text: str, tokens: Sequence[re.Match[str]], tables: Tables, words: frozenset[str]) -> list[_Span]:
    """Return all lookups of a text, also those within the keys of others. Raises LookupMistake."""
    symbols = ["" if token["string"] else token[0] for token in tokens] + ["", "", ""]
    spans = []
    for index, token in enumerate(tokens):
        table = token["name"]
        if table not in tables or (index and symbols[index - 1] == "."):
            continue
        if symbols[index + 1] == "[":
            end = _closing(symbols, index + 1)
            if end is None:
                raise LookupMistake("the bracket is not closed", tokens[index + 1].start())
            key = tokens[index + 1].end(), tokens[end].start()
            column = _column(tokens, symbols, end)
            spans.append(_Span(token.start(), tokens[end].end(), table, *key, column, True))
        elif index and symbols[index - 1] == "in":
            first = tokens[_operand(tokens, symbols, index - 1)]
            spans.append(_Span(first.start(), token.end(), table, first.start(), tokens[index - 2].end()))
        elif table not in words:
            raise LookupMistake(f"table {table} is used as {table}[KEY].COLUMN or KEY in {table}", token.start())
    return spans


def _outermost(spans: list[_Span]) -> list[_Span]:
    """Return the lookups that are not within others, in order. The keys are separate expressions."""
    outermost: list[_Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if not outermost or span.start >= outermost[-1].end:
            outermost.append(span)
    return outermost


def _closing(symbols: Sequence[str], opening: int) -> int | None:
    """Return the index of the bracket that closes the one at `opening`, or None."""
    depth = 0
    for index in range(opening, len(symbols)):
        depth += (symbols[index] in _OPENED) - (symbols[index] in _CLOSED)
        if not depth:
            return index
    return None


def _column(tokens: Sequence[re.Match[str]], symbols: Sequence[str], end: int) -> tuple[str, int] | None:
    """Return the column that is selected after the bracket at `end`, with its index, or None."""
    if symbols[end + 1] == "." and len(tokens) > end + 2 and tokens[end + 2]["name"] and symbols[end + 3] != "(":
        return tokens[end + 2][0], tokens[end + 2].start()
    if symbols[end + 1] == "[" and len(tokens) > end + 3 and symbols[end + 3] == "]":
        literal = tokens[end + 2]["string"]
        if literal and literal[0] in "'\"" and "\\" not in literal and literal[:3] not in ("'''", '"""'):
            return literal[1:-1], tokens[end + 2].start()
    return None


def _operand(tokens: Sequence[re.Match[str]], symbols: Sequence[str], end: int) -> int:
    """Return the index of the first token of the left operand of the `in` at `end`. Raises LookupMistake."""
    depth, index = 0, end
    while index > 0:
        symbol = symbols[index - 1]
        if symbol in _CLOSED:
            depth += 1
        elif depth and symbol in _OPENED:
            depth -= 1
        elif not depth and symbol in _BOUNDARIES:
            break
        elif not depth and symbol in _AMBIGUOUS:
            why = "put parentheses around KEY in TABLE, such as !(payload.id in devices)"
            raise LookupMistake(why, tokens[index - 1].start())
        index -= 1
    if index == end:
        raise LookupMistake("the key before in is missing", tokens[end].start())
    return index
