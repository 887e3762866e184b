"""`mqbridge dlq` with mappings and clients: retried messages are mapped again and reach their destination."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from bridge.config.queue_manager import SET_ASIDE_QUEUE
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.console import Console
from tests.helpers.patience import until
from tests.helpers.raw_client import RawClient

DEAD_LETTERS = "SYSTEM.DEAD.LETTER.QUEUE"
CONFIG = """
mappings:
  from-topic: {from: {mqtt: "shop/+/orders"}, to: {queue: LATER}}
  from-queue: {from: {queue: SOURCE}, to: {mqtt: "out/{usr.site}"}}
queue_manager: {scripts: [SCRIPT]}
"""


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    directory = tmp_path_factory.mktemp("dlq")
    script = directory / "objects.mqsc"
    script.write_text("DEFINE QLOCAL(SOURCE) NOREPLACE\n")
    with at_work(BridgeProcess(directory / "data", config=CONFIG.replace("SCRIPT", str(script)))) as process:
        until(
            lambda: process.run_mq("display", "SUB('mqbridge mapping from-topic')").returncode == 0
        )  # the mapping runs
        yield process


NOTICES = """
mappings:
  nowhere: {from: {mqtt: nowhere}, to: {queue: NOWHERE}}
  notices:
    from: {queue: SYSTEM.DEAD.LETTER.QUEUE}
    to: {mqtt: "ops/{dlh.ReasonName}/{dlh.DestQName}"}
    payload: {type: json, object: {text: "{text}", at: "{dlh.PutDate} {dlh.PutTime}", by: "{dlh.PutApplName}"}}
    attributes: {qos: 1}
"""


def test_a_mapping_from_the_dead_letter_queue(tmp_path: Path) -> None:
    """It has access to reason, destination and time. Messages that it cannot map are set aside, and can be retried."""
    with (
        at_work(BridgeProcess(tmp_path / "data", config=NOTICES)) as bridge,
        RawClient.connected(bridge.port, "operator") as operator,
    ):
        operator.subscribe(("ops/#", 1))
        bridge.mq("put", "SYSTEM.DEAD.LETTER.QUEUE", "without an MQDLH")
        bridge.wait_for_depth(SET_ASIDE_QUEUE, 1)
        operator.publish("nowhere", b"lost", 1)
        notice = operator.take()
        assert notice.topic == "ops/MQRC_UNKNOWN_OBJECT_NAME/NOWHERE"
        fields = json.loads(notice.payload)
        assert (fields["text"], fields["by"]) == ("lost", "nowhere")
        assert re.fullmatch(r"20\d{6} \d{8}", fields["at"])
        (aside,) = [json.loads(line) for line in dlq(bridge, "list", "--set-aside", "--json").stdout.splitlines()]
        assert (aside["destination"], aside["put_by"]) == ("SYSTEM.DEAD.LETTER.QUEUE", "notices")
        assert "dead letters that a mapping could not process" in Administrator(bridge).run("status").stdout
        result = dlq(bridge, "retry", "--set-aside", "--all")
        assert "retried 1 message: 0 delivered, 1 returned" in result.stdout
        assert "returned to the queue of messages set aside" in result.stderr
        result = dlq(bridge, "delete", "--set-aside", "--all", "--yes")
        assert result.stdout.endswith("deleted 1 message\n")


def dlq(bridge: BridgeProcess, *words: str) -> Result:
    return Administrator(bridge).run("dlq", *words)


def letters(bridge: BridgeProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for line in dlq(bridge, "list", "--json").stdout.splitlines()]


def test_a_message_that_could_not_be_put_is_mapped_again(bridge: BridgeProcess) -> None:
    """Other subscribers of the topic do not get the publication twice."""
    with RawClient.connected(bridge.port, "shopper") as shopper, RawClient.connected(bridge.port, "watcher") as watcher:
        watcher.subscribe(("shop/#", 1))
        shopper.publish("shop/7/orders", b"from a topic", 1)
        assert watcher.take().payload == b"from a topic"
        bridge.mq("put", "SOURCE", "from a queue", "--persistent")
        bridge.wait_for_depth(DEAD_LETTERS, 2)
        dead_letters = {letter["put_by"]: letter for letter in letters(bridge)}
        assert (dead_letters["from-topic"]["destination"], dead_letters["from-topic"]["topic"]) == (
            "LATER",
            "shop/7/orders",
        )
        assert dead_letters["from-topic"]["reason_name"] == "MQRC_UNKNOWN_OBJECT_NAME"
        assert (dead_letters["from-queue"]["destination"], dead_letters["from-queue"]["size"]) == (
            "SOURCE",
            len("from a queue"),
        )

        bridge.mqsc("DEFINE QLOCAL(LATER)\nDEFINE QLOCAL(ELSEWHERE)")
        before = {letter["put_by"]: letter for letter in letters(bridge)}
        result = dlq(bridge, "retry", "--bound-for", "SOURCE")  # the mapping rejects it again
        assert result.exit_code == 1 and "retried 1 message: 0 delivered, 1 returned" in result.stdout, result.stderr
        assert "from mapping from-queue: MQRC_" in result.stderr
        after = {letter["put_by"]: letter for letter in letters(bridge)}
        assert after["from-queue"]["dead_lettered"] == before["from-queue"]["dead_lettered"]
        bridge.wait_for_depth(DEAD_LETTERS, 2)
        result = dlq(bridge, "retry", "--bound-for", "SOURCE", "--to", "ELSEWHERE")
        assert result.exit_code == 0, result.stderr
        assert bridge.mq("get", "ELSEWHERE") == "from a queue\n"
        result = dlq(bridge, "retry", "--all", "--json")
        assert result.exit_code == 0, result.stderr
        (retried,) = [json.loads(line) for line in result.stdout.splitlines()]
        assert (retried["outcome"], retried["destination"]) == ("delivered", "LATER by mapping from-topic")
        bridge.wait_for_depth("LATER", 1)
        assert [message["body"] for message in bridge.messages("LATER")] == ["from a topic"]
        assert letters(bridge) == []
        shopper.publish("shop/8/orders", b"the next", 1)
        assert watcher.take().payload == b"the next"  # and not the one before once more


def test_a_message_for_a_client_is_retried_after_the_client_has_connected(bridge: BridgeProcess) -> None:
    """Without a session, the message returns to the dead-letter queue."""
    bridge.mq("put", "alarms/7", "wake up", "--to", "sleeper", "--persistent")
    bridge.wait_for_depth(DEAD_LETTERS, 1)
    (letter,) = letters(bridge)
    assert (letter["reason_name"], letter["destination_queue_manager"]) == ("MQRC_UNKNOWN_REMOTE_Q_MGR", "sleeper")
    result = dlq(bridge, "retry", "--all")
    assert result.exit_code == 1 and "1 returned" in result.stdout and "MQRC_UNKNOWN_REMOTE_Q_MGR" in result.stderr
    bridge.wait_for_depth(DEAD_LETTERS, 1)
    with RawClient(bridge.port, "sleeper", clean=False) as sleeper:
        assert sleeper.connect().return_code == 0
        result = dlq(bridge, "retry", "--client", "sleeper")
        assert result.exit_code == 0, result.stderr
        publication = sleeper.take()
        assert (publication.topic, publication.payload) == ("alarms/7", b"wake up")
    assert letters(bridge) == []


CHOSEN = """
control_socket: {0}
mappings:
  chosen: {{from: {{mqtt: "chosen/{{queue}}"}}, to: {{queue: "{{queue}}"}}{1}}}
"""


def test_a_name_that_a_message_may_choose_after_a_reload(tmp_path: Path) -> None:
    """The dead letter reaches the queue after the mapping allows its name."""
    control = tmp_path / "control"
    with (
        at_work(BridgeProcess(tmp_path / "data", config=CHOSEN.format(control, ""))) as bridge,
        RawClient.connected(bridge.port, "device") as device,
    ):
        bridge.mqsc("DEFINE QLOCAL(SYSTEM.PLANT)\nDEFINE QLOCAL(PLANT)")
        device.publish("chosen/SYSTEM.PLANT", b"chosen", 1)
        device.publish("chosen/PLANT", b"plain", 1)
        bridge.wait_for_depth("PLANT", 1)
        until(lambda: letters(bridge))  # CURDEPTH also counts uncommitted messages
        (letter,) = letters(bridge)
        assert (letter["reason_name"], letter["put_by"]) == ("MQRC_NOT_AUTHORIZED", "chosen")
        (status,) = Administrator(bridge).json("mapping", "list")
        assert "'SYSTEM.PLANT' is a SYSTEM object, and the message chose it" in status["last_error"]
        assert 'hint: allow: ["SYSTEM.PLANT"] in the mapping' in status["last_error"]
        result = dlq(bridge, "retry", "--all")
        assert result.exit_code == 1 and "1 returned" in result.stdout
        assert bridge.config is not None
        head = bridge.config.read_text().split("control_socket:")[0].rstrip("\n")
        allowed = CHOSEN.format(control, ', allow: ["SYSTEM.PLANT"]')
        bridge.config.write_text(head + allowed)
        assert Administrator(bridge).does("reload") == "mapping chosen changed\n"
        result = dlq(bridge, "retry", "--all")
        assert result.exit_code == 0, result.stderr
        assert "retried 1 message: 1 delivered" in result.stdout
        assert [message["body"] for message in bridge.messages("SYSTEM.PLANT")] == ["chosen"]
        assert letters(bridge) == []


def test_a_retry_in_the_console_while_the_mapping_is_blocked(tmp_path: Path) -> None:
    """The page reports that the result is unknown, and the message follows when the mapping continues."""
    script = tmp_path / "objects.mqsc"
    script.write_text("DEFINE QLOCAL(FULL) MAXDEPTH(1)\n")
    config = (
        f"admin: {{port: 0}}\nqueue_manager: {{scripts: [{script}]}}\n"
        'mappings: {orders: {from: {mqtt: "orders/{queue}", link: local}, to: {queue: "{queue}"}, order: strict}}\n'
    )
    with at_work(BridgeProcess(tmp_path / "data", config=config)) as bridge:
        administrator, console = Administrator(bridge), Console(bridge).log_in()
        with RawClient.connected(bridge.port, "shop") as shop:
            for queue in ("LATER", "FULL", "FULL"):
                shop.publish(f"orders/{queue}", queue.encode(), 1)
        until(lambda: administrator.json("mapping", "list")[0]["state"] == "retrying", lambda: bridge.log)
        bridge.wait_for_depth(DEAD_LETTERS, 1)
        bridge.mqsc("DEFINE QLOCAL(LATER)")
        page = console.change("/dead-letters/retry", all="1")
        assert "Retried 1 message" in page.text and "its outcome is unknown after" in page.text, page.text
        bridge.mqsc("ALTER QLOCAL(FULL) MAXDEPTH(2)")
        bridge.wait_for_depth("LATER", 1)
        assert bridge.messages(DEAD_LETTERS) == []
