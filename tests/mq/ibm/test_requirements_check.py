"""What a queue manager lacks, told in one sentence each: one row for each object, attribute and authority."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.config.queues import COMMAND_QUEUE
from bridge.mq import administration
from bridge.mq.administration import MODEL_QUEUE
from bridge.mq.embedded.mqsc.script import prepare
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.server.connection import EmbeddedConnection
from bridge.mq.errors import MQError
from bridge.mq.ibm.requirements import MappingQueue
from bridge.mq.ibm.requirements_check import Missing, Requirements, missing, refused_connection
from bridge.mq.mqi import MQOD
from bridge.wire import cmqc, cmqcfc
from tests.mq.ibm.guarded_connection import GuardedConnection

XMITQ, STATE, DLQ = "SYSTEM.MQTT.TRANSMIT.QUEUE", "SYSTEM.MQTT.PERSISTENT.STATE", "SYSTEM.DEAD.LETTER.QUEUE"
DEFINE_XMITQ = f"DEFINE QLOCAL('{XMITQ}') USAGE(XMITQ) MAXDEPTH(10000000) MAXMSGL(104857600)"
DEFINE_STATE = f"DEFINE QLOCAL('{STATE}') USAGE(NORMAL) SHARE MAXDEPTH(10000000) MAXMSGL(104857600)"
DEFINE_DLQ = f"DEFINE QLOCAL('{DLQ}') USAGE(NORMAL) MAXDEPTH(10000000) MAXMSGL(104857600)"
SERVER = "ALTER QMGR SCMDSERV(QMGR), and until the queue manager starts again, the shell's strmqcsv"
NO_DEFXMITQ = (
    f"the queue manager's default transmission queue (DEFXMITQ) is blank, and has to be {XMITQ}, by which messages"
    f" reach MQTT clients: ALTER QMGR DEFXMITQ('{XMITQ}')"
)


@pytest.fixture
def connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GuardedConnection]:
    monkeypatch.setattr(administration, "REPLY_WAIT", 200)
    queue_manager = QueueManager("MQB1", tmp_path)
    prepare(queue_manager)
    connection = GuardedConnection(queue_manager)
    yield connection
    connection.disconnect()
    queue_manager.close()


def run(connection: GuardedConnection, *commands: str) -> None:
    for command in commands:
        (response,) = connection.command(command)
        assert response.ok, response.message


def told(connection: GuardedConnection, **requirements: Any) -> list[str]:
    return [str(one) for one in missing(connection, Requirements(**requirements)) if one.needed]


def test_nothing_is_missing_where_the_bridges_script_was_run(connection: GuardedConnection) -> None:
    assert missing(connection, Requirements(dead_letter_queue=DLQ, identities=("", "sensor"))) == []


def test_a_look_leaves_nothing_behind(connection: GuardedConnection) -> None:
    def shown(command: str) -> list[dict[str, Any]]:
        return connection.command(command)[0].objects

    before = shown("DISPLAY QSTATUS(*)"), shown("DISPLAY QUEUE(*)")
    missing(connection, Requirements(identities=("sensor",)))
    assert (shown("DISPLAY QSTATUS(*)"), shown("DISPLAY QUEUE(*)")) == before
    assert shown("DISPLAY SUB(*)") == []


@pytest.mark.parametrize(
    ("commands", "sentences"),
    [
        (
            ["ALTER QMGR DEFXMITQ(' ')", f"DELETE QLOCAL({XMITQ})"],
            [NO_DEFXMITQ, f"transmission queue {XMITQ} is not defined: {DEFINE_XMITQ}"],
        ),
        (["ALTER QMGR DEFXMITQ(' ')"], [NO_DEFXMITQ]),
        (
            ["DEFINE QLOCAL(OTHER) USAGE(XMITQ)", "ALTER QMGR DEFXMITQ(OTHER)"],
            [NO_DEFXMITQ.replace("is blank", "is OTHER")],
        ),
        (
            [f"ALTER QLOCAL({XMITQ}) USAGE(NORMAL)"],
            [f"transmission queue {XMITQ} has not USAGE(XMITQ): ALTER QLOCAL('{XMITQ}') USAGE(XMITQ)"],
        ),
        (
            [f"ALTER QLOCAL({XMITQ}) GET(DISABLED) PUT(DISABLED)"],
            [
                f"transmission queue {XMITQ} has not PUT(ENABLED): ALTER QLOCAL('{XMITQ}') PUT(ENABLED)",
                f"transmission queue {XMITQ} has not GET(ENABLED): ALTER QLOCAL('{XMITQ}') GET(ENABLED)",
            ],
        ),
        (
            [f"ALTER QLOCAL({STATE}) NOSHARE"],
            [f"state queue {STATE} has not SHARE: ALTER QLOCAL('{STATE}') SHARE"],
        ),
        (
            [f"DELETE QLOCAL({DLQ})", f"DEFINE QALIAS({DLQ}) TARGET({STATE})"],
            [
                f"dead-letter queue {DLQ} is an alias queue, and has to be a local one:"
                f" DELETE QALIAS('{DLQ}'), then {DEFINE_DLQ}"
            ],
        ),
        (
            [f"DELETE QLOCAL({DLQ})", f"DEFINE QREMOTE({DLQ}) RNAME(X) RQMNAME(Y)"],
            [
                f"dead-letter queue {DLQ} is a remote queue, and has to be a local one:"
                f" DELETE QREMOTE('{DLQ}'), then {DEFINE_DLQ}"
            ],
        ),
        (
            ["ALTER QMGR DEADQ(' ')"],
            [f"the queue manager has no dead-letter queue (DEADQ): ALTER QMGR DEADQ('{DLQ}')"],
        ),
        ([f"DELETE QLOCAL({DLQ})"], [f"dead-letter queue {DLQ} is not defined: {DEFINE_DLQ}"]),
        (
            ["ALTER QMGR DEADQ(OTHER)"],
            [f"dead-letter queue OTHER is not defined: {DEFINE_DLQ.replace(DLQ, 'OTHER')}"],
        ),
        (
            ["ALTER QMGR MAXHANDS(100) MAXUMSGS(1000)"],
            [
                "the queue manager has MAXHANDS(100), and the bridge needs 256: ALTER QMGR MAXHANDS(256)",
                "the queue manager has MAXUMSGS(1000), and the bridge needs 1500: ALTER QMGR MAXUMSGS(1500)",
            ],
        ),
    ],
    ids=lambda value: value[0][:50] if isinstance(value[0], str) and "(" in value[0][:40] else "",
)
def test_objects_and_attributes(connection: GuardedConnection, commands: list[str], sentences: list[str]) -> None:
    run(connection, *commands)
    assert told(connection) == sentences


def test_the_state_queue_is_needed(connection: GuardedConnection) -> None:
    connection.reasons = {STATE: cmqc.MQRC_UNKNOWN_OBJECT_NAME}  # the embedded queue manager does not let it go
    assert told(connection) == [f"state queue {STATE} is not defined: {DEFINE_STATE}"]
    run(connection, DEFINE_STATE.replace(STATE, "ANOTHER"))


def test_what_the_sentences_say_mends_it(connection: GuardedConnection) -> None:
    run(
        connection,
        "ALTER QMGR DEFXMITQ(' ') DEADQ(' ') MAXHANDS(100) MAXUMSGS(10)",
        f"DELETE QLOCAL({XMITQ})",
        f"ALTER QLOCAL({STATE}) NOSHARE PUT(DISABLED)",
        f"DELETE QLOCAL({DLQ})",
    )
    found = missing(connection, Requirements(dead_letter_queue=DLQ))
    assert len(found) == 8
    run(connection, *(one.remedy for one in found))
    assert missing(connection, Requirements(dead_letter_queue=DLQ)) == []


def test_the_bridges_own_dead_letter_queue_is_looked_at_too(connection: GuardedConnection) -> None:
    (sentence,) = told(connection, dead_letter_queue="OURS")
    assert sentence == f"dead-letter queue OURS is not defined: {DEFINE_DLQ.replace(DLQ, 'OURS')}"


def test_a_bridge_at_work_is_no_shortcoming(connection: GuardedConnection) -> None:
    other = EmbeddedConnection(connection._queue_manager)
    other.open(MQOD(ObjectName=XMITQ), cmqc.MQOO_INPUT_EXCLUSIVE)
    assert told(connection) == []
    other.disconnect()


@pytest.mark.parametrize(
    ("denied", "sentences"),
    [
        (
            {("", XMITQ, "GET"), ("", XMITQ, "BROWSE"), ("", XMITQ, "INQ"), ("", XMITQ, "PUT")},
            [
                f"user ours lacks authority for transmission queue {XMITQ} (INQ,GET,BROWSE,PUT): SET AUTHREC"
                f" PROFILE('{XMITQ}') OBJTYPE(QUEUE) PRINCIPAL('ours') AUTHADD(INQ,GET,BROWSE,PUT)"
            ],
        ),
        (
            {("", STATE, "PUT")},
            [
                f"user ours lacks authority for state queue {STATE} (PUT): SET AUTHREC"
                f" PROFILE('{STATE}') OBJTYPE(QUEUE) PRINCIPAL('ours') AUTHADD(PUT)"
            ],
        ),
        (
            {("", DLQ, "PUT")},
            [
                f"user ours lacks authority for dead-letter queue {DLQ} (PUT): SET AUTHREC"
                f" PROFILE('{DLQ}') OBJTYPE(QUEUE) PRINCIPAL('ours') AUTHADD(PUT)"
            ],
        ),
        (
            {("", "QMGR", "INQ")},
            [
                "user ours may not inquire about the queue manager (INQ):"
                " SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('ours') AUTHADD(INQ)"
            ],
        ),
        (
            {("", "QMGR", "ALTUSR")},
            [
                "user ours may not open objects in the name of MQTT clients (ALTUSR):"
                " SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('ours') AUTHADD(ALTUSR)"
            ],
        ),
        (
            {("", COMMAND_QUEUE, "PUT"), ("", MODEL_QUEUE, "GET")},
            [
                f"user ours lacks authority for queue {COMMAND_QUEUE} (PUT): SET AUTHREC"
                f" PROFILE('{COMMAND_QUEUE}') OBJTYPE(QUEUE) PRINCIPAL('ours') AUTHADD(PUT)",
                f"user ours lacks authority for queue {MODEL_QUEUE} (GET,DSP): SET AUTHREC"
                f" PROFILE('{MODEL_QUEUE}') OBJTYPE(QUEUE) PRINCIPAL('ours') AUTHADD(GET,DSP)",
            ],
        ),
    ],
    ids=["transmission", "state", "dead letter", "inquire", "alternate user", "commands"],
)
def test_authorities(connection: GuardedConnection, denied: set[tuple[str, str, str]], sentences: list[str]) -> None:
    connection.denied = denied
    assert told(connection, user="ours") == sentences
    for command in (one.partition(": ")[2] for one in sentences):
        run(connection, command)


@pytest.mark.parametrize(
    ("answers", "sentences"),
    [
        ({"PING": None}, [f"the command server does not answer PING QMGR: {SERVER}"]),
        (
            {"PING": cmqc.MQRC_NOT_AUTHORIZED},
            ["user ours may not run PING QMGR (DSP): SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('ours') AUTHADD(DSP)"],
        ),
        (
            {"INQUIRE": cmqc.MQRC_NOT_AUTHORIZED, "CLEAR": cmqc.MQRC_NOT_AUTHORIZED},
            [
                "user ours may not run DISPLAY SUB (DSP): SET AUTHREC PROFILE('SYSTEM.BASE.TOPIC')"
                " OBJTYPE(TOPIC) PRINCIPAL('ours') AUTHADD(DSP)",
                "user ours may not run CLEAR TOPICSTR (CLR): SET AUTHREC PROFILE('SYSTEM.BASE.TOPIC')"
                " OBJTYPE(TOPIC) PRINCIPAL('ours') AUTHADD(CLR)",
            ],
        ),
        ({"INQUIRE": cmqc.MQRC_NO_SUBSCRIPTION}, []),
        ({"INQUIRE": cmqcfc.MQRCCF_NONE_FOUND}, []),
        (
            {"CLEAR": cmqcfc.MQRCCF_COMMAND_FAILED},
            ["the command server refuses CLEAR TOPICSTR: MQRCCF_COMMAND_FAILED (3008): PCF command 184"],
        ),
    ],
    ids=str,
)
def test_command_server(connection: GuardedConnection, answers: dict[str, int | None], sentences: list[str]) -> None:
    connection.answers = answers
    assert told(connection, user="ours") == sentences


@pytest.mark.parametrize(
    ("name", "definition"),
    [(COMMAND_QUEUE, f"DEFINE QLOCAL('{COMMAND_QUEUE}')"), (MODEL_QUEUE, f"DEFINE QMODEL('{MODEL_QUEUE}')")],
)
def test_queues_of_the_command_server(connection: GuardedConnection, name: str, definition: str) -> None:
    connection.reasons = {name: cmqc.MQRC_UNKNOWN_OBJECT_NAME}
    assert told(connection) == [f"queue {name}, by which commands are run, is not defined: {definition}"]


@pytest.mark.parametrize(
    ("denied", "identities", "notes"),
    [
        (
            {("sensor", "TOPIC", "PUB"), ("sensor", "TOPIC", "SUB")},
            ("sensor",),
            [
                "user sensor, as whom clients act, lacks authority for SYSTEM.BASE.TOPIC (PUB,SUB), and needs it for the"
                " topics of its clients: SET AUTHREC PROFILE('SYSTEM.BASE.TOPIC') OBJTYPE(TOPIC)"
                " PRINCIPAL('sensor') AUTHADD(PUB,SUB)"
            ],
        ),
        (
            {("", "TOPIC", "SUB")},
            ("sensor", ""),
            [
                "user ours, as whom clients act, lacks authority for SYSTEM.BASE.TOPIC (SUB), and needs it for the"
                " topics of its clients: SET AUTHREC PROFILE('SYSTEM.BASE.TOPIC') OBJTYPE(TOPIC)"
                " PRINCIPAL('ours') AUTHADD(SUB)"
            ],
        ),
        (
            {("sensor", XMITQ, "PUT")},
            ("sensor", "sensor"),
            [
                f"user sensor, as whom clients act, may not put to {XMITQ} (PUT), and so not subscribe: SET AUTHREC"
                f" PROFILE('{XMITQ}') OBJTYPE(QUEUE) PRINCIPAL('sensor') AUTHADD(PUT)"
            ],
        ),
        ({("other", "TOPIC", "PUB")}, ("sensor",), []),
    ],
    ids=["topics", "the bridge itself", "transmission queue", "somebody else"],
)
def test_what_clients_lack_is_a_note(
    connection: GuardedConnection, denied: set[tuple[str, str, str]], identities: tuple[str, ...], notes: list[str]
) -> None:
    connection.denied = denied
    found = missing(connection, Requirements(user="ours", identities=identities))
    assert [(str(one), one.needed) for one in found] == [(note, False) for note in notes]


@pytest.mark.parametrize("where", ["QMGR", "TOPIC"])
def test_the_authority_to_say_who_publishes(connection: GuardedConnection, where: str) -> None:
    """Without it each publication of a client would be refused; it is told once."""
    connection.denied = {("", where, "SETID")}
    (sentence,) = told(connection, user="ours", identities=("", "sensor"))
    assert sentence == (
        "user ours may not put the users of MQTT clients into messages (SETID), as publications have them: SET AUTHREC"
        " OBJTYPE(QMGR) PRINCIPAL('ours') AUTHADD(SETID), and SET AUTHREC PROFILE('SYSTEM.BASE.TOPIC') OBJTYPE(TOPIC)"
        " PRINCIPAL('ours') AUTHADD(SETID)"
    )


@pytest.mark.parametrize(
    ("taken_from", "denied", "authorities"),
    [(True, "INQ", "INQ"), (True, "GET", "GET"), (True, "INQ GET", "INQ,GET"), (True, "PUT", ""), (False, "PUT", "PUT"),
     (False, "INQ GET", "")],
)  # fmt: skip
def test_authorities_for_queues_of_mappings(
    connection: GuardedConnection, taken_from: bool, denied: str, authorities: str
) -> None:
    """All that a mapping needs of a queue is told together."""
    run(connection, "DEFINE QLOCAL(Q)")
    connection.denied = {("", "Q", one) for one in denied.split()}
    does = "takes from" if taken_from else "puts to"
    sentence = (
        f"user ours lacks authority for queue Q, which mapping m {does} ({authorities}): SET AUTHREC PROFILE('Q')"
        f" OBJTYPE(QUEUE) PRINCIPAL('ours') AUTHADD({authorities})"
    )
    found = told(connection, user="ours", mapping_queues=(MappingQueue("m", "Q", taken_from),))
    assert found == ([sentence] if authorities else [])


@pytest.mark.parametrize("where", ["QMGR", XMITQ, STATE, DLQ, COMMAND_QUEUE, MODEL_QUEUE])
def test_a_lost_connection_is_no_finding(connection: GuardedConnection, where: str) -> None:
    connection.reasons = {where: cmqc.MQRC_CONNECTION_BROKEN}
    with pytest.raises(MQError, match="MQRC_CONNECTION_BROKEN"):
        missing(connection, Requirements())


def test_another_error_is_told_as_it_is(connection: GuardedConnection) -> None:
    connection.reasons = {DLQ: cmqc.MQRC_OBJECT_DAMAGED}
    assert told(connection) == [f"dead-letter queue {DLQ} cannot be opened: MQRC_OBJECT_DAMAGED (2101)"]


def test_a_connection_that_is_refused() -> None:
    refused = refused_connection(MQError(cmqc.MQRC_NOT_AUTHORIZED, "connect to it"), "QM1", "ours")
    assert str(refused) == (
        "no connection to queue manager QM1: MQRC_NOT_AUTHORIZED (2035): connect to it: SET AUTHREC OBJTYPE(QMGR)"
        " PRINCIPAL('ours') AUTHADD(CONNECT,INQ) (and see CHLAUTH, CONNAUTH and the password)"
    )
    assert refused_connection(MQError(cmqc.MQRC_Q_MGR_NAME_ERROR), "QM1", "ours") == Missing(
        "no connection to queue manager QM1: MQRC_Q_MGR_NAME_ERROR (2058)"
    )
