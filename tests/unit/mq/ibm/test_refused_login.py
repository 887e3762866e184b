"""Log messages if the queue manager rejects the password of an MQTT client's user."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.mq.embedded.mqsc.commands import prepare, run_script
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.ibm.refused_login import RefusedLogins
from bridge.mq.mqi import CommandResponse, Connection, MQError
from bridge.wire import cmqc
from tests.ibm_standin.mqi.connection import StandInConnection


class _Answering:
    """A connection to a queue manager that answers DISPLAY AUTHREC with one message."""

    def __init__(self, message: str) -> None:
        self._message = message

    def command(self, text: str) -> list[CommandResponse]:
        return [CommandResponse(command=text, message=self._message, ok=self._message[7] == "I")]

    def disconnect(self) -> None:
        pass


@pytest.mark.parametrize(
    ("user", "reason"),
    [
        ("alice", "the password is wrong, or a CHLAUTH record rejects the user; AMQERR01.LOG"),
        (
            "bob",
            "the user has no CONNECT authority for the queue manager; hint: SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('bob')",
        ),
        ("o'neil", "the password is wrong, or a CHLAUTH record rejects the user"),
        ("thirteen-long", "the name is longer than an MQ user"),
        ("a\nEND", "the password is wrong, the user lacks CONNECT authority, or a CHLAUTH record rejects it"),
    ],
)
def test_the_authority_to_connect_decides_about_the_log_message(user: str, reason: str, tmp_path: Path) -> None:
    manager = QueueManager("MQB1", tmp_path)
    prepare(manager)
    for name, words in (("alice", "CONNECT,INQ"), ("bob", "INQ"), ("o''neil", "CONNECT")):
        run_script(manager, f"SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('{name}') AUTHADD({words})", "test")
    explanation = RefusedLogins(lambda: StandInConnection(manager)).explain(user)
    assert explanation.startswith(reason)
    manager.close()


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("AMQ8871E: Entity, principal or group not known.", "the queue manager does not know the user"),
        ("AMQ8147E: IBM MQ object carol not found.", "the user has no CONNECT authority"),
        ("AMQ8864I: Display authority record details.", "the user has no CONNECT authority"),
        ("AMQ8135E: Not authorized.", "the password is wrong, the user lacks CONNECT authority, or"),
    ],
)
def test_answers_without_a_record(message: str, reason: str) -> None:
    connection: Connection = _Answering(message)  # type: ignore[assignment]
    assert RefusedLogins(lambda: connection).explain("carol").startswith(reason)


def test_repeated_failures_of_a_user_cost_one_inquiry_and_a_lost_queue_manager_is_not_an_error() -> None:
    inquiries = []

    def connect() -> Connection:
        inquiries.append(1)
        raise MQError(cmqc.MQRC_CONNECTION_BROKEN)

    logins = RefusedLogins(connect)
    assert {logins.explain("alice") for _ in range(3)} == {logins.explain("alice")}
    assert logins.explain("alice").startswith("the password is wrong, the user lacks CONNECT authority")
    assert len(inquiries) == 1
