"""Forms and previews of changes to objects. Each preview describes the actual effect on the queue manager."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.mq.embedded.attributes import ATTRIBUTES, IGNORED
from bridge.mq.object_changes import (
    KINDS,
    LABELS,
    MAX_COMMANDS,
    MAX_SCRIPT,
    TooManyCommands,
    definition,
    details,
    effects,
    objects,
)
from tests.helpers.embedded_manager import Manager

BEFORE = """
DEFINE QLOCAL(FULL) MAXDEPTH(10)
DEFINE QLOCAL(EMPTY) DESCR('old')
DEFINE QALIAS(ALIAS) TARGET(FULL)
DEFINE TOPIC(PLANT) TOPICSTR('plant')
DEFINE NAMELIST(LIST) NAMES(A,B)
"""


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path)
    for line in BEFORE.strip().splitlines():
        manager.ok(line)
    manager.put("FULL")
    manager.put("FULL")
    yield manager
    manager.close()


@pytest.mark.parametrize(
    ("command", "effect", "text", "changes"),
    [
        ("DEFINE QLOCAL(NEW)", "create", "", []),
        ("DEF QL(NEW) MAXDEPTH(5) NOSHARE", "create", "", ["MAXDEPTH: 5000 -> 5", "SHARE: YES -> NO"]),
        ("DEFINE QLOCAL(NEW) LIKE(FULL)", "create", "", ["MAXDEPTH: 5000 -> 10"]),
        ("DEFINE QLOCAL(NEW) LIKE(NONE)", "error", "AMQ8147E", []),
        ("DEFINE QLOCAL(FULL)", "error", "AMQ8150E", []),
        ("DEFINE QLOCAL(FULL) MAXDEPTH(10) REPLACE", "none", "", []),
        ("DEFINE QLOCAL(EMPTY) REPLACE", "change", "", ["DESCR: old -> "]),
        ("ALTER QLOCAL(EMPTY) DESCR('it''s new') PUT(DISABLED)", "change", "",
         ["DESCR: old -> it's new", "PUT: ENABLED -> DISABLED"]),
        ("ALTER QLOCAL(EMPTY) DESCR('old') SCOPE(QMGR)", "none", "", []),
        ("ALTER QLOCAL(EMPTY) MAXDEPTH(-1)", "error", "MAXDEPTH must be a number from 0", []),
        ("ALTER QLOCAL(EMPTY) CHEESE(1)", "error", "AMQ8405I", []),
        ("ALTER QLOCAL(NONE) DESCR('x')", "error", "AMQ8147E", []),
        ("ALTER QALIAS(ALIAS) TARGET(EMPTY)", "change", "", ["TARGET: FULL -> EMPTY"]),
        ("ALTER NAMELIST(LIST) NAMES(C)", "change", "", ["NAMES: A,B -> C"]),
        ("DELETE QLOCAL(EMPTY)", "delete", "", []),
        ("DELETE QLOCAL(FULL)", "error", "2 messages are on it; hint: PURGE deletes them", []),
        ("DELETE QLOCAL(FULL) PURGE", "delete", "with 2 messages", []),
        ("DELETE TOPIC(NONE)", "error", "AMQ8147E", []),
        ("CLEAR QLOCAL(FULL)", "clear", "2 messages", []),
        ("CLEAR TOPICSTR('plant/1') CLRTYPE(RETAINED)", "clear", "the retained publication of plant/1", []),
        ("DEFINE QLOCAL('not a name')", "error", "AMQ8424E", []),
        ("DEFINE QLOCAL", "error", "AMQ8405I", []),
        ("DEFINE CHEESE(X)", "error", "AMQ8405I", []),
        ("ALTER QLOCAL(SYSTEM.DEAD.LETTER.QUEUE) MAXDEPTH(1)", "left out", "SYSTEM objects", []),
        ("ALTER QMGR DEADQ(X)", "left out", "use `mqbridge mqsc`", []),
        ("SET AUTHREC PROFILE(X) OBJTYPE(QUEUE) PRINCIPAL('x') AUTHADD(ALL)", "left out", "use `mqbridge mqsc`", []),
        ("DISPLAY QLOCAL(*)", "left out", "use `mqbridge mqsc`", []),
        ("CLEAR TOPIC(PLANT)", "left out", "use `mqbridge mqsc`", []),
    ],
)  # fmt: skip
def test_the_effect_of_a_command(manager: Manager, command: str, effect: str, text: str, changes: list[str]) -> None:
    (preview,) = effects(manager.connection, command)
    assert (preview.effect, [f"{change.keyword}: {change.before} -> {change.after}" for change in preview.changes]) == (
        effect,
        changes,
    )
    assert text in preview.text
    if effect in ("create", "change", "none", "delete", "clear", "error"):
        assert manager.run(command).ok is (effect != "error"), "the command succeeds unless the preview has an error"


def test_a_command_can_depend_on_previous_ones(manager: Manager) -> None:
    script = (
        "DEFINE QLOCAL(A)\nALTER QLOCAL(A) DESCR('x')\nALTER QLOCAL(A) DESCR('x')\nDELETE QLOCAL(A)\nDELETE QLOCAL(A)\n"
    )
    script += "CLEAR QLOCAL(FULL)\nDELETE QLOCAL(FULL)\n"
    results = effects(manager.connection, script)
    assert [(effect.line, effect.effect) for effect in results] == [
        (1, "create"), (2, "change"), (3, "none"), (4, "delete"), (5, "error"), (6, "clear"), (7, "delete"),
    ]  # fmt: skip
    assert manager.run("DISPLAY QLOCAL(A)").ok is False, "nothing was changed"


@pytest.mark.parametrize(
    "script", ["x" * (MAX_SCRIPT + 1), "DEFINE QLOCAL(A)\n" * (MAX_COMMANDS + 1)], ids=["characters", "commands"]
)
def test_scripts_have_a_maximum_length(manager: Manager, script: str) -> None:
    with pytest.raises(TooManyCommands, match="the maximum is"):
        effects(manager.connection, script)


def test_forms_have_all_attributes(manager: Manager) -> None:
    for kind in KINDS:
        object_details = details(manager.connection, kind, "")
        assert object_details is not None
        assert [attribute.keyword for attribute in object_details.attributes] == [
            keyword for keyword in ATTRIBUTES[kind] if keyword in LABELS
        ]
        assert all(attribute.value == attribute.default for attribute in object_details.attributes)
        assert all(
            keyword in LABELS or keyword in IGNORED.get(kind, ()) for kind in KINDS for keyword in ATTRIBUTES[kind]
        )
    assert details(manager.connection, "QLOCAL", "NONE") is None
    assert [row.name for row in objects(manager.connection, "QLOCAL", system=False)] == ["EMPTY", "FULL"]
    assert "SYSTEM.RETAINED.PUB.QUEUE" in [row.name for row in objects(manager.connection, "QLOCAL", system=True)]
    (alias,) = objects(manager.connection, "QALIAS", system=False)
    assert (alias.name, alias.detail) == ("ALIAS", "FULL")


def test_a_form_generates_the_command(manager: Manager) -> None:
    current = details(manager.connection, "QLOCAL", "EMPTY")
    new = details(manager.connection, "QALIAS", "")
    names = details(manager.connection, "NAMELIST", "LIST")
    assert current is not None and new is not None and names is not None
    assert definition("QLOCAL", "EMPTY", {"DESCR": "old", "MAXDEPTH": "5000"}, current) == ""
    values = {"DESCR": "it's", "SHARE": "NO", "GET": "disabled", "MAXDEPTH": " 7 "}
    assert definition("QLOCAL", "EMPTY", values, current) == (
        "ALTER QLOCAL('EMPTY') +\n   DESCR('it''s') +\n   GET(DISABLED) +\n   MAXDEPTH(7) +\n   NOSHARE"
    )
    assert definition("QALIAS", "B", {"TARGET": "FULL"}, new) == "DEFINE QALIAS('B') +\n   TARGET('FULL')"
    assert definition("NAMELIST", "LIST", {"NAMES": "C, D"}, names) == "ALTER NAMELIST('LIST') +\n   NAMES('C','D')"
    with pytest.raises(ValueError, match="MAXDEPTH must be a number"):
        definition("QLOCAL", "EMPTY", {"MAXDEPTH": "x"}, current)


@settings(max_examples=40, deadline=None)
@given(text=st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=64))
def test_texts_are_quoted(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """The text in a form is a value, never a command."""
    manager = Manager(tmp_path_factory.mktemp("quoted"))
    new = details(manager.connection, "QLOCAL", "")
    assert new is not None
    for response in manager.connection.command(definition("QLOCAL", "A", {"DESCR": text}, new)):
        assert response.ok, response.message
    assert manager.attribute("QLOCAL(A)", "DESCR") == text.strip()
    manager.close()
