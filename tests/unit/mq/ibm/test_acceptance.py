"""The tests of `mqbridge ibm-acceptance` on queue managers that fail some of them."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bridge.mq.embedded.mqsc.commands import prepare, run_script
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.ibm.acceptance import Acceptance, AcceptanceResult, Trials, traffic
from bridge.mq.ibm.acceptance_measurements import Failed, message_identifiers
from bridge.mq.ibm.requirements import Requirements
from bridge.mq.ibm.transmission import MQXQH_LENGTH
from bridge.mq.mqi import MQOD, MQSTS, CommandResponse, Connection, GetOptions, MQError
from bridge.telemetry.message import Message
from bridge.telemetry.transmission import AnyMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, MQMDE, decode_mqxqh, encode_mqmde, encode_mqxqh
from tests.helpers.guarded_connection import GuardedConnection
from tests.ibm_standin.mqi.connection import StandInConnection
from tests.ibm_standin.mqi.structures import MqiGot
from tests.ibm_standin.pcf.command_server import CommandServer

UNKNOWN_CHANNEL = 2540
XMITQ = "SYSTEM.MQTT.TRANSMIT.QUEUE"


@pytest.fixture
def queue_manager(tmp_path: Path) -> Iterator[QueueManager]:
    queue_manager = QueueManager("MQB1", tmp_path)
    prepare(queue_manager)
    CommandServer(queue_manager).start()
    yield queue_manager
    queue_manager.close()


def results(
    queue_manager: QueueManager,
    connection: Callable[[QueueManager], Connection] = StandInConnection,
    wrong_password: Callable[[], Connection] | None = None,
) -> dict[str, AcceptanceResult]:
    trials = Trials(wrong_password=wrong_password, subscriptions=20)
    tests = Acceptance(lambda: connection(queue_manager), Requirements(), trials=trials)
    return {result.test: result for result in tests.run()}


def failed(outcomes: dict[str, AcceptanceResult]) -> list[str]:
    return [name for name, outcome in outcomes.items() if outcome.result == "fail"]


def test_all_tests_pass_on_a_prepared_queue_manager(queue_manager: QueueManager) -> None:
    assert failed(results(queue_manager)) == []


def test_a_message_too_long_for_the_channel_is_a_failure_with_a_remedy(queue_manager: QueueManager) -> None:
    outcomes = results(queue_manager, _Limited)
    assert failed(outcomes) == ["long message"]
    assert "MQRC_DATA_LENGTH_ERROR (2010)" in outcomes["long message"].detail
    assert outcomes["long message"].remedy == "set MAXMSGL(104857600) for the channel"


def test_no_messages_are_sent_if_they_would_go_to_another_queue(queue_manager: QueueManager) -> None:
    run_script(queue_manager, "DEFINE QLOCAL(OTHER) USAGE(XMITQ)\nALTER QMGR DEFXMITQ(OTHER)", "test")
    outcomes = results(queue_manager)
    assert failed(outcomes) == ["objects and authorities", "exclusive use of the transmission queue"]
    assert outcomes["exclusive use of the transmission queue"].remedy.startswith(
        f"ALTER QMGR DEFXMITQ('{XMITQ}'), unless"
    )
    assert outcomes["publication to a client"].result == "skip"


def test_with_queue_manager_aliases_only_a_client_with_an_alias_is_sent_messages(queue_manager: QueueManager) -> None:
    script = f"DEFINE QREMOTE('mqbridge.check') RQMNAME('mqbridge.check') XMITQ('{XMITQ}')"
    run_script(queue_manager, f"DEFINE QLOCAL(HUB) USAGE(XMITQ)\nALTER QMGR DEFXMITQ(HUB)\n{script}", "test")
    outcomes = results(queue_manager)
    assert failed(outcomes) == []
    skipped = {name: outcome.detail for name, outcome in outcomes.items() if outcome.result == "skip"}
    only = "only client mqbridge.check has a queue manager alias"
    assert skipped["client identifiers"] == skipped["escaped client identifiers"] == only
    assert outcomes["publication to a client"].result == outcomes["durable subscription"].result == "pass"
    assert queue_manager.objects.queues["HUB"].depth == queue_manager.objects.queues[XMITQ].depth == 0


def test_the_objects_of_a_failed_test_are_removed(queue_manager: QueueManager) -> None:
    """Another program gets the messages for clients, so that each test of them fails halfway."""
    outcomes = results(queue_manager, _Robbed)
    assert failed(outcomes) == [
        "publication to a client",
        "user of a publication",
        "headers on the transmission queue",
        "retained publication",
        "durable subscription",
        "client identifiers",
        "escaped client identifiers",
        "long message",
    ]
    assert outcomes["clean-up"].detail.startswith("nothing is left (1 subscriptions and")
    assert not queue_manager.objects.topics.subscriptions
    assert queue_manager.objects.queues[XMITQ].depth == 0
    assert not [publication for publication in queue_manager.retained.matching("mqbridge/#") if publication is not None]


class _Limited(StandInConnection):
    """A connection over a channel with MAXMSGL(1000000)."""

    def put(self, handle: int, message: AnyMessage, *arguments: Any, **more: Any) -> MQMD:
        if len(message.put_data) > 1_000_000:
            raise MQError(cmqc.MQRC_DATA_LENGTH_ERROR)
        return super().put(handle, message, *arguments, **more)


class _Robbed(StandInConnection):
    """A connection that finds no messages on the transmission queue, until the clean-up asks without waiting."""

    def get(self, handle: int, options: GetOptions) -> MqiGot:
        if options.Options & cmqc.MQGMO_BROWSE_FIRST and options.WaitInterval:
            raise MQError(cmqc.MQRC_NO_MSG_AVAILABLE)
        return super().get(handle, options)


class _Extended(StandInConnection):
    """A connection to a queue manager that puts an MQMDE between MQXQH and RFH2."""

    def get(self, handle: int, options: GetOptions) -> MqiGot:
        message = super().get(handle, options)
        if message.md.Format != cmqc.MQFMT_XMIT_Q_HEADER or len(message.data) <= MQXQH_LENGTH:
            return message
        header = decode_mqxqh(message.data)
        md = header.MsgDesc
        extension = MQMDE(Format=md.Format, Encoding=md.Encoding, CodedCharSetId=md.CodedCharSetId)
        head = msgspec.structs.replace(header, MsgDesc=msgspec.structs.replace(md, Format=cmqc.MQFMT_MD_EXTENSION))
        data = encode_mqxqh(head) + encode_mqmde(extension) + message.data[MQXQH_LENGTH:]
        return msgspec.structs.replace(message, data=data)


def test_the_position_of_the_rfh2_is_reported(queue_manager: QueueManager) -> None:
    for connection, order in ((StandInConnection, "MQXQH, then RFH2,"), (_Extended, "MQXQH, then MQMDE, then RFH2,")):
        outcomes = results(queue_manager, connection)
        assert failed(outcomes) == []
        assert outcomes["headers on the transmission queue"].detail.startswith(order)


class _PropertiesFirst(StandInConnection):
    """A connection to a queue manager that puts an RFH2 before the MQXQH."""

    def get(self, handle: int, options: GetOptions) -> MqiGot:
        if options.Options & cmqc.MQGMO_BROWSE_NEXT and options.WaitInterval:
            raise MQError(cmqc.MQRC_NO_MSG_AVAILABLE)
        message = super().get(handle, options)
        if message.md.Format != cmqc.MQFMT_XMIT_Q_HEADER or not options.WaitInterval:
            return message
        md = msgspec.structs.replace(message.md, Format=cmqc.MQFMT_RF_HEADER_2)
        return msgspec.structs.replace(message, md=md, data=b"RFH " + message.data)


def test_a_message_without_an_mqxqh_at_its_beginning_is_reported(queue_manager: QueueManager) -> None:
    outcomes = results(queue_manager, _PropertiesFirst)
    assert outcomes["publication to a client"].detail.endswith("a message with Format b'MQHRF2' begins with b'RFH '")
    assert outcomes["publication to a client"].remedy.startswith("report this to the developers")


def test_each_result_explains_its_meaning_for_the_bridge(queue_manager: QueueManager) -> None:
    outcomes = results(queue_manager)
    assert [name for name, outcome in outcomes.items() if not outcome.meaning] == []
    identifiers = outcomes["form of message identifiers"]
    assert re.search(r"the last two bytes of 1100 MsgIds have \d+ values", identifiers.detail)
    assert "20 created in" in outcomes["durable subscriptions in large numbers"].detail
    assert "%2DX, %3AX, %25X, %C3%BCX get messages" in outcomes["escaped client identifiers"].detail
    assert outcomes["publication to a client"].result == "pass"
    assert results(queue_manager, _Robbed)["publication to a client"].meaning.startswith("not so: ")


def test_message_identifiers_that_are_not_unique_fail() -> None:
    like_ibm = [b"AMQ QM1".ljust(20) + bytes((number,)) + b"\x02\x29\x00" for number in range(100)]
    assert "have 1 values" in message_identifiers(like_ibm).detail
    assert "about 99 % of a large window" in message_identifiers(like_ibm).meaning
    with pytest.raises(Failed, match="1 of 101 MsgIds are not unique"):
        message_identifiers([*like_ibm, like_ibm[0]])


class _Unforeseen(StandInConnection):
    """A connection whose MQSTAT returns an unexpected result."""

    def statistics(self, type: int = cmqc.MQSTAT_TYPE_ASYNC_ERROR) -> MQSTS:
        raise struct.error("unpack requires a buffer of 224 bytes")


def test_an_unexpected_error_fails_one_test_and_is_located(queue_manager: QueueManager) -> None:
    outcomes = results(queue_manager, _Unforeseen)
    assert failed(outcomes) == ["asynchronous MQPUT1"]
    detail = outcomes["asynchronous MQPUT1"].detail
    assert re.fullmatch(r"error: unpack requires a buffer of 224 bytes \(test_acceptance\.py, line \d+\)", detail)
    assert outcomes["asynchronous MQPUT1"].remedy.startswith("report this to the developers")


class _Lossy(StandInConnection):
    """A connection that is lost when the first retained publication is put."""

    lost = False

    def put(self, handle: int, message: AnyMessage, *arguments: Any, **more: Any) -> MQMD:
        if message.put_data == b"retained" and not _Lossy.lost:
            _Lossy.lost = True
            self.disconnect()
            raise MQError(cmqc.MQRC_CONNECTION_BROKEN)
        return super().put(handle, message, *arguments, **more)


def test_the_tests_continue_after_a_lost_connection(queue_manager: QueueManager) -> None:
    outcomes = results(queue_manager, _Lossy)
    assert failed(outcomes) == ["retained publication"]
    assert outcomes["durable subscription"].result == outcomes["clean-up"].result == "pass"


class _Shared(StandInConnection):
    """A connection to a queue manager with the connections that a test names, as DISPLAY CONN shows them."""

    rows: Sequence[dict[str, str | int]] = ()

    def command(self, text: str) -> list[CommandResponse]:
        return [
            CommandResponse(
                command=text, message="AMQ8276I: Display Connection details.", ok=True, objects=[*self.rows]
            )
        ]


@pytest.mark.parametrize(
    ("channel", "rows", "others"),
    [
        ("", [{"APPLTAG": "mqbridge", "APPLTYPE": "USER"}, {"APPLTAG": "amqzmuc0", "APPLTYPE": "SYSTEM"}], []),
        (
            "",
            [{"APPLTAG": "payroll", "APPLTYPE": "USER"}] * 2 + [{"APPLTAG": "orders", "APPLTYPE": "USER"}],
            ["3 other connections, for example of payroll, orders"],
        ),
        ("C", [{"APPLTAG": "python3", "APPLTYPE": "USER", "CHANNEL": "C"}], []),
        (
            "C",
            [{"APPLTAG": "python3", "APPLTYPE": "USER", "CHANNEL": "D"}],
            ["1 other connections, for example of python3"],
        ),
    ],
)
def test_other_connections_are_traffic(
    queue_manager: QueueManager, channel: str, rows: list[dict[str, str | int]], others: list[str]
) -> None:
    connection = _Shared(queue_manager)
    connection.rows = rows
    assert traffic(connection, channel, XMITQ) == others
    connection.disconnect()


def test_messages_for_clients_are_traffic(queue_manager: QueueManager) -> None:
    connection = StandInConnection(queue_manager)
    assert traffic(connection, "", XMITQ) == []
    connection.put1(MQOD(ObjectName="T", ObjectQMgrName="dev1"), Message(MQMD(), b"x"))
    assert traffic(connection, "", XMITQ) == [f"1 messages for clients are on {XMITQ}"]
    connection.disconnect()


def test_connections_and_rejections(queue_manager: QueueManager) -> None:
    """The bridge's number of connections is opened. Connections that must be rejected are reported with their codes."""
    connections: list[Connection] = []

    def limited() -> Connection:
        if len(connections) == 5:
            raise MQError(cmqc.MQRC_CHANNEL_NOT_AVAILABLE)
        connections.append(StandInConnection(queue_manager))
        return connections[-1]

    def refused() -> Connection:
        raise MQError(UNKNOWN_CHANNEL)

    trials = Trials(connections=10, refused={"unknown channel": refused}, without_tls={"without TLS": limited})
    outcomes = {outcome.test: outcome for outcome in Acceptance(limited, Requirements(), trials=trials).run()}
    assert outcomes["refusal codes"].detail == f"unknown channel: {cmqc.reason_name(UNKNOWN_CHANNEL)} (2540)"
    assert outcomes["connections"].detail == "3 of 10 connections, then MQRC_CHANNEL_NOT_AVAILABLE (2537)"
    assert outcomes["connections"].remedy.endswith("to at least 30")
    assert outcomes["TLS"].detail == "the queue manager accepts a connection without TLS"


def test_a_wrong_password_must_be_rejected(queue_manager: QueueManager) -> None:
    def rejected() -> Connection:
        raise MQError(cmqc.MQRC_NOT_AUTHORIZED)

    for wrong_password, result in ((rejected, "pass"), (lambda: StandInConnection(queue_manager), "fail")):
        assert results(queue_manager, wrong_password=wrong_password)["wrong password"].result == result


def test_without_a_connection_the_other_tests_are_skipped() -> None:
    def refused() -> Connection:
        raise MQError(cmqc.MQRC_NOT_AUTHORIZED, "connect")

    outcomes = list(Acceptance(refused, Requirements()).run())
    assert [outcome.test for outcome in outcomes if outcome.result == "fail"] == ["connection"]
    assert {outcome.result for outcome in outcomes[1:]} == {"skip"}


def test_a_queue_in_use_skips_the_tests_that_send_messages(queue_manager: QueueManager) -> None:
    def connect(manager: QueueManager) -> Connection:
        connection = GuardedConnection(manager)
        connection.reasons = {XMITQ: cmqc.MQRC_OBJECT_IN_USE}
        return connection

    outcomes = {name: outcome.result for name, outcome in results(queue_manager, connect).items()}
    assert outcomes["exclusive use of the transmission queue"] == outcomes["publication to a client"] == "skip"
    assert outcomes["syncpoint and backout"] == outcomes["message rate"] == "pass"
