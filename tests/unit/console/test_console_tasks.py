"""The tasks of docs/how-to/console.md: each has a test in the browser and one of its commands."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).resolve().parents[3]
BROWSER: Final = ("tests/process/console/test_browser.py", "tests/process/console/test_browser_tasks.py")
COMMANDS: Final = "tests/acceptance/test_console_tasks.py"


class Task(NamedTuple):
    """The tests of a task."""

    #: functions of BROWSER
    browser: tuple[str, ...]
    #: function of COMMANDS
    command: str


#: By the beginning of the first column.
TASKS: Final = {
    "find something": Task(("test_everything_can_be_searched_with_the_keyboard",), "test_search"),
    "see which limits are near": Task(("test_limits_and_certificates_are_shown",), "test_limits_and_certificates"),
    "see how busy": Task(("test_the_rates_of_a_queue_are_shown",), "test_the_rates_of_a_queue"),
    "resume a paused mapping": Task(("test_problems_are_solved_with_their_buttons",), "test_stopped_parts_are_resumed"),
    "find out why a device went away": Task(("test_a_client_is_traced",), "test_the_reason_why_a_device_disconnected"),
    "watch what one device": Task(("test_a_client_is_traced",), "test_one_device_is_traced"),
    "disconnect or purge": Task(("test_selected_clients_are_purged",), "test_devices_are_disconnected_and_purged"),
    "see who publishes": Task(
        ("test_the_route_of_a_message_is_shown_and_a_retained_value_is_deleted",), "test_publishers_and_subscribers"
    ),
    "find the route": Task(
        ("test_the_route_of_a_message_is_shown_and_a_retained_value_is_deleted",), "test_the_route_of_a_message"
    ),
    "publish a test message": Task(
        (
            "test_publications_are_sent_and_shown_live",
            "test_the_route_of_a_message_is_shown_and_a_retained_value_is_deleted",
        ),
        "test_a_message_is_published_and_cleared",
    ),
    "create, alter, clear or delete a queue": Task(
        ("test_a_queue_is_created_and_deleted", "test_a_queue_is_altered_and_cleared"), "test_a_queue_is_created"
    ),
    "copy definitions": Task(("test_definitions_are_copied",), "test_definitions_are_copied"),
    "add a user": Task(("test_a_user_is_added_and_deleted",), "test_a_user_gets_a_password"),
    "find out whether a user": Task(("test_a_user_is_added_and_deleted",), "test_whether_a_user_may_publish"),
    "deliver dead letters": Task(("test_dead_letters_are_delivered",), "test_dead_letters_are_delivered"),
    "see the settings": Task(("test_changed_settings_are_shown",), "test_changed_settings"),
    "check a change": Task(("test_an_edited_copy_is_checked",), "test_an_edited_copy_is_checked"),
}


def rows() -> list[tuple[str, list[str]]]:
    """Return the tasks of the page, each with its commands."""
    page = (ROOT / "docs/how-to/console.md").read_text()
    table = page[page.index("| task |") :].partition("\n\n")[0].splitlines()[2:]
    return [(row.split(" | ")[0].removeprefix("| "), re.findall("`(mqbridge [^`]+)`", row)) for row in table]


def functions(*paths: str) -> dict[str, str]:
    """Return the sources of the functions of files."""
    return {
        node.name: ast.unparse(node)
        for path in paths
        for node in ast.parse((ROOT / path).read_text()).body
        if isinstance(node, ast.FunctionDef)
    }


def test_each_task_has_a_row_in_the_table() -> None:
    assert len(rows()) == len(TASKS)
    for (text, _), beginning in zip(rows(), TASKS, strict=True):
        assert text.startswith(beginning)


@pytest.mark.parametrize("task", TASKS)
def test_each_task_is_tested(task: str) -> None:
    """In the browser, and with each command that the page names."""
    (commands,) = [commands for text, commands in rows() if text.startswith(task)]
    tests = TASKS[task]
    assert functions(*BROWSER).keys() >= set(tests.browser)
    source = functions(COMMANDS)[tests.command]
    assert commands
    for command in commands:
        words = [word for word in command.split()[1:] if re.fullmatch("[a-z-]+", word) and not word.startswith("-")]
        called = ", ".join(repr(word) for word in words[:2])
        assert called in source, f"{tests.command} does not run `{command}`"
