"""Connections that end during a call leave nothing behind."""

from __future__ import annotations

import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bridge.mq import remote as client
from bridge.mq import remote as protocol
from bridge.mq.mqi import MQOD, MQSD, MQError
from bridge.mq.remote import RemoteConnection
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.patience import PATIENCE, eventually
from tests.helpers.served_queue_manager import ServedQueueManager

CONNECT = protocol.frame(protocol.ConnectCall(protocol.PROTOCOL_VERSION, "lost", "", "", b""))
MANAGED = cmqc.MQSO_CREATE | cmqc.MQSO_MANAGED | cmqc.MQSO_NON_DURABLE
SUBSCRIBE = protocol.frame(protocol.SubscribeCall(MQSD(ObjectString="lost/#", Options=MANAGED)))
COMMIT = protocol.frame(protocol.CommitCall())


@pytest.mark.parametrize(
    "begin",
    [CONNECT + SUBSCRIBE, CONNECT + COMMIT + SUBSCRIBE * 3, (CONNECT + SUBSCRIBE) * 3],
    ids=["one", "three", "again"],
)
def test_unfinished_calls_end_with_their_connection(begin: bytes, tmp_path: Path) -> None:
    """A subscription whose unit of work has not ended, and requests that were not processed."""
    ends = threading.Event()
    with ServedQueueManager(tmp_path) as served, ThreadPoolExecutor(1) as executor:
        manager = served.itself
        RemoteConnection(tmp_path).command("DEFINE QLOCAL(BUSY) MAXDEPTH(1000000)")
        busy = executor.submit(keep_the_disk_busy, tmp_path, ends)
        before = set(manager.objects.queues)
        for _ in range(100):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.connect(str(tmp_path / protocol.SOCKET_NAME))
                connection.sendall(begin)
        ends.set()
        busy.result(PATIENCE)

        def open_objects() -> tuple[int, int, set[str]]:
            with manager.lock:
                objects = manager.objects
                return len(served._server.connections), len(objects.topics.subscriptions), set(objects.queues) - before

        eventually(open_objects, (0, 0, set()))


def keep_the_disk_busy(directory: Path, ends: threading.Event) -> None:
    """Put persistent messages, so that other units of work wait."""
    connection = RemoteConnection(directory)
    handle = connection.open(MQOD(ObjectName="BUSY"), cmqc.MQOO_OUTPUT)
    while not ends.is_set():
        connection.put(handle, Message(MQMD(Persistence=cmqc.MQPER_PERSISTENT), bytes(100)))
    connection.disconnect()


@pytest.mark.parametrize("by_tcp", [False, True], ids=["Unix socket", "TCP"])
def test_a_hanging_bridge_does_not_block_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_tcp: bool
) -> None:
    """The system accepts connections to it, but it does not answer MQCONN."""
    monkeypatch.setattr(client, "CONNECT_TIMEOUT", 0.1)
    listening = socket.socket(socket.AF_INET if by_tcp else socket.AF_UNIX)
    with listening:
        listening.bind(("127.0.0.1", 0) if by_tcp else str(tmp_path / protocol.SOCKET_NAME))
        listening.listen()
        with pytest.raises(MQError, match=r"does not answer within 0\.1 s") as raised:
            RemoteConnection(listening.getsockname() if by_tcp else tmp_path)
    assert raised.value.reason == cmqc.MQRC_Q_MGR_NOT_AVAILABLE


def test_stop_conn_closes_a_connection_and_backs_out_its_unit_of_work(tmp_path: Path) -> None:
    with ServedQueueManager(tmp_path):
        administrator, stopped = RemoteConnection(tmp_path), RemoteConnection(tmp_path, application="stuck")
        administrator.command("DEFINE QLOCAL(A)")
        stopped.put1(MQOD(ObjectName="A"), Message(MQMD(), b"1"), cmqc.MQPMO_SYNCPOINT)
        (row,) = administrator.command("DISPLAY CONN(*) WHERE(APPLTAG EQ 'stuck') ALL")[0].objects
        assert (row["UOWSTATE"], row["PID"], row["APPLTYPE"]) == ("ACTIVE", os.getpid(), "USER")
        assert administrator.command(f"STOP CONN({row['CONN']})")[0].message.startswith("AMQ8457I")
        with pytest.raises(MQError, match="MQRC_CONNECTION_BROKEN"):
            stopped.commit()
        assert administrator.command("DISPLAY QLOCAL(A) CURDEPTH")[0].objects[0]["CURDEPTH"] == 0
