"""Parses copybooks into data description entries (Enterprise COBOL for z/OS Language Reference, "Data division").

A copybook is text in fixed format (columns 8 to 72, an indicator in column 7) or in free format. `parse` replaces its COPY
statements by the text that they name, in the same directory, and returns the tree of its declarations.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from bridge.files import regular_content
from bridge.record.picture import Picture, PictureError, picture_of

#: Limits of hostile copybooks: bytes of all files, words after COPY REPLACING, nested COPY statements.
MAX_SIZE: Final = 1024 * 1024
MAX_WORDS: Final = 200_000
_MAX_COPIES: Final = 10
#: Characters of a line with its continuation lines.
_MAX_CONTINUED: Final = 10_000
#: Characters of a word in an error message.
_SHOWN: Final = 40
_SUFFIXES: Final = ("", ".cpy", ".CPY", ".cbl", ".CBL", ".cob", ".COB")
_LAST_COLUMN: Final = 72
_INDICATORS: Final = " *-/dD$"
_FREE_DIRECTIVE: Final = re.compile(r"\s*>>\s*SOURCE\s+(?:FORMAT\s+)?(?:IS\s+)?(FREE|FIXED)\b", re.IGNORECASE)
_WORD: Final = re.compile(
    r"""(?P<comment>\*>.*)
    |(?P<literal>[XZxz]?(?:"(?:[^"]|"")*"|'(?:[^']|'')*'))
    |(?P<pseudo>==)
    |(?P<period>\.(?=\s|==|$))
    |(?P<separator>[,;](?=\s|==|$))
    |(?P<part>[():]|(?:(?![.,;](?:\s|==|$))[^\s"'():=]|=(?!=))+)""",
    re.VERBOSE,
)
#: Statements that control listings of the compiler.
_LISTING: Final = frozenset(("EJECT", "SKIP1", "SKIP2", "SKIP3"))


class SourcePosition(msgspec.Struct, frozen=True):
    """A place in a copybook. Lines and columns begin with 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class CopybookError(ValueError):
    """A copybook that cannot be used."""

    def __init__(self, position: SourcePosition, sentence: str) -> None:
        super().__init__(f"{position}: {sentence}")
        self.position, self.sentence = position, sentence


class CopybookFiles:
    """The text of a copybook and of those that it copies, by file name. The content is read once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        #: content by file name, or None if the file does not exist
        self.contents: dict[str, bytes | None] = {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CopybookFiles):
            return NotImplemented
        return self.path == other.path and self.contents == other.contents

    __hash__ = None  # type: ignore[assignment]

    def content(self, name: str) -> bytes | None:
        """Return the content of a file in the directory of the copybook, or None if it does not exist. Raises OSError."""
        if name not in self.contents:
            try:
                self.contents[name], _ = regular_content(self.path.parent / name, MAX_SIZE + 1)
            except FileNotFoundError:
                self.contents[name] = None
        return self.contents[name]

    @property
    def size(self) -> int:
        """The number of bytes of all files."""
        return sum(len(content) for content in self.contents.values() if content is not None)


Usage = Literal["DISPLAY", "COMP", "COMP-1", "COMP-2", "COMP-3", "COMP-5"]
_NUMBERED: Final[dict[str, Usage]] = {
    "": "COMP",
    "-1": "COMP-1",
    "-2": "COMP-2",
    "-3": "COMP-3",
    "-4": "COMP",
    "-5": "COMP-5",
}
_USAGES: Final[dict[str, Usage]] = {
    "DISPLAY": "DISPLAY",
    "BINARY": "COMP",
    "PACKED-DECIMAL": "COMP-3",
    **{f"COMP{number}": usage for number, usage in _NUMBERED.items()},
    **{f"COMPUTATIONAL{number}": usage for number, usage in _NUMBERED.items()},
}


class Sign(msgspec.Struct, frozen=True):
    """A SIGN clause: the place of the sign of a zoned number, and whether it has its own byte."""

    leading: bool = False
    separate: bool = False


class Occurs(msgspec.Struct, frozen=True):
    """An OCCURS clause."""

    minimum: int
    maximum: int
    #: name of the item with the number of elements
    depending: str | None = None


class Declaration(msgspec.Struct, eq=False):
    """A data description entry with the entries subordinate to it."""

    level: int
    #: None: FILLER
    name: str | None
    position: SourcePosition
    picture: Picture | None = None
    usage: Usage | None = None
    sign: Sign | None = None
    occurs: Occurs | None = None
    redefines: str | None = None
    is_synchronized: bool = False
    is_justified: bool = False
    blank_when_zero: bool = False
    children: list[Declaration] = []

    @property
    def title(self) -> str:
        """The name for messages."""
        return self.name or "FILLER"


def parse(files: CopybookFiles) -> list[Declaration]:
    """Return the records of a copybook, in their order. Raises CopybookError, OSError."""
    name = files.path.name
    start = SourcePosition(name, 1, 1)
    content = files.content(name)
    if content is None:
        raise FileNotFoundError(2, "No such file or directory", str(files.path))
    words = _Copier(files).expanded(_words(name, content), (name,))
    if not words:
        raise CopybookError(start, "the copybook has no data description entries")
    return _tree([_Entry(entry).declaration() for entry in _entries(_merged(words))], name)


# Words ---------------------------------------------------------------------------------------------------------------


class _Word(msgspec.Struct, eq=False):
    """A word of the source, a literal, a period, or the delimiter of pseudo-text."""

    text: str
    kind: str
    position: SourcePosition
    #: whether no space separates it from the word before
    joined: bool = False

    @property
    def upper(self) -> str:
        return self.text.upper() if self.kind == "part" else self.text

    @property
    def shown(self) -> str:
        """The word in an error message."""
        return self.text if len(self.text) <= _SHOWN else f"{self.text[:_SHOWN]}…"


def _words(file: str, content: bytes) -> list[_Word]:
    """Return the words of a file. Raises CopybookError."""
    if b"\0" in content:
        raise CopybookError(SourcePosition(file, 1, 1), "the file is not text: it contains NUL")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")  # comments in the code page of the workstation
    lines = [line.expandtabs(8) for line in re.split(r"\r\n|\n|\r", text.replace("\x1a", ""))]
    words: list[_Word] = []
    for number, first, line in _code_of(file, lines):
        position = 0
        end = -1
        while (start := _skip_spaces(line, position)) < len(line):
            word = _WORD.match(line, start)
            at = SourcePosition(file, number, first + start)
            if word is None:
                raise CopybookError(at, f"a literal that does not end: {line[start : start + 20]}")
            if word.lastgroup not in ("comment", "separator"):
                words.append(_Word(word[0], str(word.lastgroup), at, start == end))
            position = end = word.end()
    if len(words) > MAX_WORDS:
        raise CopybookError(SourcePosition(file, 1, 1), f"the copybook has more than {MAX_WORDS:,} words")
    return words


def _skip_spaces(line: str, position: int) -> int:
    while position < len(line) and line[position].isspace():
        position += 1
    return position


def _code_of(file: str, lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Yield the number, the first column and the code of each line, with its continuation lines."""
    is_free = not _is_fixed(lines)
    pending: tuple[int, int, str] | None = None
    for number, line in enumerate(lines, 1):
        directive = _FREE_DIRECTIVE.match(line)
        if directive is not None:
            is_free = directive[1].upper() == "FREE"
            continue
        if is_free:
            if not line.lstrip().startswith(">>"):
                yield number, 1, line
            continue
        indicator, code = line[6:7], line[7:_LAST_COLUMN]
        if indicator == "-" and pending is not None:
            pending = (*pending[:2], _continued(pending[2], code))
            if len(pending[2]) > _MAX_CONTINUED:
                raise CopybookError(SourcePosition(file, number, 7), "too many continuation lines")
            continue
        if pending is not None:
            yield pending
            pending = None
        if indicator in ("", " "):
            pending = number, 8, code
        elif indicator not in _INDICATORS:
            raise CopybookError(
                SourcePosition(file, number, 7), f"column 7 contains {indicator!r}, which is not an indicator"
            )
    if pending is not None:
        yield pending


def _is_fixed(lines: Sequence[str]) -> bool:
    """Return whether lines are in fixed format: no line has code in the columns of sequence numbers and the indicator."""
    return not any(
        line.strip()
        and (
            line[6:7] not in _INDICATORS
            or re.match(r"\s*(?:[0-9]{1,2}\s+[A-Za-z]|COPY\s|\*>)", line[:_LAST_COLUMN][:8])
        )
        and not _FREE_DIRECTIVE.match(line)
        for line in lines
        if line[:7].strip()
    )


def _continued(before: str, code: str) -> str:
    """Return a line with its continuation line. An open literal continues after the first quote of that line."""
    rest = code.lstrip()
    quote = _open_quote(before)
    if quote:
        return before.ljust(_LAST_COLUMN - 7) + (rest[1:] if rest[:1] == quote else rest)
    return before.rstrip() + rest


def _open_quote(line: str) -> str:
    """Return the quote of a literal that the line does not end, or ""."""
    quote = ""
    for character in line:
        if character == quote:
            quote = ""
        elif not quote and character in "\"'":
            quote = character
    return quote


def _merged(words: Sequence[_Word]) -> Iterator[_Word]:
    """Yield words without the separation at parentheses and colons, which only COPY REPLACING needs."""
    last: _Word | None = None
    for word in words:
        if last is not None and word.joined and word.kind == last.kind == "part":
            last = _Word(last.text + word.text, "part", last.position)
            continue
        if last is not None:
            yield last
        last = word
    if last is not None:
        yield last


# COPY ----------------------------------------------------------------------------------------------------------------


class _Replacement(msgspec.Struct):
    """An operand of REPLACING. `end` is LEADING or TRAILING for a part of a word."""

    old: list[_Word]
    new: list[_Word]
    end: str = ""


class _Copier:
    """Replaces COPY statements by the text that they name."""

    def __init__(self, files: CopybookFiles) -> None:
        self._files = files
        self._count = 0

    def expanded(self, words: list[_Word], copied: tuple[str, ...]) -> list[_Word]:
        """Return words with those of the copied files. `copied` are the files that lead to them."""
        expanded_words: list[_Word] = []
        index = 0
        while index < len(words):
            word = words[index]
            if word.upper in _LISTING:
                index += 2 if index + 1 < len(words) and words[index + 1].kind == "period" else 1
                continue
            if word.upper == "REPLACE":
                raise CopybookError(word.position, "the statement REPLACE is not supported (hint: COPY … REPLACING)")
            if word.upper != "COPY" or word.joined:
                expanded_words.append(word)
                index += 1
                continue
            statement = _CopyStatement(words, index)
            expanded_words += self._copy(statement, copied)
            index = statement.end
        self._count += len(expanded_words)
        if self._count > MAX_WORDS * _MAX_COPIES:
            raise CopybookError(words[0].position, f"the copybook has more than {MAX_WORDS:,} words")
        return expanded_words

    def _copy(self, statement: _CopyStatement, copied: tuple[str, ...]) -> list[_Word]:
        name = self._file_of(statement)
        if name in copied:
            raise CopybookError(statement.position, f"COPY {statement.name}: {name} copies itself")
        if len(copied) >= _MAX_COPIES:
            raise CopybookError(statement.position, f"COPY statements are nested more than {_MAX_COPIES} deep")
        content = self._files.content(name)
        assert content is not None
        if self._files.size > MAX_SIZE:
            raise CopybookError(statement.position, f"the copied files have more than {MAX_SIZE:,} bytes")
        words = self.expanded(_words(name, content), (*copied, name))
        return _Replacements(statement.replacements).applied(words) if statement.replacements else words

    def _file_of(self, statement: _CopyStatement) -> str:
        name = statement.name
        if not re.fullmatch(r"[A-Za-z0-9@#$_][A-Za-z0-9@#$_.-]*", name):
            raise CopybookError(statement.position, f"COPY {name}: not the name of a file in the same directory")
        try:
            for spelling in dict.fromkeys((name, name.lower(), name.upper())):
                for suffix in _SUFFIXES:
                    if self._files.content(spelling + suffix) is not None:
                        return spelling + suffix
        except OSError as error:
            raise CopybookError(statement.position, f"COPY {name} cannot be read: {error.strerror}") from error
        names = ", ".join(f"{name.lower()}{suffix}" for suffix in _SUFFIXES[:2])
        where = self._files.path.parent
        raise CopybookError(
            statement.position, f"COPY {name}: {where} has no such file (looked for {names} and others)"
        )


class _CopyStatement:
    """A parsed COPY statement. `end` is the index of the word that follows it."""

    def __init__(self, words: Sequence[_Word], index: int) -> None:
        self._words, self.end = words, index + 1
        self.position = words[index].position
        #: name of the text
        self.name = self._next("the name of a file").text.strip("\"'")
        self.replacements: list[_Replacement] = []
        if self._peek() in ("OF", "IN"):
            self.end += 1
            self._next("the name of a library")
        if self._peek() == "SUPPRESS":
            self.end += 1
        if self._peek() == "REPLACING":
            self.end += 1
            while self._peek() not in (".", ""):
                self.replacements.append(self._replacement())
        if self._next("a period").kind != "period":
            raise CopybookError(words[self.end - 1].position, f"COPY {self.name}: a period is missing")

    def _peek(self) -> str:
        return self._words[self.end].upper if self.end < len(self._words) else ""

    def _next(self, element: str) -> _Word:
        if self.end >= len(self._words):
            raise CopybookError(self.position, f"the COPY statement does not end: {element} is missing")
        self.end += 1
        return self._words[self.end - 1]

    def _replacement(self) -> _Replacement:
        part = self._peek() if self._peek() in ("LEADING", "TRAILING") else ""
        self.end += bool(part)
        old = self._operand()
        by = self._next("BY")
        if by.upper != "BY":
            raise CopybookError(by.position, f"REPLACING: expected BY, found {by.shown}")
        new = self._operand()
        if not old:
            raise CopybookError(by.position, "REPLACING: the text before BY is empty")
        if part and (len(old) > 1 or len(new) > 1):
            raise CopybookError(by.position, f"REPLACING {part} replaces a part of one word")
        return _Replacement(old, new, part)

    def _operand(self) -> list[_Word]:
        word = self._next("an operand of REPLACING")
        if word.kind == "period":
            raise CopybookError(word.position, "REPLACING: expected an operand, found a period")
        operand = []
        if word.kind == "pseudo":
            while (word := self._next("==")).kind != "pseudo":
                operand.append(word)
            return operand
        operand.append(word)
        while self.end < len(self._words) and self._words[self.end].joined and self._words[self.end].kind == "part":
            operand.append(self._next(""))
        return operand


class _Replacements:
    """The operands of REPLACING, by their first words."""

    def __init__(self, replacements: Sequence[_Replacement]) -> None:
        #: first word -> the words that are replaced, their number in REPLACING, and the operand
        self._whole: dict[str, list[tuple[int, list[str], _Replacement]]] = {}
        self._parts: list[tuple[int, str, _Replacement]] = []
        for number, replacement in enumerate(replacements):
            texts = [old.upper for old in replacement.old]
            if replacement.end:
                self._parts.append((number, texts[0], replacement))
            else:
                self._whole.setdefault(texts[0], []).append((number, texts, replacement))

    def applied(self, words: list[_Word]) -> list[_Word]:
        """Return words after their replacement."""
        replaced_words: list[_Word] = []
        index = 0
        gap = False  # an empty replacement precedes, so the next word is not joined to the word before it
        while index < len(words):
            word = words[index]
            count, new = self._at(words, index)
            for number, replaced in enumerate(new):
                joined = replaced.joined if number else word.joined and not gap
                replaced_words.append(_Word(replaced.text, replaced.kind, word.position, joined))
            gap = not new and (gap or not word.joined)
            index += count
        return replaced_words

    def _at(self, words: list[_Word], index: int) -> tuple[int, Sequence[_Word]]:
        """Return how many words at an index are replaced, and by which words. The first operand that matches applies."""
        word = words[index]
        matches: list[tuple[int, int, Sequence[_Word]]] = []
        for number, texts, replacement in self._whole.get(word.upper, ()):
            if [following.upper for following in words[index : index + len(texts)]] == texts:
                matches.append((number, len(texts), replacement.new))
                break
        for number, text, replacement in self._parts if word.kind == "part" else ():
            if (new := _partly(word.text, text, replacement)) is not None:
                matches.append((number, 1, [_Word(new, "part", word.position)]))
                break
        return min(matches)[1:] if matches else (1, [word])


def _partly(text: str, old: str, replacement: _Replacement) -> str | None:
    """Return a word with its beginning or end replaced, or None if it does not begin or end with `old`."""
    new = replacement.new[0].text if replacement.new else ""
    if replacement.end == "LEADING":
        return new + text[len(old) :] if text.upper().startswith(old) else None
    return text[: -len(old)] + new if text.upper().endswith(old) else None


# Entries -------------------------------------------------------------------------------------------------------------


def _entries(words: Iterator[_Word]) -> Iterator[list[_Word]]:
    """Yield the words of each entry, without the period."""
    entry: list[_Word] = []
    for word in words:
        if word.kind != "period":
            entry.append(word)
        elif entry:
            yield entry
            entry = []
    if entry:
        raise CopybookError(entry[0].position, f"the entry {' '.join(word.shown for word in entry[:3])} has no period")


class _Entry:
    """Parses one data description entry."""

    def __init__(self, words: list[_Word]) -> None:
        self._words = words
        self._index = 0
        self._declaration: Declaration

    def declaration(self) -> Declaration | None:
        """Return the declaration. None: an entry that describes no data (level 88). Raises CopybookError."""
        word = self._next()
        if not word.text.isdecimal() or len(word.text) > 2:
            raise CopybookError(word.position, f"expected a level number, found {word.shown}")
        level = int(word.text)
        if level == 88:
            return None
        if not 1 <= level <= 49:
            description = {66: " (RENAMES)", 77: " (independent items)"}.get(level, "")
            raise CopybookError(
                word.position, f"level {word.text}{description} is not supported: levels are 01 to 49 and 88"
            )
        self._declaration = Declaration(level, None, word.position)
        if self._peek() == "FILLER":
            self._next()
        elif self._peek() not in _CLAUSES and self._index < len(self._words):
            name = self._next()
            if not re.fullmatch(r"(?=[0-9_-]*[A-Za-z])[A-Za-z0-9](?:[A-Za-z0-9_-]{0,60}[A-Za-z0-9])?", name.text):
                raise CopybookError(name.position, f"{name.shown} is not a name or a clause")
            self._declaration.name = name.text.upper()
            self._declaration.position = name.position
        while self._index < len(self._words):
            clause = self._next()
            parser = _CLAUSES.get(clause.upper)
            if parser is None:
                raise CopybookError(clause.position, f"the clause {clause.shown} is not supported")
            parser(self, clause)
        return self._declaration

    def _peek(self) -> str:
        return self._words[self._index].upper if self._index < len(self._words) else ""

    def _next(self) -> _Word:
        if self._index >= len(self._words):
            last = self._words[-1]
            raise CopybookError(last.position, f"the entry ends after {last.shown}")
        self._index += 1
        return self._words[self._index - 1]

    def _skip(self, *words: str) -> bool:
        """Skip one of these words, if it follows."""
        follows = self._peek() in words
        self._index += follows
        return follows

    def _once(self, clause: _Word, value: object) -> None:
        if value:
            raise CopybookError(clause.position, f"{self._declaration.title} has two clauses {clause.text}")

    def picture(self, clause: _Word) -> None:
        self._once(clause, self._declaration.picture)
        self._skip("IS")
        word = self._next()
        try:
            self._declaration.picture = picture_of(word.text)
        except PictureError as error:
            at = msgspec.structs.replace(word.position, column=word.position.column + error.index)
            raise CopybookError(at, str(error)) from error

    def usage(self, clause: _Word) -> None:
        if clause.upper == "USAGE":
            self._skip("IS")
            clause = self._next()
        self._once(clause, self._declaration.usage)
        usage = _USAGES.get(clause.upper)
        if usage is None:
            raise CopybookError(clause.position, f"USAGE {clause.shown} is not supported")
        self._declaration.usage = usage

    def sign(self, clause: _Word) -> None:
        if clause.upper == "SIGN":
            self._skip("IS")
            clause = self._next()
        self._once(clause, self._declaration.sign)
        if clause.upper not in ("LEADING", "TRAILING"):
            raise CopybookError(clause.position, f"SIGN: expected LEADING or TRAILING, found {clause.shown}")
        separate = self._skip("SEPARATE")
        if separate:
            self._skip("CHARACTER")
        self._declaration.sign = Sign(clause.upper == "LEADING", separate)

    def occurs(self, clause: _Word) -> None:
        self._once(clause, self._declaration.occurs)
        if self._declaration.level == 1:
            raise CopybookError(clause.position, "level 01 has no OCCURS")
        minimum = maximum = self._number(0)
        if self._skip("TO"):
            maximum = self._number(1)
        self._skip("TIMES")
        depending = None
        while True:
            if self._skip("DEPENDING"):
                self._skip("ON")
                depending = self._qualified_name()
            elif self._skip("ASCENDING", "DESCENDING"):
                self._skip("KEY")
                self._skip("IS")
                self._names()
            elif self._skip("INDEXED"):
                self._skip("BY")
                self._names()
            else:
                break
        if depending is None and (minimum != maximum or not maximum):
            raise CopybookError(clause.position, "OCCURS … TO needs DEPENDING ON")
        if depending is not None and minimum == maximum:
            minimum = 1  # OCCURS 5 DEPENDING ON: 1 to 5
        if not minimum <= maximum:
            raise CopybookError(clause.position, f"OCCURS {minimum} TO {maximum}: the second number is smaller")
        self._declaration.occurs = Occurs(minimum, maximum, depending)

    def _number(self, minimum: int) -> int:
        word = self._next()
        if not word.text.isdecimal() or len(word.text) > 9 or int(word.text) < minimum:
            raise CopybookError(word.position, f"OCCURS: expected a number of at least {minimum}, found {word.shown}")
        return int(word.text)

    def _names(self) -> None:
        self._next()
        while self._index < len(self._words) and self._peek() not in _CLAUSES and self._peek() not in _OF_OCCURS:
            self._index += 1

    def _qualified_name(self) -> str:
        names = [self._next().upper]
        while self._skip("OF", "IN"):
            names.append(self._next().upper)
        return names[0]

    def redefines(self, clause: _Word) -> None:
        self._once(clause, self._declaration.redefines)
        self._declaration.redefines = self._next().upper

    def synchronized(self, clause: _Word) -> None:
        self._skip("LEFT", "RIGHT")
        self._declaration.is_synchronized = True

    def justified(self, clause: _Word) -> None:
        self._skip("RIGHT")
        self._declaration.is_justified = True

    def blank(self, clause: _Word) -> None:
        self._skip("WHEN")
        word = self._next()
        if word.upper not in ("ZERO", "ZEROS", "ZEROES"):
            raise CopybookError(word.position, f"BLANK WHEN: expected ZERO, found {word.shown}")
        self._declaration.blank_when_zero = True

    def value(self, clause: _Word) -> None:
        """Skip a VALUE clause: a record is not initialized by its description."""
        self._skip("IS", "ARE")
        self._skip("ALL")
        self._next()


_CLAUSES: Final = {
    **dict.fromkeys(("PIC", "PICTURE"), _Entry.picture),
    **dict.fromkeys(("USAGE", *_USAGES), _Entry.usage),
    **dict.fromkeys(("SIGN", "LEADING", "TRAILING"), _Entry.sign),
    "OCCURS": _Entry.occurs,
    "REDEFINES": _Entry.redefines,
    **dict.fromkeys(("SYNC", "SYNCHRONIZED"), _Entry.synchronized),
    **dict.fromkeys(("JUST", "JUSTIFIED"), _Entry.justified),
    "BLANK": _Entry.blank,
    **dict.fromkeys(("VALUE", "VALUES"), _Entry.value),
}
_OF_OCCURS: Final[Collection[str]] = ("ASCENDING", "DESCENDING", "INDEXED", "DEPENDING")


def _tree(declarations: Sequence[Declaration | None], file: str) -> list[Declaration]:
    """Return the records: entries with those subordinate to them, by their level numbers."""
    records: list[Declaration] = []
    groups: list[Declaration] = []
    for declaration in declarations:
        if declaration is None:
            continue
        while groups and groups[-1].level >= declaration.level:
            groups.pop()
        if not groups:
            records.append(declaration)
        elif groups[-1].picture is not None:
            above = groups[-1].title
            raise CopybookError(declaration.position, f"{declaration.title} follows {above}, which has a PICTURE")
        else:
            groups[-1].children.append(declaration)
        groups.append(declaration)
    if not records:
        raise CopybookError(SourcePosition(file, 1, 1), "the copybook has no data description entries")
    if all(record.level == 1 for record in records):
        return records
    if wrong := next((record for record in records if record.level == 1), None):
        raise CopybookError(wrong.position, "level 01 follows entries that belong to no record")
    # Programs copy this copybook below their own level 01.
    return [Declaration(1, Path(file).stem.upper(), records[0].position, children=records)]
