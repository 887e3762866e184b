"""Findings of `check --connect` about objects and attributes, and its reaction to errors. test_requirements.py has
authorities.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.config.queue_manager import COMMAND_QUEUE
from bridge.config.queue_manager import SHARE_MEMBERS_QUEUE as MEMBERS
from bridge.mq import administration
from bridge.mq.administration import MODEL_QUEUE
from bridge.mq.embedded.mqsc.commands import prepare
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.ibm.requirements import MappingQueue, setmqaut
from bridge.mq.ibm.requirements_check import Missing, Requirements, missing, refused_connection
from bridge.mq.mqi import MQOD, MQSD, MQError
from bridge.wire import cmqc, cmqcfc
from tests.helpers.guarded_connection import GuardedConnection
from tests.ibm_standin.mqi.connection import StandInConnection
from tests.ibm_standin.pcf.command_server import CommandServer

XMITQ, STATE, DLQ = "SYSTEM.MQTT.TRANSMIT.QUEUE", "SYSTEM.MQTT.PERSISTENT.STATE", "SYSTEM.DEAD.LETTER.QUEUE"
LONG = "MAXDEPTH(10000000) MAXMSGL(104857600)"
DEFINE_XMITQ = f"DEFINE QLOCAL('{XMITQ}') USAGE(XMITQ) SHARE {LONG} MONQ(LOW)"
DEFINE_STATE = f"DEFINE QLOCAL('{STATE}') USAGE(NORMAL) SHARE DEFSOPT(SHARED) {LONG} DEFPSIST(YES)"
DEFINE_DLQ = f"DEFINE QLOCAL('{DLQ}') USAGE(NORMAL) {LONG} DEFPSIST(YES) MONQ(LOW)"
SERVER = "ALTER QMGR SCMDSERV(QMGR), and until the queue manager restarts, the control command strmqcsv"
NO_DEFXMITQ = (
    f"the queue manager's default transmission queue (DEFXMITQ) is blank, and has to be {XMITQ}, through which"
    f" messages reach MQTT clients: ALTER QMGR DEFXMITQ('{XMITQ}')"
)


ROUTES_ELSEWHERE = (
    f"the queue manager's default transmission queue (DEFXMITQ) is OTHER, so messages for MQTT clients do not reach {XMITQ};"
    " a changed DEFXMITQ would divert the messages that OTHER routes, so define a queue manager alias for each client"
    " (mqbridge mqsc-script --aliases) and this one, which the bridge tests"
)
ALIAS = f"DEFINE QREMOTE('mqbridge.check') RQMNAME('mqbridge.check') XMITQ('{XMITQ}')"
DISPLAY_ALIAS = "SET AUTHREC PROFILE('mqbridge.check') OBJTYPE(QUEUE) PRINCIPAL('mqbridge') AUTHADD(DSP)"


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[GuardedConnection]:
    queue_manager = QueueManager("MQB1", tmp_path)
    prepare(queue_manager)
    CommandServer(queue_manager).start()
    connection = GuardedConnection(queue_manager)
    yield connection
    connection.disconnect()
    queue_manager.close()


def run(connection: GuardedConnection, *commands: str) -> None:
    for command in commands:
        (response,) = connection.command(command)
        assert response.ok, response.message


def complaints(connection: GuardedConnection, **requirements: Any) -> list[str]:
    return [str(shortcoming) for shortcoming in missing(connection, Requirements(**requirements)) if shortcoming.needed]


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
            [f"{ROUTES_ELSEWHERE}: {ALIAS}, and {DISPLAY_ALIAS}"],
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
        ([f"ALTER QLOCAL({STATE}) NOSHARE"], [f"state queue {STATE} has not SHARE: ALTER QLOCAL('{STATE}') SHARE"]),
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
        (["ALTER QMGR DEADQ(' ')"], [f"the queue manager has no dead-letter queue (DEADQ): ALTER QMGR DEADQ('{DLQ}')"]),
        ([f"DELETE QLOCAL({DLQ})"], [f"dead-letter queue {DLQ} is not defined: {DEFINE_DLQ}"]),
        (["ALTER QMGR DEADQ(OTHER)"], [f"dead-letter queue OTHER is not defined: {DEFINE_DLQ.replace(DLQ, 'OTHER')}"]),
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
    assert complaints(connection) == sentences


@pytest.mark.parametrize("default", ["OTHER", "' '"])
def test_queue_manager_aliases_replace_the_default_transmission_queue(
    connection: GuardedConnection, default: str
) -> None:
    """The alias of the probe shows that the administrator routes messages to clients by aliases."""
    run(connection, "DEFINE QLOCAL(OTHER) USAGE(XMITQ)", f"ALTER QMGR DEFXMITQ({default})")
    run(connection, ALIAS.replace(XMITQ, "OTHER"))
    assert len(complaints(connection)) == 1
    run(connection, f"{ALIAS.replace('DEFINE', 'ALTER')}")
    assert complaints(connection) == []


def test_queues_of_mappings_elsewhere_are_reached_through_the_default_transmission_queue(
    connection: GuardedConnection,
) -> None:
    run(connection, "DEFINE QLOCAL(OTHER) USAGE(XMITQ)", "ALTER QMGR DEFXMITQ(OTHER)", ALIAS)
    mapping = MappingQueue("m", "Q", ("PUT",), queue_manager="QM9", transmission_queue="QM9")
    connection.reasons = {"Q": cmqc.MQRC_NOT_AUTHORIZED}
    (sentence,) = complaints(connection, mapping_queues=(mapping,))
    assert sentence.startswith("user mqbridge lacks authority PUT for queue OTHER, needed to put messages (mapping m)")


def test_passwords_that_are_not_checked(connection: GuardedConnection) -> None:
    """With CONNAUTH blank, IBM MQ accepts any password, and so would a channel that asks the queue manager."""
    connection.blank = {cmqc.MQCA_CONN_AUTH}
    assert complaints(connection) == []
    (sentence,) = complaints(connection, password_channels=("DEVICES",))
    assert sentence.startswith(
        "the queue manager checks no passwords (CONNAUTH is blank), so clients of channel DEVICES"
    )
    assert "ALTER QMGR CONNAUTH('SYSTEM.DEFAULT.AUTHINFO.IDPWOS')" in sentence


@pytest.mark.parametrize(
    ("name", "reason", "sentence"),
    [
        # The embedded queue manager does not allow this.
        (STATE, cmqc.MQRC_UNKNOWN_OBJECT_NAME, f"state queue {STATE} is not defined: {DEFINE_STATE}"),
        (
            COMMAND_QUEUE,
            cmqc.MQRC_UNKNOWN_OBJECT_NAME,
            f"queue {COMMAND_QUEUE} is not defined, and is needed to run commands: DEFINE QLOCAL('{COMMAND_QUEUE}')",
        ),
        (DLQ, cmqc.MQRC_OBJECT_DAMAGED, f"dead-letter queue {DLQ} cannot be opened: MQRC_OBJECT_DAMAGED (2101)"),
    ],
)
def test_queues_that_cannot_be_opened(connection: GuardedConnection, name: str, reason: int, sentence: str) -> None:
    connection.reasons = {name: reason}
    assert complaints(connection) == [sentence]


def test_the_printed_remedies_work(connection: GuardedConnection) -> None:
    run(
        connection,
        "ALTER QMGR DEFXMITQ(' ') DEADQ(' ') MAXHANDS(100) MAXUMSGS(10)",
        f"DELETE QLOCAL({XMITQ})",
        f"ALTER QLOCAL({STATE}) NOSHARE PUT(DISABLED)",
        f"DELETE QLOCAL({DLQ})",
    )
    shortcomings = missing(connection, Requirements(dead_letter_queue=DLQ))
    assert len(shortcomings) == 8
    run(connection, *(shortcoming.remedy for shortcoming in shortcomings))
    assert missing(connection, Requirements(dead_letter_queue=DLQ)) == []


def test_the_dead_letter_queue_of_the_bridge_is_checked_too(connection: GuardedConnection) -> None:
    (sentence,) = complaints(connection, dead_letter_queue="OURS")
    assert sentence == f"dead-letter queue OURS is not defined: {DEFINE_DLQ.replace(DLQ, 'OURS')}"


def test_a_running_bridge_is_not_a_finding(connection: GuardedConnection) -> None:
    other = StandInConnection(connection._queue_manager)
    other.open(MQOD(ObjectName=XMITQ), cmqc.MQOO_INPUT_EXCLUSIVE)
    assert complaints(connection) == []
    other.disconnect()


@pytest.mark.parametrize(
    ("answers", "sentences"),
    [
        ({"PING": None}, [f"the command server does not answer, which is needed to run commands: {SERVER}"]),
        ({"INQUIRE": cmqc.MQRC_NO_SUBSCRIPTION}, []),
        ({"INQUIRE": cmqcfc.MQRCCF_NONE_FOUND}, []),
        (
            {"CLEAR": cmqcfc.MQRCCF_COMMAND_FAILED},
            [
                "topic object SYSTEM.BASE.TOPIC cannot be used to clear retained publications: MQRCCF_COMMAND_FAILED (3008)"
            ],
        ),
    ],
    ids=str,
)
def test_command_server(
    connection: GuardedConnection,
    answers: dict[str, int | None],
    sentences: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if None in answers.values():
        monkeypatch.setattr(administration, "REPLY_WAIT", 200)
    connection.answers = answers
    assert complaints(connection, user="ours") == sentences


def test_the_model_of_reply_queues_is_a_note(connection: GuardedConnection) -> None:
    """Without it, the bridge uses IBM MQ's own model."""
    run(connection, f"ALTER QMODEL('{MODEL_QUEUE}') MAXDEPTH(5000)")
    (note,) = missing(connection, Requirements())
    assert not note.needed
    assert note.remedy == f"ALTER QMODEL('{MODEL_QUEUE}') MAXDEPTH(999999999)"
    run(connection, f"DELETE QMODEL('{MODEL_QUEUE}')")
    (note,) = missing(connection, Requirements())
    assert not note.needed
    run(connection, note.remedy)
    assert missing(connection, Requirements()) == []


def test_the_queue_of_the_members_of_shared_subscriptions_is_a_note(connection: GuardedConnection) -> None:
    """A queue manager that was prepared for an earlier version does not have it."""
    notes = [lacking for lacking in missing(connection, Requirements(is_shard=True)) if MEMBERS in lacking.what]
    assert [(note.what, note.needed) for note in notes] == [(f"members queue {MEMBERS} is not defined", False)]
    assert not [
        lacking for lacking in missing(connection, Requirements(is_shard=True).to_start) if MEMBERS in lacking.what
    ]
    run(connection, notes[0].remedy)
    assert not [lacking for lacking in missing(connection, Requirements(is_shard=True)) if MEMBERS in lacking.what]


def test_a_queue_of_a_mapping_that_is_not_defined_is_reported_once(connection: GuardedConnection) -> None:
    (sentence,) = complaints(connection, mapping_queues=(MappingQueue("m", "Q", ("INQ", "GET"), exclusive=True),))
    assert sentence == (
        "queue Q is not defined, and is needed to inquire its attributes (mapping m): DEFINE QLOCAL('Q')"
    )


@pytest.mark.parametrize("transmission_queue", [None, "QM2"])
def test_a_queue_elsewhere_is_reached_through_its_transmission_queue(
    connection: GuardedConnection, transmission_queue: str | None
) -> None:
    if transmission_queue is not None:
        run(connection, f"DEFINE QLOCAL({transmission_queue}) USAGE(XMITQ)")
    queue = MappingQueue("m", "Q", ("PUT", "SETID"), queue_manager="QM2", transmission_queue="QM2")
    assert complaints(connection, mapping_queues=(queue,)) == []


def test_message_lengths_are_notes(connection: GuardedConnection) -> None:
    run(connection, "ALTER QMGR MAXMSGL(4194304)", "DEFINE QLOCAL(Q)", f"ALTER QLOCAL('{XMITQ}') MAXMSGL(4194304)")
    needs = Requirements(message_length=5_000_000, mapping_queues=(MappingQueue("m", "Q", ("PUT",)),))
    notes = missing(connection, needs)
    assert [(note.remedy, note.needed) for note in notes] == [
        ("ALTER QMGR MAXMSGL(104857600)", False),
        (f"ALTER QLOCAL('{XMITQ}') MAXMSGL(104857600)", False),
        ("ALTER QLOCAL('Q') MAXMSGL(104857600)", False),
    ]
    run(connection, *(note.remedy for note in notes))
    assert missing(connection, needs) == []


def test_the_length_limit_of_the_channel_is_found_by_a_backed_out_put(
    connection: GuardedConnection,
) -> None:
    run(connection, "ALTER QMGR MAXMSGL(104857600)")
    connection.max_message_length = 4_194_304
    assert missing(connection, Requirements(message_length=4_194_304)) == []
    (note,) = missing(connection, Requirements(message_length=4_194_305))
    assert note.remedy == "ALTER CHANNEL(name) CHLTYPE(SVRCONN) MAXMSGL(104857600)"
    (response,) = connection.command(f"DISPLAY QLOCAL('{XMITQ}') CURDEPTH")
    assert response.objects[0]["CURDEPTH"] == 0


def test_a_dry_run_that_fails_halfway_leaves_no_subscription(
    connection: GuardedConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribe = connection.subscribe

    def fail_to_resume(sd: MQSD, handle: int | None = None) -> tuple[int, int]:
        if sd.Options & cmqc.MQSO_RESUME:
            raise MQError(cmqc.MQRC_RESOURCE_PROBLEM)
        return subscribe(sd, handle)

    monkeypatch.setattr(connection, "subscribe", fail_to_resume)
    (note,) = missing(connection, Requirements())
    assert "MQRC_RESOURCE_PROBLEM" in note.what
    assert connection.command("DISPLAY SUB(*)")[0].objects == []


@pytest.mark.parametrize("where", ["QMGR", XMITQ, STATE, DLQ, COMMAND_QUEUE, MODEL_QUEUE])
def test_a_lost_connection_is_not_a_finding(connection: GuardedConnection, where: str) -> None:
    connection.reasons = {where: cmqc.MQRC_CONNECTION_BROKEN}
    with pytest.raises(MQError, match="MQRC_CONNECTION_BROKEN"):
        missing(connection, Requirements())


def test_the_control_command_of_a_missing_authority_is_printed_for_ibm_mq() -> None:
    grant = "SET AUTHREC PROFILE('Q') OBJTYPE(QUEUE) PRINCIPAL('ours') AUTHADD(GET,PUT)"
    shell = setmqaut("QM1", "QUEUE", "Q", "ours", "GET,PUT")
    assert str(Missing("user ours lacks GET,PUT for queue Q", grant, shell=shell)) == (
        f"user ours lacks GET,PUT for queue Q: {grant} (or setmqaut -m QM1 -n Q -t queue -p ours +get +put)"
    )


def test_a_rejected_connection() -> None:
    refused = refused_connection(MQError(cmqc.MQRC_NOT_AUTHORIZED, "connect to it"), "QM1", "ours")
    assert str(refused) == (
        "no connection to queue manager QM1: MQRC_NOT_AUTHORIZED (2035): connect to it: SET AUTHREC OBJTYPE(QMGR)"
        " PRINCIPAL('ours') AUTHADD(CONNECT,INQ)"
    )
    assert refused_connection(MQError(cmqc.MQRC_Q_MGR_NAME_ERROR), "QM1", "ours") == Missing(
        "no connection to queue manager QM1: MQRC_Q_MGR_NAME_ERROR (2058)"
    )
