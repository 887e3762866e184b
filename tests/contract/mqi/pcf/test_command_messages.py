"""The command server: replies, and messages that are not commands."""

from __future__ import annotations

import sqlite3
import struct
import time
from pathlib import Path

import pytest

from bridge.config.queue_manager import COMMAND_QUEUE
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.mqi import MQError
from bridge.wire.mq.pcf import MQCFGR, MQCFH, MQCFIL, MQCFIN, MQCFSF, MQCFST, encode_pcf
from tests.helpers.pcf_administrator import Administrator, parameters, value
from tests.ibm_standin import cmqc, cmqcfc
from tests.ibm_standin.cmqc import MQCA_Q_NAME, MQIA_Q_TYPE
from tests.ibm_standin.pcf.command_server import CommandServer


def test_a_reply_follows_the_request(admin: Administrator) -> None:
    sent = admin.send(encode_pcf(MQCFH(Command=cmqcfc.MQCMD_PING_Q_MGR), []), CorrelId=b"C" * 24)
    md, header, reply_parameters = admin.receive()
    assert (md.MsgType, md.Format, md.CorrelId) == (cmqc.MQMT_REPLY, cmqc.MQFMT_ADMIN, sent.MsgId)
    assert md.MsgId not in (sent.MsgId, cmqc.MQMI_NONE)
    assert (md.Expiry, md.Persistence, md.CodedCharSetId) == (cmqc.MQEI_UNLIMITED, cmqc.MQPER_NOT_PERSISTENT, 1208)
    assert header == MQCFH(Type=cmqcfc.MQCFT_RESPONSE, Command=cmqcfc.MQCMD_PING_Q_MGR)
    assert reply_parameters == ()
    assert admin.displayed(f"QLOCAL({COMMAND_QUEUE})", "CURDEPTH") == 0


def test_report_options_choose_the_identifiers_and_the_expiry(admin: Administrator) -> None:
    report = cmqc.MQRO_PASS_CORREL_ID | cmqc.MQRO_PASS_MSG_ID | cmqc.MQRO_PASS_DISCARD_AND_EXPIRY
    ids = {"MsgId": b"M" * 24, "CorrelId": b"C" * 24}
    ping = encode_pcf(MQCFH(Command=cmqcfc.MQCMD_PING_Q_MGR), [])
    admin.send(ping, Report=report, Expiry=600, Persistence=cmqc.MQPER_PERSISTENT, Priority=7, **ids)
    md, _, _ = admin.receive()
    assert (md.MsgId, md.CorrelId, md.Persistence, md.Priority) == (b"M" * 24, b"C" * 24, cmqc.MQPER_PERSISTENT, 7)
    assert 0 < md.Expiry <= 600


def test_every_reply_message_has_its_control_option(admin: Administrator) -> None:
    admin.send(encode_pcf(MQCFH(Command=cmqcfc.MQCMD_INQUIRE_Q), parameters({MQCA_Q_NAME: "APP.*"})))
    control_fields = [(header.MsgSeqNumber, header.Control) for _, header, _ in (admin.receive() for _ in range(4))]
    assert control_fields == [(1, 0), (2, 0), (3, 0), (4, 1)]


def test_commands_are_read_in_both_byte_orders_and_header_types(admin: Administrator) -> None:
    for type_, version in ((cmqcfc.MQCFT_COMMAND, 1), (cmqcfc.MQCFT_COMMAND_XR, 3)):
        header = MQCFH(Type=type_, Version=version, Command=cmqcfc.MQCMD_INQUIRE_Q)
        admin.send(
            encode_pcf(header, parameters({MQCA_Q_NAME: "APP.IN"}), byte_order="big"), Encoding=cmqc.MQENC_NORMAL
        )
        ((answer, reply_parameters),) = admin.replied()
        assert answer.CompCode == cmqc.MQCC_OK
        assert value(reply_parameters[0]) == "APP.IN"


def test_no_reply_is_sent_if_none_is_requested(admin: Administrator) -> None:
    create = encode_pcf(MQCFH(Command=cmqcfc.MQCMD_CREATE_Q), parameters({MQCA_Q_NAME: "NEW", MQIA_Q_TYPE: 1}))
    admin.send(create, MsgType=cmqc.MQMT_DATAGRAM)
    with pytest.raises(MQError):
        admin.receive(50)
    assert admin.displayed("QLOCAL(NEW)", "MAXDEPTH") == 5000


def test_an_undeliverable_reply_goes_to_the_dead_letter_queue(admin: Administrator) -> None:
    admin.connection.command("DEFINE QLOCAL(DLQ)\nALTER QMGR DEADQ(DLQ)")
    ping = encode_pcf(MQCFH(Command=cmqcfc.MQCMD_PING_Q_MGR), [])
    admin.send(ping, ReplyToQ=b"NOWHERE", Report=cmqc.MQRO_DISCARD_MSG)
    admin.send(ping, ReplyToQ=b"NOWHERE")
    admin.ask(cmqcfc.MQCMD_PING_Q_MGR, {})
    assert admin.displayed("QLOCAL(DLQ)", "CURDEPTH") == 1


def test_an_expired_command_is_not_run(queue_manager: QueueManager, admin: Administrator) -> None:
    queue = queue_manager.objects.queues[COMMAND_QUEUE]
    queue.consumer = None
    admin.send(encode_pcf(MQCFH(Command=cmqcfc.MQCMD_PING_Q_MGR), []), Expiry=1)
    time.sleep(0.12)
    assert queue.depth == 1
    queue.close(cmqc.MQOO_INPUT_EXCLUSIVE, exclusive=True)
    CommandServer(queue_manager).start()
    assert queue.depth == 0
    with pytest.raises(MQError):
        admin.receive(50)


def test_commands_wait_for_the_server_and_run_in_order(tmp_path: Path) -> None:
    queue_manager = QueueManager("MQB1", tmp_path)
    admin = Administrator(queue_manager)
    first = CommandServer(queue_manager)
    first.start()  # creates the queue
    first.stop()
    for command, name in (
        (cmqcfc.MQCMD_CREATE_Q, "NEW"),
        (cmqcfc.MQCMD_DELETE_Q, "NEW"),
        (cmqcfc.MQCMD_CREATE_Q, "NEW"),
    ):
        admin.send(encode_pcf(MQCFH(Command=command), parameters({MQCA_Q_NAME: name, MQIA_Q_TYPE: 1})))
    server = CommandServer(queue_manager)
    server.start()
    for _ in range(3):
        assert admin.receive()[1].CompCode == cmqc.MQCC_OK
    with pytest.raises(MQError) as raised:
        CommandServer(queue_manager).start()
    assert raised.value.reason == cmqc.MQRC_OBJECT_IN_USE
    server.stop()
    admin.send(encode_pcf(MQCFH(Command=cmqcfc.MQCMD_PING_Q_MGR), []))
    assert queue_manager.objects.queues[COMMAND_QUEUE].depth == 1
    queue_manager.close()


HEADER = (1, 36, 1, cmqcfc.MQCMD_PING_Q_MGR, 1, 1, 0, 0, 0)


@pytest.mark.parametrize(
    ("reason", "data"),
    [
        ("MSG_LENGTH_ERROR", b""),
        ("MSG_LENGTH_ERROR", b"PING"),
        ("CFH_TYPE_ERROR", struct.pack("<9i", 2, *HEADER[1:])),
        ("CFH_LENGTH_ERROR", struct.pack("<9i", 1, 40, *HEADER[2:])),
        ("CFH_VERSION_ERROR", struct.pack("<9i", 1, 36, 4, *HEADER[3:])),
        ("CFH_COMMAND_ERROR", struct.pack("<9i", 1, 36, 1, 9999, *HEADER[4:])),
        ("CFH_MSG_SEQ_NUMBER_ERR", struct.pack("<9i", *HEADER[:4], 2, *HEADER[5:])),
        ("CFH_CONTROL_ERROR", struct.pack("<9i", *HEADER[:5], 0, *HEADER[6:])),
        ("CFH_PARM_COUNT_ERROR", struct.pack("<9i", *HEADER) + bytes(16)),
        ("STRUCTURE_TYPE_ERROR", struct.pack("<9i", *HEADER[:8], 1) + bytes(16)),
        ("CFIN_LENGTH_ERROR", struct.pack("<9i", *HEADER[:8], 1) + struct.pack("<5i", 3, 20, 1, 1, 1)),
        ("CFST_LENGTH_ERROR", struct.pack("<9i", *HEADER[:8], 1) + struct.pack("<5i", 4, 20, 1, 0, 9)),
        ("CFIN_PARM_ID_ERROR", encode_pcf(MQCFH(Command=40), [MQCFIN(1, 1)])),
        ("CFST_PARM_ID_ERROR", encode_pcf(MQCFH(Command=40), [MQCFST(1, b"")])),
        ("CFIL_PARM_ID_ERROR", encode_pcf(MQCFH(Command=40), [MQCFIL(1, ())])),
        ("CFSF_PARM_ID_ERROR", encode_pcf(MQCFH(Command=40), [MQCFSF(1, 1, b"")])),
        ("CFIN_DUPLICATE_PARM", encode_pcf(MQCFH(Command=40), [MQCFIN(1, 1), MQCFIN(1, 1)])),
        ("CFST_DUPLICATE_PARM", encode_pcf(MQCFH(Command=40), [MQCFST(1, b""), MQCFST(1, b"")])),
        ("STRUCTURE_TYPE_ERROR", encode_pcf(MQCFH(Command=40), [MQCFGR(1, ())])),
    ],
)
def test_a_message_that_is_not_a_command_is_rejected(admin: Administrator, reason: str, data: bytes) -> None:
    admin.send(data)
    (first, _), (last, _) = admin.replied()
    assert cmqc.reason_name(first.Reason) == f"MQRCCF_{reason}"
    assert last.Reason == cmqcfc.MQRCCF_COMMAND_FAILED
    admin.ask(cmqcfc.MQCMD_PING_Q_MGR, {})


def test_a_message_of_another_format_is_rejected(admin: Administrator) -> None:
    admin.send(b"DISPLAY QMGR", Format=cmqc.MQFMT_STRING)
    assert admin.replied()[0][0].Reason == cmqcfc.MQRCCF_MD_FORMAT_ERROR


def test_a_command_that_cannot_be_stored_has_no_effect(
    queue_manager: QueueManager, admin: Administrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> tuple[int, int]:
        raise sqlite3.OperationalError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(queue_manager.recovery_log._store, "write", broken)
        reason, _ = admin.refused(cmqcfc.MQCMD_CREATE_Q, {MQCA_Q_NAME: "NEW", MQIA_Q_TYPE: cmqc.MQQT_LOCAL})
        assert reason == cmqc.MQRC_RESOURCE_PROBLEM
    assert "NEW" not in queue_manager.objects.queues
    assert queue_manager.objects.queues[COMMAND_QUEUE].depth == 0
    admin.ask(cmqcfc.MQCMD_CREATE_Q, {MQCA_Q_NAME: "NEW", MQIA_Q_TYPE: cmqc.MQQT_LOCAL})
