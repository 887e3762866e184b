"""The commands of the documentation: blocks of pages, their commands, and the output that the pages show.

A comment before a block states why it is not run: `<!-- not run: REASON -->`. With words in parentheses, it applies to the
commands that begin with them: `<!-- not run (journalctl, mqbridge top): REASON -->`. `<!-- file: NAME -->` makes a block a
file of the reader, and `<!-- first: COMMAND -->` is a command that the tests run before the block.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Pages with commands that readers type. The generated reference has examples of options instead.
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "tutorial.md",
    ROOT / "docs" / "tutorial-ibm-mq.md",
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
)
_BLOCK = re.compile(
    r"^(?: *<!-- (?P<mark>[^>]*?) -->\n)?(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```$", re.M | re.S
)
_MARK = re.compile(r"not run(?: \((?P<words>[^)]*)\))?: (?P<reason>\S.*)", re.S)
_FILE = re.compile(r"file: (?P<name>\S+)")
_FIRST = re.compile(r"first: (?P<command>.+)", re.S)
_HERE_DOCUMENT = re.compile(r"<<'(\w+)'")


@dataclass
class Command:
    """A command and the output that the page shows below it."""

    text: str
    output: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Block:
    """A block of a page."""

    page: Path
    line: int
    language: str
    text: str
    mark: str

    @property
    def is_command(self) -> bool:
        """Whether readers type the block into a shell."""
        return self.language in ("console", "sh")

    @property
    def file(self) -> str:
        """The file that the block is, or blank."""
        match = _FILE.fullmatch(self.mark)
        return match["name"] if match else ""

    @property
    def first(self) -> str:
        """The command that is run before the block, or blank."""
        match = _FIRST.fullmatch(self.mark)
        return match["command"] if match else ""

    @property
    def reason(self) -> str:
        """Why the whole block is not run, or blank."""
        match = _MARK.fullmatch(self.mark)
        return match["reason"] if match and match["words"] is None else ""

    def commands(self) -> Iterator[Command]:
        """Yield the commands of a console block that are run."""
        match = _MARK.fullmatch(self.mark)
        skipped = tuple(word.strip() for word in (match["words"] or "").split(",")) if match else ()
        command: Command | None = None
        end = ""
        for line in [*self.text.splitlines(), "$ "]:
            if end:
                assert command is not None
                command.text += f"\n{line}"
                end = "" if line == end else end
            elif line.startswith("> ") and command is not None:
                command.text += f"\n{line[2:]}"
            elif line.startswith(("$ ", "# ")):
                if command is not None and not (skipped and " ".join(command.text.split()).startswith(skipped)):
                    yield command
                command = Command(line[2:])
                here = _HERE_DOCUMENT.search(line)
                end = here[1] if here else ""
            elif command is not None:
                command.output.append(line)


def blocks(page: Path) -> list[Block]:
    """Return all blocks of a page."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page,
            text[: match.start("indent")].count("\n") + 1,
            match["language"],
            textwrap.dedent(match["text"]),
            " ".join((match["mark"] or "").split()),
        )
        for match in _BLOCK.finditer(text)
    ]


def share() -> str:
    """Return how many blocks with commands are run, as a sentence."""
    commands = [block for page in PAGES for block in blocks(page) if block.is_command]
    run = [block for block in commands if not block.reason]
    return f"documented commands: {len(run)} of {len(commands)} blocks are run"
