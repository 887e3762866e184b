"""MQSC, the command language of runmqsc, for both kinds of queue manager: reading scripts and printing responses.

Rules follow the IBM MQ documentation, "Building command scripts" and "MQSC commands reference". Two of them are relaxed: an
open parenthesis continues a command without `+`, and semicolons separate several commands on a line.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from bridge.mq.mqi import CommandResponse

TEXTS = {
    "AMQ8005I": "Queue manager {name} changed.",
    "AMQ8006I": "Queue {name} created.",
    "AMQ8007I": "Queue {name} deleted.",
    "AMQ8008I": "Queue {name} changed.",
    "AMQ8014I": "Channel {name} created.{hint}",
    "AMQ8015I": "Channel {name} deleted.",
    "AMQ8016I": "Channel {name} changed.",
    "AMQ8018I": "Start channel {name} accepted.{hint}",
    #: IBM MQ's number for STOP CHANNEL, also used for PURGE CHANNEL, which stops the channel too
    "AMQ8019I": "{verb} channel {name} accepted.",
    #: IBM MQ's number for CLEAR QLOCAL, also used for CLEAR TOPICSTR
    "AMQ8022I": "{what} cleared.",
    "AMQ8094I": "Subscription {name} created.",
    "AMQ8095I": "Subscription {name} changed.",
    "AMQ8096I": "Display subscription details.",
    "AMQ8097I": "Subscription {name} deleted.",
    "AMQ8099I": "Display subscription status details.",
    #: errors for which IBM MQ has many numbers
    "AMQ8101E": "The command failed: {detail}.",
    "AMQ8143E": "Queue {name} is not empty: {detail}.",
    "AMQ8147E": "{kind} {name} not found.",
    "AMQ8148E": "{kind} {name} is in use: {detail}.",
    "AMQ8150E": "{kind} {name} already exists.",
    "AMQ8405I": "Syntax error at line {line}, column {column}{near}: {detail}.",
    "AMQ8276I": "Display Connection details.",
    "AMQ8408I": "Display queue manager details.",
    "AMQ8409I": "Display queue details.",
    "AMQ8414I": "Display Channel details.",
    "AMQ8415I": "Queue manager {name} is running.",
    "AMQ8417I": "Display Channel Status details.",
    "AMQ8420I": "Channel Status not found.",
    "AMQ8424E": "Error in the name {name!r}: {detail}.",
    "AMQ8450I": "Display queue status details.",
    "AMQ8457I": "Connection {name} stopped.",
    "AMQ8469E": "Subscription {name} is in use: {detail}.",
    "AMQ8492W": "Display Channel Status details: of some clients only. One command examines {examined}, and displays at most "
    "MAXDEPTH of SYSTEM.MQSC.REPLY.QUEUE. `mqbridge client list` lists all clients.",
    "AMQ8550I": "Display namelist details.",
    "AMQ8551I": "Namelist {name} changed.",
    "AMQ8552I": "Namelist {name} created.",
    "AMQ8553I": "Namelist {name} deleted.",
    "AMQ8560I": "Security cache refreshed.",
    "AMQ8566I": "Display authentication information details.",
    "AMQ8567I": "IBM MQ authentication information changed.{hint}",
    "AMQ8633I": "Display topic details.",
    "AMQ8690I": "Topic {name} created.",
    "AMQ8691I": "Topic {name} changed.",
    "AMQ8692I": "Topic {name} deleted.",
    "AMQ8754I": "Display topic status details.",
    "AMQ8862I": "Authority record set.{hint}",
    "AMQ8863I": "Authority record deleted.",
    "AMQ8864I": "Display authority record details.",
    "AMQ8871E": "{name} has no authority record for profile {profile}.",
    "AMQ8877I": "Channel authentication record set.{hint}",
    "AMQ8878I": "Display channel authentication record details.",
    "AMQ8883E": "Channel authentication record {name} of type {kind} already exists.",
    "AMQ8884E": "Channel authentication record {name} not found.",
    "AMQ9514E": "Channel {name} is in use: {detail}.",
    "AMQ9533W": "Channel {name} is not active: {detail}.",
    #: MOVE QLOCAL is a command of IBM MQ for z/OS, whose messages begin with CSQ
    "CSQ9022I": "MOVE QLOCAL normal completion: {count} messages moved from {name} to {target}.",
}


def message(number: str, **inserts: object) -> str:
    """Return an AMQ message with its number and inserts."""
    return f"{number}: {TEXTS[number].format(**inserts)}"


class CommandRefused(Exception):
    """A command was rejected and changed nothing. The text is the AMQ message of the response."""

    def __init__(self, number: str, *, reason: int = 0, **inserts: object) -> None:
        super().__init__(message(number, **inserts))
        self.number = number
        #: the PCF reason code, or 0 if the AMQ number determines it
        self.reason = reason


Item: TypeAlias = "str | tuple[Item, ...]"

#: Verbs and nouns with their abbreviations, including those that only IBM MQ supports.
VERBS = {
    word: word
    for word in (
        "ALTER", "CLEAR", "DEFINE", "DELETE", "DISPLAY", "MOVE", "PING", "PURGE", "REFRESH", "RESET", "SET", "START", "STOP"
    )
} | {"ALT": "ALTER", "DEF": "DEFINE", "DEL": "DELETE", "DIS": "DISPLAY"}  # fmt: skip
NOUNS = {
    word: word
    for word in (
        "AUTHINFO", "AUTHREC", "CHANNEL", "CHLAUTH", "CHSTATUS", "CONN", "LISTENER", "NAMELIST", "PROCESS", "QALIAS",
        "QLOCAL", "QMGR", "QMODEL", "QREMOTE", "QSTATUS", "QUEUE", "SBSTATUS", "SECURITY", "SERVICE", "SUB", "TOPIC",
        "TOPICSTR", "TPSTATUS",
    )
} | {
    "CHL": "CHANNEL", "CHS": "CHSTATUS", "LSTR": "LISTENER", "NL": "NAMELIST", "PRO": "PROCESS", "Q": "QUEUE", "QA": "QALIAS",
    "QL": "QLOCAL", "QM": "QMODEL", "QR": "QREMOTE", "QS": "QSTATUS", "TPS": "TPSTATUS",
}  # fmt: skip

_TOKEN = re.compile(r"[\s,]*(?:(?P<string>'(?:[^']|'')*')|(?P<sign>[()])|(?P<word>[^\s,()']+)|(?P<open>'))")
_OPENING = re.compile(r"([A-Za-z]+)\s+([A-Za-z]+)")
_UPPER = str.maketrans("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")


@dataclass(frozen=True)
class Position:
    """A position in a script. Lines and columns start at 1."""

    line: int
    column: int


class MQSCSyntaxError(Exception):
    """A syntax error, or a command that this queue manager does not support. The message contains the expected syntax."""

    def __init__(self, detail: str, where: Position, near: str = "") -> None:
        super().__init__(detail)
        self.detail = detail
        self.where = where
        self.near = near


@dataclass(frozen=True)
class Parameter:
    """A keyword and the values in its parentheses, or None without parentheses.

    Keyword and unquoted values are in upper case, because MQSC folds them.
    """

    keyword: str
    values: tuple[Item, ...] | None
    where: Position

    @property
    def value(self) -> str | None:
        """The only value, or None if there is not exactly one, or if it is a list."""
        if self.values is None or len(self.values) != 1 or not isinstance(self.values[0], str):
            return None
        return self.values[0]


@dataclass(frozen=True)
class Command:
    """One command of a script. After a syntax error, only `text`, `line` and `problem` are set."""

    #: the source text, with its lines joined
    text: str
    #: the number of its first line, from 1
    line: int
    verb: str = ""
    noun: str = ""
    #: the object name in the parentheses of the noun, or None without parentheses
    name: str | None = None
    parameters: tuple[Parameter, ...] = ()
    problem: MQSCSyntaxError | None = None
    #: position of the noun
    where: Position = Position(1, 1)

    def parameter(self, keyword: str) -> Parameter | None:
        """Return the parameter with a keyword, or None."""
        return next((parameter for parameter in self.parameters if parameter.keyword == keyword), None)

    def value(self, keyword: str) -> str | None:
        """Return the value of a parameter, or None if the parameter is missing or does not have exactly one value."""
        parameter = self.parameter(keyword)
        return None if parameter is None else parameter.value

    def wrong(self, detail: str, keyword: str) -> MQSCSyntaxError:
        """Return the error for a wrong parameter, at its position, or at that of the noun if it is missing."""
        parameter = self.parameter(keyword)
        return MQSCSyntaxError(detail, self.where if parameter is None else parameter.where, keyword)

    def check_keywords(self, *keywords: str) -> None:
        """Raise MQSCSyntaxError for a parameter with another keyword."""
        for parameter in self.parameters:
            if parameter.keyword not in keywords:
                raise self.wrong(f"{self.verb} {self.noun} has no parameter {parameter.keyword}", parameter.keyword)

    def choice(self, keyword: str, words: Collection[str], otherwise: str = "") -> str:
        """Return the value of a parameter, which is one of `words`. Raises MQSCSyntaxError."""
        parameter = self.parameter(keyword)
        if parameter is None:
            return otherwise
        if parameter.value is None or parameter.value not in words:
            raise self.wrong(f"{keyword} must be one of {', '.join(words)}", keyword)
        return parameter.value

    def flag(self, keyword: str, opposite: str = "") -> bool:
        """Return whether a keyword is present, which excludes the opposite one. Raises MQSCSyntaxError."""
        for word in (keyword, opposite):
            if (parameter := self.parameter(word)) is not None and parameter.values is not None:
                raise self.wrong(f"{word} takes no value", word)
        if self.parameter(keyword) is None:
            return False
        if self.parameter(opposite) is not None:
            raise MQSCSyntaxError(f"{keyword} and {opposite} exclude each other", self.where)
        return True

    def required_name(self) -> str:
        """Return the name in the parentheses of the noun. Raises MQSCSyntaxError."""
        if self.name is None:
            raise MQSCSyntaxError(f"{self.noun} requires a name in parentheses", self.where, self.noun)
        return self.name


class _Joined:
    """The joined lines of one command, and the original position of each character."""

    def __init__(self) -> None:
        self.text = ""
        self._depth = 0
        self._quoted = False
        self._offsets: list[int] = []
        self._positions: list[Position] = []

    def append(self, text: str, line: int, column: int) -> None:
        self._offsets.append(len(self.text))
        self._positions.append(Position(line, column))
        self.text += text
        for character in text:
            if character == "'":
                self._quoted = not self._quoted
            elif not self._quoted:
                if character == "(":
                    self._depth += 1
                elif character == ")":
                    self._depth -= 1
                elif character == ";":
                    self._depth = 0

    @property
    def in_parentheses(self) -> bool:
        """Whether the text ends inside parentheses but not inside quotes."""
        return self._depth > 0 and not self._quoted

    def where(self, offset: int) -> Position:
        at = bisect_right(self._offsets, offset) - 1
        start = self._positions[at]
        return Position(start.line, start.column + offset - self._offsets[at])


def fold(text: str) -> str:
    """Return a text in upper case (ASCII letters only), as MQSC folds unquoted words."""
    return text.translate(_UPPER)


def read(script: str) -> list[Command]:
    """Return the commands of a script up to the first END command."""
    commands: list[Command] = []
    for joined, unfinished in _join(script):
        for start, end in _between_semicolons(joined.text):
            if not joined.text[start:end].strip(" \t,"):
                continue
            command = _command(joined, start, end, unfinished and end == len(joined.text))
            if command.verb == "END":
                return commands
            commands.append(command)
    return commands


def is_complete(script: str) -> bool:
    """Return whether a script does not end within a command, which the next line would continue."""
    commands = list(_join(script))
    return not commands or not (commands[-1][1] or commands[-1][0].in_parentheses)


def _join(script: str) -> Iterator[tuple[_Joined, bool]]:
    """Yield commands with continuation lines joined. The flag is set if the script ended after a continuation character."""
    joined: _Joined | None = None
    pending = ""
    for number, line in enumerate(script.split("\n"), 1):
        content = line.rstrip()
        stripped = content.lstrip()
        if not stripped or stripped.startswith("*"):
            continue
        if joined is not None and pending == "(" and _starts_command(stripped):
            yield joined, False
            joined = None
        continuation = content[-1] if content[-1] in "+-" else ""
        content = content[: len(content) - len(continuation)]
        indent = len(content) - len(content.lstrip())
        if joined is None:
            joined = _Joined()
            joined.append(content, number, 1)
        elif pending == "-":
            joined.append(content, number, 1)
        else:
            if pending == "(":
                joined.text += " "
            joined.append(content[indent:], number, indent + 1)
        if continuation or joined.in_parentheses:
            pending = continuation or "("
            continue
        yield joined, False
        joined = None
    if joined is not None:
        yield joined, pending != "("


def _starts_command(line: str) -> bool:
    """Return whether a line starts with a verb and a noun.

    Such a line starts a new command even inside parentheses, so that a missing parenthesis affects one command only.
    """
    match = _OPENING.match(line)
    return match is not None and fold(match[1]) in VERBS and fold(match[2]) in NOUNS


def _between_semicolons(text: str) -> Iterator[tuple[int, int]]:
    start, quoted = 0, False
    for at, character in enumerate(text):
        if character == "'":
            quoted = not quoted
        elif character == ";" and not quoted:
            yield start, at
            start = at + 1
    yield start, len(text)


def _command(joined: _Joined, start: int, end: int, unfinished: bool) -> Command:
    text = joined.text[start:end]
    begin = start + len(text) - len(text.lstrip(" \t,"))
    source = text.strip()
    line = joined.where(begin).line
    try:
        if unfinished:
            raise MQSCSyntaxError("the command continues, but no line follows", joined.where(end - 1), source[-20:])
        parameters = _Parser(joined, begin, end).parameters()
        return _complete(source, line, parameters)
    except MQSCSyntaxError as problem:
        return Command(source, line, problem=problem)


def _complete(text: str, line: int, parameters: list[Parameter]) -> Command:
    first = parameters[0]
    if first.keyword == "END" and len(parameters) == 1:
        return Command(text, line, "END")
    verb = VERBS.get(first.keyword)
    if verb is None or first.values is not None:
        verbs = ", ".join(sorted(set(VERBS.values())))
        raise MQSCSyntaxError(f"a command begins with {verbs}", first.where, first.keyword)
    if len(parameters) < 2:
        raise MQSCSyntaxError(f"{verb} what?", first.where, first.keyword)
    second = parameters[1]
    noun = NOUNS.get(second.keyword)
    if noun is None:
        raise MQSCSyntaxError(f"{verb} does not support {second.keyword}", second.where, second.keyword)
    if second.values is not None and second.value is None:
        raise MQSCSyntaxError(f"{second.keyword} requires one name", second.where, second.keyword)
    keywords = set()
    for parameter in parameters[2:]:
        if parameter.keyword in keywords:
            raise MQSCSyntaxError(f"{parameter.keyword} is specified twice", parameter.where, parameter.keyword)
        keywords.add(parameter.keyword)
    return Command(text, line, verb, noun, second.value, tuple(parameters[2:]), None, second.where)


class _Parser:
    """Parses the parameters in a range of a joined text."""

    def __init__(self, joined: _Joined, start: int, end: int) -> None:
        self._joined = joined
        self._at = start
        self._end = end
        #: offset of the last token
        self._begin = start

    def _next(self) -> tuple[str, str]:
        """Return the next token as (kind, text): string, word, `(`, `)`, or `` at the end."""
        match = _TOKEN.match(self._joined.text, self._at, self._end)
        if match is None:
            self._begin = self._at = self._end
            return "", ""
        kind = match.lastgroup or ""
        self._begin = match.start(kind)
        self._at = match.end()
        text = match[kind]
        if kind == "open":
            raise self._error("a quotation mark is not closed", self._joined.text[self._begin : self._begin + 20])
        if kind == "string":
            return kind, text[1:-1].replace("''", "'")
        if kind == "sign":
            return text, text
        return kind, fold(text)

    def _error(self, detail: str, near: str) -> MQSCSyntaxError:
        return MQSCSyntaxError(detail, self._joined.where(max(0, min(self._begin, self._end - 1))), near)

    def parameters(self) -> list[Parameter]:
        parameters = []
        kind, text = self._next()
        while kind:
            if kind != "word":
                raise self._error("expected a keyword", text)
            keyword, where = text, self._joined.where(self._begin)
            kind, text = self._next()
            values: tuple[Item, ...] | None = None
            if kind == "(":
                values = self._items(keyword)
                kind, text = self._next()
            parameters.append(Parameter(keyword, values, where))
        return parameters

    def _items(self, keyword: str) -> tuple[Item, ...]:
        """Return the values up to the closing parenthesis."""
        stack: list[list[Item]] = [[]]
        while True:
            kind, text = self._next()
            if kind == "(":
                stack.append([])
            elif kind == ")":
                items = tuple(stack.pop())
                if not stack:
                    return items
                stack[-1].append(items)
            elif kind:
                stack[-1].append(text)
            else:
                raise self._error("a parenthesis is not closed", f"{keyword}(")


# Printing ------------------------------------------------------------------------------------------------------------

#: Keywords without a value, and the equivalent attributes and values.
FLAGS = {
    "SHARE": ("SHARE", "YES"),
    "NOSHARE": ("SHARE", "NO"),
    "TRIGGER": ("TRIGGER", "YES"),
    "NOTRIGGER": ("TRIGGER", "NO"),
    "HARDENBO": ("HARDENBO", "YES"),
    "NOHARDENBO": ("HARDENBO", "NO"),
}

_INDENT = "   "
#: Width of the first of two columns.
_COLUMN = 40
_WORDS = {setting: keyword for keyword, setting in FLAGS.items()}


def render(response: CommandResponse) -> str:
    """Return the text of a response: for each object, the AMQ message and the attributes in two columns."""
    message = _printable(response.message)
    if not response.objects:
        return message
    lines = []
    for attributes in response.objects:
        lines.append(message)
        first_cell = ""
        for keyword, value in attributes.items():
            cell = _cell(keyword, value)
            if first_cell and len(first_cell) < _COLUMN:
                lines.append(f"{_INDENT}{first_cell:{_COLUMN}}{cell}")
                first_cell = ""
            else:
                if first_cell:
                    lines.append(_INDENT + first_cell)
                first_cell = cell
        if first_cell:
            lines.append(_INDENT + first_cell)
    return "\n".join(lines)


def _cell(keyword: str, value: str | int) -> str:
    word = _WORDS.get((keyword, str(value)))
    if word is not None:
        return word
    return f"{keyword}({_printable(str(value)) or ' '})"


def _printable(text: str) -> str:
    """Replace unprintable characters with dots (IBM MQ documentation, "DISPLAY TOPIC")."""
    return "".join(character if character.isprintable() else "." for character in text)
