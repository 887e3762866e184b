"""Negotiation between a client and its server-connection channel when they connect."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.helpers.client_programs import Manager
from tests.helpers.patience import until

CONNECTED = """
def connected(channel=b'SYSTEM.DEF.SVRCONN', opts=0, **fields):
    cd = mq.CD(ChannelName=channel, ConnectionName=b'localhost(1414)', ChannelType=6, TransportType=2, **fields)
    qmgr = mq.QueueManager(None)
    qmgr.connect_with_options('MQB1', cd=cd, opts=opts | CMQC.MQCNO_HANDLE_SHARE_BLOCK)
    return qmgr
"""


@pytest.mark.smoke
def test_the_lower_maximum_message_length_of_both_sides_applies(manager: Manager, package: str, queue: str) -> None:
    manager.command("DEFINE CHANNEL(SHORT) CHLTYPE(SVRCONN) MAXMSGL(2000) REPLACE")
    results = manager.run(
        package,
        CONNECTED
        + f"""
def puts(length, channel, **fields):
    qmgr = connected(channel, **fields)
    code = reason(mq.Queue(qmgr, {queue!r}).put, bytes(length))
    qmgr.disconnect()
    return code
results['client'] = [puts(length, b'SYSTEM.DEF.SVRCONN', MaxMsgLength=1000) for length in (1000, 1001)]
results['server'] = [puts(length, b'SHORT', MaxMsgLength=104857600) for length in (2000, 2001)]
results['queue manager'] = [puts(length, b'NOT.DEFINED', MaxMsgLength=0) for length in (4194304, 4194305)]
results['too long'] = reason(connected, MaxMsgLength=104857601)
""",
        connect=False,
    )
    assert results == {"client": [0, 2010], "server": [0, 2010], "queue manager": [0, 2010], "too long": 2277}


@pytest.mark.smoke
def test_a_get_with_a_buffer_longer_than_the_channel_allows_is_rejected(
    manager: Manager, package: str, queue: str
) -> None:
    """BufferLength is compared, even if the message is short ("2010 (MQRC_DATA_LENGTH_ERROR)")."""
    results = manager.run(
        package,
        CONNECTED
        + f"""
qmgr = connected(MaxMsgLength=1000)
mq.Queue(qmgr, {queue!r}).put(b'short')
queue = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_INPUT_SHARED)
results['long'] = reason(queue.get, 1001, mq.MD(), mq.GMO())
results['short'] = queue.get(1000, mq.MD(), mq.GMO())
""",
        connect=False,
    )
    assert results == {"long": 2010, "short": "short"}


def test_refresh_cluster_invalidates_handles(manager: Manager, package: str, queue: str) -> None:
    """All calls fail with 2041 until MQCLOSE, which succeeds. A new MQOPEN works ("2041 (MQRC_OBJECT_CHANGED)")."""
    with manager.when_a_get_waits(queue, manager.invalidate_handles):
        results = manager.run(
            package,
            f"""
queue = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_INPUT_SHARED)
topic = mq.Topic(qmgr, topic_string='a/topic')
topic.open(open_opts=CMQC.MQOO_OUTPUT)
waiting = mq.GMO(Options=CMQC.MQGMO_WAIT, WaitInterval=-1)
results['waits'] = reason(queue.get, None, mq.MD(), waiting)
results['gets'] = reason(queue.get)
results['publishes'] = [reason(topic.pub, b'x'), reason(topic.pub, b'x')]
topic.close()
topic.open(open_opts=CMQC.MQOO_OUTPUT)
results['open again'] = reason(topic.pub, b'x')
""",
        )
    assert results == {"waits": 2041, "gets": 2041, "publishes": [2041, 2041], "open again": 0}


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Manager]:
    """A queue manager with MaxChannels=2."""
    manager = Manager(tmp_path, max_channels=2)
    yield manager
    manager.close()


def test_a_queue_manager_runs_maxchannels_channels(small: Manager, package: str) -> None:
    """Another channel definition, and MQCNO_NO_CONV_SHARING, need a separate instance. Bindings need none."""
    results = small.run(
        package,
        CONNECTED
        + """
def tried(**how):
    return reason(lambda: connections.append(connected(**how)))
connections = []
results['shared'] = [tried() for _ in range(10)]
results['another'] = [tried(HeartbeatInterval=7), tried(HeartbeatInterval=8), tried(opts=CMQC.MQCNO_NO_CONV_SHARING)]
results['bindings'] = reason(mq.connect, 'MQB1')
connections[10].disconnect()
results['room'] = tried(opts=CMQC.MQCNO_NO_CONV_SHARING)
""",
        connect=False,
    )
    assert results == {"shared": [0] * 10, "another": [0, 2537, 2537], "bindings": 0, "room": 0}


def test_a_connection_breaks_after_twice_the_heartbeat_interval_without_data(
    manager: Manager, package: str, queue: str
) -> None:
    """The queue manager hangs, and the client closes the connection ("Heartbeat interval (HBINT)")."""
    manager.command("DEFINE CHANNEL(BEATS) CHLTYPE(SVRCONN) HBINT(1) REPLACE")
    with contextlib.ExitStack() as hanging:

        def hang() -> None:
            hanging.enter_context(manager.busy())

        with manager.when_a_get_waits(queue, hang):
            results = manager.run(
                package,
                CONNECTED
                + f"""
qmgr = connected(b'BEATS', HeartbeatInterval=1)
queue = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_INPUT_SHARED)
wait = mq.GMO(Options=CMQC.MQGMO_WAIT, WaitInterval=2000)
results['get'] = reason(queue.get, None, mq.MD(), wait)
""",
                connect=False,
            )
    assert results == {"get": 2009}
    until(lambda: not manager.itself.objects.queues[queue].inputs)


def test_a_queue_manager_ends_the_channels_of_a_client_that_hangs(
    tmp_path: Path, manager: Manager, package: str, queue: str
) -> None:
    """After twice the heartbeat interval, the queues that the client has open are free ("Heartbeat interval (HBINT)")."""
    manager.command("DEFINE CHANNEL(BEATS) CHLTYPE(SVRCONN) HBINT(1) REPLACE")
    file = tmp_path / "process"
    text = f"""
import os, signal
qmgr, other = connected(b'BEATS', HeartbeatInterval=1), connected(b'BEATS', HeartbeatInterval=1)
queue = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_INPUT_EXCLUSIVE)
with open({str(file)!r}, 'w') as process:
    process.write(f'{{os.getpid()}} ')
os.kill(os.getpid(), signal.SIGSTOP)
results['get'] = reason(queue.get)
"""
    place = f"127.0.0.1({manager.port})"
    with ThreadPoolExecutor() as executor:
        program = executor.submit(manager.run, package, CONNECTED + text, connect=False, MQI_STANDIN=place)
        until(lambda: (file.exists() and file.read_text().endswith(" ")) or program.done(), lambda: "it does not start")
        until(lambda: not manager.itself.objects.queues[queue].inputs or program.done(), lambda: "the queue is open")
        os.kill(int(file.read_text()), signal.SIGCONT)
        assert program.result() == {"get": 2009}


def test_a_stopped_channel(manager: Manager, package: str, queue: str) -> None:
    """Calls that fail if quiescing return 2202, including waiting ones. New connections are rejected until the channel
    is started.

    Source: IBM MQ documentation, "Stopping MQI channels", "2202 (MQRC_CONNECTION_QUIESCING)".
    """
    manager.command("DEFINE CHANNEL(STOPS) CHLTYPE(SVRCONN) REPLACE")

    def stop() -> None:
        manager.command("STOP CHANNEL(STOPS)")

    with manager.when_a_get_waits(queue, stop):
        results = manager.run(
            package,
            CONNECTED
            + f"""
qmgr = connected(b'STOPS')
both = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_INPUT_SHARED | CMQC.MQOO_OUTPUT)
fails = CMQC.MQGMO_FAIL_IF_QUIESCING
results['waits'] = reason(both.get, None, mq.MD(), mq.GMO(Options=CMQC.MQGMO_WAIT | fails, WaitInterval=-1))
results['puts'] = [reason(both.put, b'x', mq.MD(), mq.PMO(Options=option)) for option in (fails, 0)]
results['another'] = reason(connected, b'STOPS', HeartbeatInterval=9)
""",
            connect=False,
        )
    manager.command("START CHANNEL(STOPS)")
    again = manager.run(package, CONNECTED + "results['again'] = reason(connected, b'STOPS')", connect=False)
    until(lambda: not manager.itself.objects.queues[queue].inputs)
    assert results | again == {"waits": 2202, "puts": [2202, 0], "another": 2537, "again": 0}


def test_a_channel_stopped_with_force_breaks_its_connections(manager: Manager, package: str, queue: str) -> None:
    manager.command("DEFINE CHANNEL(STOPS) CHLTYPE(SVRCONN) REPLACE")

    def stop() -> None:
        manager.command("STOP CHANNEL(STOPS) MODE(FORCE)")

    with manager.when_a_get_waits(queue, stop):
        results = manager.run(
            package,
            CONNECTED
            + f"""
queue = mq.Queue(connected(b'STOPS'), {queue!r}, CMQC.MQOO_INPUT_SHARED)
results['waits'] = reason(queue.get, None, mq.MD(), mq.GMO(Options=CMQC.MQGMO_WAIT, WaitInterval=-1))
""",
            connect=False,
        )
    manager.command("START CHANNEL(STOPS)")
    assert results == {"waits": 2009}
    until(lambda: not manager.itself.objects.queues[queue].inputs)
