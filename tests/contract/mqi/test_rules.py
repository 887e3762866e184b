"""Behaviour of IBM MQ that the stand-in has and the embedded queue manager does not. See `tests.ibm_standin.rules`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from bridge.config.queue_manager import ListenerConfig
from bridge.mq.administration import PcfAdministration
from bridge.mq.ibm.connection import connect_ibm
from bridge.mq.ibm.parameters import ConnectionParameters
from bridge.mq.mqi import MQOD, MQSD, Connection, GetOptions, MQError
from bridge.telemetry.message import Message
from bridge.wire import cmqcfc
from bridge.wire.mq import MQMD, decode_mqxqh
from bridge.wire.mq.pcf import MQCFST
from tests.helpers import client_packages
from tests.helpers.client_packages import connecting
from tests.helpers.mq_applications import refused
from tests.helpers.served_queue_manager import ServedQueueManager
from tests.ibm_standin import cmqc
from tests.ibm_standin.mqi.connection import StandInConnection
from tests.ibm_standin.rules import REFUSALS, Rules

pytestmark = pytest.mark.smoke
USER, PASSWORD = "app", "secret"
CHANNEL = "APP.SVRCONN"
TOPIC = "plant/1"
QUEUE = "SYSTEM.DEAD.LETTER.QUEUE"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedQueueManager]:
    with ServedQueueManager(tmp_path, stand_in=True) as manager:
        yield manager


@pytest.fixture
def connect(served: ServedQueueManager, package: str) -> Iterator[Callable[[], Connection]]:
    with connecting(package, served.place) as connect, contextlib.ExitStack() as stack:

        def connected() -> Connection:
            connection = connect()
            stack.callback(connection.disconnect)
            return connection

        yield connected


@pytest.fixture
def administrator(served: ServedQueueManager) -> Iterator[StandInConnection]:
    connection = StandInConnection(served.itself, "administrator", "mqm")
    yield connection
    connection.disconnect()


def publish(connection: Connection, user: bytes) -> None:
    """Publish like the bridge, with the user of a client in the message."""
    od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=TOPIC)
    message = Message(MQMD(UserIdentifier=user), b"x")
    connection.put1(od, message, cmqc.MQPMO_SET_IDENTITY_CONTEXT)


@pytest.mark.parametrize(
    ("options", "alternate", "user"),
    [
        (0, "", None),
        (cmqc.MQSO_ALTERNATE_USER_AUTHORITY, "operator", b"operator"),
        (cmqc.MQSO_SET_IDENTITY_CONTEXT, "", b"device7"),
    ],
    ids=["user of the connection", "alternate user", "MQSO_SET_IDENTITY_CONTEXT"],
)
@pytest.mark.parametrize("for_client", [False, True], ids=["application", "MQTT client"])
def test_a_copy_has_the_user_of_its_subscription(
    connect: Callable[[], Connection], options: int, alternate: str, user: bytes | None, for_client: bool
) -> None:
    """IBM MQ documentation, "Subscription security", "MQSO_SET_IDENTITY_CONTEXT" in "Options (MQLONG)" of MQSD."""
    application = connect()
    probe = application.put1(MQOD(ObjectName=QUEUE), Message(MQMD(), b""))
    name, manager = ("SYSTEM.MQTT.PUBLICATION.QUEUE", "dev1") if for_client else (QUEUE, "")
    handle = application.open(MQOD(ObjectName=name, ObjectQMgrName=manager), cmqc.MQOO_OUTPUT)
    options |= cmqc.MQSO_CREATE | cmqc.MQSO_NON_DURABLE
    application.subscribe(MQSD(Options=options, ObjectString=TOPIC, AlternateUserId=alternate), handle)
    publish(connect(), b"device7")
    read = application.open(
        MQOD(ObjectName="SYSTEM.MQTT.TRANSMIT.QUEUE" if for_client else QUEUE), cmqc.MQOO_INPUT_SHARED
    )
    message = application.get(read, GetOptions())
    if not for_client:
        message = application.get(read, GetOptions())  # the first one is the probe
    md = decode_mqxqh(message.data).MsgDesc if for_client else message.md
    expected = probe.UserIdentifier if user is None else user
    assert md.UserIdentifier.rstrip(b" \0") == expected.rstrip(b" \0")


@pytest.mark.parametrize("reason", sorted(REFUSALS), ids=cmqc.reason_name)
def test_one_connection_is_rejected_while_others_work(
    served: ServedQueueManager, connect: Callable[[], Connection], reason: int
) -> None:
    first = connect()
    served.present.rules = Rules(refuse=reason)
    with refused(reason):
        connect()
    first.put1(MQOD(ObjectName=QUEUE), Message(MQMD(), b"x"))
    assert served.present.refused == 1
    served.present.rules = Rules(refuse=reason, accept_first=1)
    connect()
    with refused(reason):
        connect()


def test_a_failed_login_is_delayed_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """IBM MQ documentation, "ALTER AUTHINFO": FAILDLAY."""
    monkeypatch.delenv("MQI_STANDIN", raising=False)
    (tmp_path / "users").write_text(f"{USER}:{PASSWORD}\n")
    listener = ListenerConfig(password_file=tmp_path / "users", failed_connects=1_000)
    with ServedQueueManager(tmp_path / "data", stand_in=True, listener=listener) as served:
        right = ConnectionParameters(
            queue_manager="MQB1",
            channel=CHANNEL,
            connections=f"127.0.0.1({served.port})",
            user=USER,
            password=PASSWORD,
        )
        served.present.rules = Rules(failed_login_delay=0.2)
        start = time.monotonic()
        with pytest.raises(MQError, match="MQRC_NOT_AUTHORIZED"):
            connect_ibm(client_packages.package(package), msgspec.structs.replace(right, password="wrong"))
        assert time.monotonic() - start >= 0.2
        connect_ibm(client_packages.package(package), right).disconnect()
        assert served.present.failed_logins == {USER: 1}


def test_with_defreada_a_handle_without_explicit_read_ahead_cannot_get_in_syncpoint(
    connect: Callable[[], Connection], administrator: StandInConnection, package: str
) -> None:
    """IBM MQ documentation, "MQGET options and read ahead": options must not change between calls of one handle.

    The bridge's handles are explicit (test_read_ahead_options.py), so the package opens this one itself.
    """
    assert administrator.command(f"ALTER QLOCAL({QUEUE}) DEFREADA(YES)")[0].ok
    application = connect()
    for _ in range(2):
        application.put1(MQOD(ObjectName=QUEUE), Message(MQMD(), b"x"))
    library = client_packages.package(package)
    queue = library.Queue(application._manager, QUEUE, cmqc.MQOO_BROWSE | cmqc.MQOO_INPUT_SHARED)  # type: ignore[attr-defined]
    queue.get(None, library.MD(), library.GMO(Options=cmqc.MQGMO_BROWSE_FIRST))
    with pytest.raises(library.MQMIError) as raised:
        queue.get(None, library.MD(), library.GMO(Options=cmqc.MQGMO_SYNCPOINT))
    assert raised.value.reason == cmqc.MQRC_OPTIONS_ERROR
    queue.close()
    handle = application.open(MQOD(ObjectName=QUEUE), cmqc.MQOO_BROWSE | cmqc.MQOO_INPUT_SHARED)
    application.get(handle, GetOptions(Options=cmqc.MQGMO_BROWSE_FIRST))
    application.get(handle, GetOptions(Options=cmqc.MQGMO_SYNCPOINT))
    application.commit()


def test_mqopen_and_skipped_messages_have_a_cost(served: ServedQueueManager, connect: Callable[[], Connection]) -> None:
    """A browse skips each marked message (IBM MQ documentation, "MQGMO_UNMARKED_BROWSE_MSG" in MQGMO - Options)."""
    application = connect()
    for _ in range(3):
        application.put1(MQOD(ObjectName=QUEUE), Message(MQMD(), b"x"))
    served.present.rules = Rules(open_cost=0.1, step_cost=0.02)
    start, before = time.monotonic(), served.present.opens
    handle = application.open(MQOD(ObjectName=QUEUE), cmqc.MQOO_BROWSE)
    assert time.monotonic() - start >= 0.1
    assert served.present.opens == before + 1
    marking = cmqc.MQGMO_UNMARKED_BROWSE_MSG | cmqc.MQGMO_MARK_BROWSE_HANDLE
    for position in range(3):
        before, start = served.present.steps, time.monotonic()
        application.get(handle, GetOptions(Options=cmqc.MQGMO_BROWSE_FIRST | marking))
        assert served.present.steps == before + position
        assert time.monotonic() - start >= 0.02 * position
    before = served.present.steps
    with refused(cmqc.MQRC_NO_MSG_AVAILABLE):
        application.get(handle, GetOptions(Options=cmqc.MQGMO_BROWSE_FIRST | marking))
    assert served.present.steps == before + 3


@pytest.mark.parametrize("ccsid", [37, 437, 819, 850])
def test_a_queue_manager_with_another_character_set(
    connect: Callable[[], Connection], administrator: StandInConnection, ccsid: int
) -> None:
    """Commands and messages of the bridge contain text in UTF-8 (IBM MQ documentation, "ALTER QMGR": CCSID).

    37 (EBCDIC) represents all code pages that have nothing in common with ASCII. Replies are in the character set of the
    queue manager.
    """
    assert administrator.command(f"ALTER QMGR CCSID({ccsid})")[0].ok
    application = connect()
    (queue,) = application.command(f"DISPLAY QLOCAL({QUEUE}) CURDEPTH")[0].objects
    assert queue["CURDEPTH"] == 0
    defined = application.command("DEFINE TOPIC(PLANT) TOPICSTR('grüße')")
    assert defined[0].ok, defined
    responses = PcfAdministration(application).run(
        cmqcfc.MQCMD_INQUIRE_TOPIC_STATUS, MQCFST(cmqc.MQCA_TOPIC_STRING, "grüße".encode())
    )
    assert responses[0].text(cmqc.MQCA_TOPIC_STRING) == "grüße"
    application.put1(MQOD(ObjectName=QUEUE), Message(MQMD(CodedCharSetId=1208), "grüße".encode()))
    handle = application.open(MQOD(ObjectName=QUEUE), cmqc.MQOO_INPUT_SHARED)
    message = application.get(handle, GetOptions())
    assert (message.md.CodedCharSetId, message.data.decode()) == (1208, "grüße")
