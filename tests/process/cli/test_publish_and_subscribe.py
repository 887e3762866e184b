"""`mqbridge mq pub` and `sub`."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.helpers.patience import PATIENCE


def objects(result: Any) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def subscriptions(queue_manager: Any, topic: str) -> int:
    return len(queue_manager.command(f"DISPLAY SUB(*) WHERE(TOPICSTR EQ '{topic}')"))


@pytest.fixture
def topic(queue_manager: Any) -> str:
    return str(queue_manager.name("topic"))


def subscribed(process: Any, topic: str) -> None:
    """Wait until the subscription of a started `sub` exists."""
    assert process.stderr.readline().decode() == f"subscribed to {topic}\n"


def test_publications_are_printed_when_they_arrive(start: Any, mq: Any, queue_manager: Any, topic: str) -> None:
    process = start("mq", "sub", f"{topic}/+", "--limit", 2, "--data-dir", queue_manager.directory)
    subscribed(process, f"{topic}/+")
    for body in ("first", "second"):
        assert mq("pub", f"{topic}/a", body).exit_code == 0
        assert process.stdout.readline().decode() == f"{body}\n"
    assert process.wait(20) == 0
    queue_manager.until(lambda: not subscriptions(queue_manager, f"{topic}/+"))


def test_json_shows_the_topic(start: Any, mq: Any, queue_manager: Any, topic: str) -> None:
    process = start("mq", "sub", f"{topic}/#", "--json", "--limit", 1, "--data-dir", queue_manager.directory)
    subscribed(process, f"{topic}/#")
    (put,) = objects(mq("pub", f"{topic}/a", "21", "--json", "--persistent", "--priority", 5))
    assert (put["Persistence"], put["Priority"], put["Format"]) == (1, 5, "MQSTR")
    message = json.loads(process.stdout.readline())
    assert (message["md"]["Persistence"], message["md"]["Priority"], message["md"]["Format"]) == (1, 5, "MQHRF2")
    (rfh2,) = message["rfh2"]
    assert (rfh2["folders"], rfh2["Format"]) == ({"mqps": {"Top": f"{topic}/a"}}, "MQSTR")
    assert (message["body"], message["bodyEncoding"]) == ("21", "utf-8")


def test_a_durable_subscription_survives_the_command(mq: Any, queue_manager: Any, topic: str) -> None:
    name = queue_manager.name("sub")
    first = mq("sub", f"{topic}/#", "--durable", name, "--wait", 0)
    assert (first.exit_code, first.stdout, first.stderr) == (0, "", f"subscribed to {topic}/#\n")
    mq("pub", f"{topic}/a", "1")
    mq("pub", f"{topic}/b", input=b"2")
    mq("pub", "elsewhere", "3")
    assert mq("sub", f"{topic}/#", "--durable", name, "--wait", 0, "--limit", 1).stdout == "1\n"
    assert mq("sub", f"{topic}/#", "--durable", name, "--wait", 0).stdout == "2\n"
    assert mq("sub", f"{topic}/#", "--durable", name, "--wait", 0).stdout == ""
    assert subscriptions(queue_manager, f"{topic}/#") == 1


def test_remove_ends_a_durable_subscription(mq: Any, queue_manager: Any, topic: str) -> None:
    name = queue_manager.name("sub")
    mq("sub", topic, "--durable", name, "--wait", 0)
    mq("pub", topic, "last")
    assert mq("sub", topic, "--durable", name, "--wait", 0, "--remove").stdout == "last\n"
    assert subscriptions(queue_manager, topic) == 0


def test_the_filter_of_a_durable_subscription_cannot_change(mq: Any, queue_manager: Any, topic: str) -> None:
    name = queue_manager.name("sub")
    mq("sub", topic, "--durable", name, "--wait", 0)
    result = mq("sub", "another", "--durable", name, "--wait", 0)
    assert result.exit_code == 1
    assert result.stderr.startswith("mqbridge: error: MQRC_TOPIC_NOT_ALTERABLE (2510)")
    assert mq("sub", topic, "--durable", name, "--wait", 0, "--remove").exit_code == 0


def test_retained_publications_arrive_at_once(mq: Any, topic: str) -> None:
    assert mq("pub", topic, "kept", "--retain").exit_code == 0
    assert mq("pub", topic, "not kept").exit_code == 0
    (message,) = objects(mq("sub", topic, "--wait", 0, "--json"))
    assert (message["body"], message["rfh2"][0]["folders"]) == ("kept", {"mqps": {"Top": topic, "Ret": True}})


def test_an_empty_retained_publication_clears_the_previous_one(mq: Any, topic: str) -> None:
    mq("pub", topic, "kept", "--retain")
    cleared = mq("pub", topic, "", "--retain")
    assert (cleared.exit_code, cleared.stderr) == (0, f"cleared the retained publication of topic {topic}\n")
    assert mq("sub", topic, "--wait", 0).stdout == ""


@pytest.mark.parametrize(
    ("arguments", "status"), [((), 0), (("--limit", 0), 0), (("--limit", 1), 3), (("--limit", 2), 3)]
)
def test_a_wait_without_a_publication_ends(mq: Any, topic: str, arguments: tuple[Any, ...], status: int) -> None:
    result = mq("sub", topic, "--wait", 0.01, *arguments)
    complaint = f"mqbridge: error: MQRC_NO_MSG_AVAILABLE (2033): topic '{topic}'\n" if status else ""
    assert (result.exit_code, result.stdout, result.stderr) == (status, "", f"subscribed to {topic}\n{complaint}")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("pub", "a/#", "x"), "MQRC_TOPIC_STRING_ERROR (2425)"),
        (("pub", "", "x"), "MQRC_TOPIC_STRING_ERROR (2425)"),
        (("sub", "", "--wait", "0"), "MQRC_TOPIC_STRING_ERROR (2425)"),
    ],
)
def test_errors_are_reported(mq: Any, arguments: tuple[str, ...], complaint: str) -> None:
    result = mq(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("mqbridge: error: " + complaint)


def test_remove_is_for_durable_subscriptions_only(mq: Any) -> None:
    result = mq("sub", "a", "--remove")
    assert result.exit_code == 2
    assert "--durable" in result.stderr


@pytest.mark.parametrize(("durable", "remove"), [(False, False), (True, False), (True, True)])
def test_ctrl_c_ends_the_command(start: Any, queue_manager: Any, topic: str, durable: bool, remove: bool) -> None:
    name = queue_manager.name("sub")
    options = (("--durable", name) if durable else ()) + (("--remove",) if remove else ())
    process = start("mq", "sub", topic, *options, "--data-dir", queue_manager.directory)
    subscribed(process, topic)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output, errors.strip()) == (130, b"", b"")
    queue_manager.until(lambda: subscriptions(queue_manager, topic) == (durable and not remove))
