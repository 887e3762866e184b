"""Broken connections, invalid handles and structures, and sharing of connections."""

from __future__ import annotations

import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bridge.config.queue_manager import ListenerConfig
from bridge.mq.mqi import MQError
from bridge.mq.remote import RemoteConnection
from tests.helpers.client_programs import Manager
from tests.helpers.patience import until

BATCH = """
queue = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_OUTPUT)
results['reasons'] = []
for number in range(3):
    results['reasons'].append(reason(queue.put, b'%d' % number, mq.MD(), mq.PMO(Options=CMQC.MQPMO_SYNCPOINT)))
results['commit'] = reason(qmgr.commit)
results['after'] = reason(qmgr.commit)
"""


@pytest.mark.parametrize(
    ("cut", "reasons", "commit", "depth"),
    [
        ("MQPUT:2:before", [0, 2009, 2009], 2009, 0),
        ("MQPUT:2:after", [0, 2009, 2009], 2009, 0),
        ("MQCMIT:1:before", [0, 0, 0], 2009, 0),
        ("MQCMIT:1:after", [0, 0, 0], 2009, 3),
        ("MQCMIT:2", [0, 0, 0], 0, 3),
    ],
)
def test_cut(manager: Manager, package: str, queue: str, cut: str, reasons: list[int], commit: int, depth: int) -> None:
    """Uncommitted work is backed out. Committed work stays, even if the program did not get the reply."""
    results = manager.run(package, BATCH.format(queue=queue), MQI_STANDIN_CUT=cut)
    assert results == {"reasons": reasons, "commit": commit, "after": 2009}
    manager.wait_for_depth(queue, depth)


@pytest.mark.parametrize(
    ("cut", "commit", "depth"),
    [("", 0, 3), ("MQPUT:2:before", 2009, 0), ("MQPUT:3:after", 2009, 0), ("MQCMIT:1", 2009, 3)],
)
def test_asynchronous_puts(manager: Manager, package: str, queue: str, cut: str, commit: int, depth: int) -> None:
    """MQCMIT reports that the connection was lost after asynchronous puts."""
    results = manager.run(
        package,
        f"""
        queue = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_OUTPUT)
        pmo = mq.PMO(Options=CMQC.MQPMO_SYNCPOINT | CMQC.MQPMO_ASYNC_RESPONSE)
        for number in range(3):
            reason(queue.put, b'%d' % number, mq.MD(), pmo)
        results['commit'] = reason(qmgr.commit)
        """,
        MQI_STANDIN_CUT=cut,
    )
    assert results == {"commit": commit}
    manager.wait_for_depth(queue, depth)


@pytest.mark.smoke
def test_asynchronous_puts_do_not_wait_for_replies(manager: Manager, package: str, queue: str, tmp_path: Path) -> None:
    """They return while the queue manager is stopped."""
    opened, held, put = tmp_path / "opened", tmp_path / "held", tmp_path / "put"
    returned = []

    def hold() -> None:
        until(opened.exists)
        with manager.itself.lock:
            held.touch()
            until(put.exists)
            returned.append(True)

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    results = manager.run(
        package,
        f"""
        from pathlib import Path
        queue = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_OUTPUT)
        Path({str(opened)!r}).touch()
        while not Path({str(held)!r}).exists():
            time.sleep(0.005)
        for number in range(3):
            queue.put(b'%d' % number, mq.MD(), mq.PMO(Options=CMQC.MQPMO_SYNCPOINT | CMQC.MQPMO_ASYNC_RESPONSE))
        Path({str(put)!r}).touch()
        results['commit'] = reason(qmgr.commit)
        """,
    )
    holder.join()
    assert returned and results == {"commit": 0}
    manager.wait_for_depth(queue, 3)


@pytest.mark.smoke
def test_a_cut_happens_once_in_a_file(manager: Manager, package: str, queue: str, tmp_path: Path) -> None:
    variables = {"MQI_STANDIN_CUT": "MQPUT:2", "MQI_STANDIN_CUT_FILE": str(tmp_path / "cuts")}
    assert manager.run(package, BATCH.format(queue=queue), **variables)["commit"] == 2009
    assert manager.run(package, BATCH.format(queue=queue), **variables)["reasons"] == [0, 0, 0]
    assert (tmp_path / "cuts").read_text() == "MQPUT:2\n"


def test_reconnect_after_a_cut(manager: Manager, package: str, queue: str) -> None:
    results = manager.run(
        package,
        f"""
        results['put'] = reason(mq.Queue(qmgr, {queue!r}, CMQC.MQOO_OUTPUT).put, b'1')
        again = mq.connect('MQB1', 'SYSTEM.DEF.SVRCONN', 'localhost(1414)')
        results['again'] = reason(mq.Queue(again, {queue!r}, CMQC.MQOO_OUTPUT).put, b'2')
        """,
        MQI_STANDIN_CUT="MQPUT:1:before",
    )
    assert results == {"put": 2009, "again": 0}


def test_delay(manager: Manager, package: str, queue: str) -> None:
    results = manager.run(
        package,
        f"""
        queue = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_OUTPUT)
        start = time.monotonic()
        for _ in range(10):
            queue.put(b'x')
        results['seconds'] = time.monotonic() - start
        """,
        MQI_STANDIN_DELAY_US="20000",
    )
    assert results["seconds"] >= 0.2


def test_no_queue_manager(manager: Manager, package: str) -> None:
    results = manager.run(
        package,
        """
        results['none'] = reason(mq.connect, 'MQB1', 'CHANNEL', 'localhost(1414)')
        results['group'] = reason(mq.connect, '*MQB1', 'CHANNEL', 'localhost(1414)')
        """,
        connect=False,
        MQI_STANDIN="unix:/nowhere/mqi.sock",
    )
    # MQRC_HOST_NOT_AVAILABLE, or MQRC_Q_MGR_NOT_AVAILABLE for a group of which no queue manager is available.
    assert results == {"none": 2538, "group": 2059}


def test_connecting(manager: Manager, package: str) -> None:
    """Over TCP with a list of addresses. The name must match. A second connection of the thread is rejected with 2002.

    ibmmq shares its connections among threads by default, so it can have several.
    """
    results = manager.run(
        package,
        f"""
        import os
        del os.environ['MQI_STANDIN']
        place = 'localhost(1),127.0.0.1({manager.port})'
        results['other name'] = reason(mq.connect, 'OTHER', 'CHANNEL', place)
        first = mq.connect('MQB1', 'CHANNEL', place)
        results['connected'] = first.is_connected
        results['second'] = reason(mq.connect, 'MQB1', 'CHANNEL', place)
        if not results['second']:
            first.disconnect()  # else pymqi has done so: the refused connection has the same handle
        shared = [mq.QueueManager(None) for _ in range(2)]
        for manager in shared:
            manager.connect_with_options(
                'MQB1', cd=mq.CD(ChannelName=b'CHANNEL', ConnectionName=place.encode(), ChannelType=6, TransportType=2),
                opts=CMQC.MQCNO_HANDLE_SHARE_NO_BLOCK)
        handles = [
            manager.get_handle() if hasattr(manager, 'get_handle') else manager.getHandle() for manager in shared
        ]
        results['two'] = len(set(handles))
        """,
        connect=False,
    )
    second = {"pymqi": 2002, "ibmmq": 0}[package]
    expected = {"other name": 2058, "second": second, "two": 2, "connected": True}
    assert results == expected


def test_connections_over_tcp(package: str, tmp_path: Path) -> None:
    """An unknown channel causes 2540, a wrong password 2035, a CipherSpec without a key repository 2381."""
    passwords = tmp_path / "passwords"
    passwords.write_text("# MQ applications\n\napp:secret:1\nnobody:\n")
    manager = Manager(tmp_path / "qm", ListenerConfig(password_file=passwords), channels=["DEV.APP"])
    try:
        program = f"""
            import os
            del os.environ['MQI_STANDIN']
            place = '127.0.0.1({manager.port})'
            def tried(channel, user, password, **cd):
                def go():
                    qmgr = mq.QueueManager(None)
                    cd_ = mq.CD(ChannelName=channel, ConnectionName=place.encode(), ChannelType=6, TransportType=2, **cd)
                    if package == 'pymqi':
                        qmgr.connect_with_options('MQB1', cd=cd_, user=user, password=password)
                    else:
                        csp = mq.CSP(CSPUserId=user.decode(), CSPPassword=password.decode()) if user else None
                        qmgr.connect_with_options('MQB1', cd=cd_, csp=csp)
                    qmgr.disconnect()
                return reason(go)
            results['right'] = tried(b'DEV.APP', b'app', b'secret:1')
            results['channel'] = tried(b'OTHER', b'app', b'secret:1')
            results['password'] = tried(b'DEV.APP', b'app', b'secret')
            results['user'] = tried(b'DEV.APP', b'other', b'secret:1')
            results['empty'] = tried(b'DEV.APP', b'nobody', b'x')
            results['none'] = tried(b'DEV.APP', None, None)
            results['cipher'] = tried(b'DEV.APP', b'app', b'secret:1', SSLCipherSpec=b'ANY_TLS12_OR_HIGHER')
            """
        results = manager.run(package, f"package = {package!r}\n" + textwrap.dedent(program), connect=False)
        assert results == {
            "right": 0,
            "channel": 2540,
            "password": 2035,
            "user": 2035,
            "empty": 2035,
            "none": 2035,
            "cipher": 2381,
        }
        passwords.write_text("app:changed\n")  # takes effect without a restart
        assert (
            manager.run(package, f"package = {package!r}\n" + textwrap.dedent(program), connect=False)["right"] == 2035
        )
        address = ("127.0.0.1", manager.port)
        RemoteConnection(address, user="app", password="changed").disconnect()
        with pytest.raises(MQError) as refused:
            RemoteConnection(address)
        assert refused.value.reason == 2035
    finally:
        manager.close()


def test_an_orderly_end_of_the_queue_manager(package: str, tmp_path: Path) -> None:
    """A waiting program gets MQRC 2161 if it requested that, can commit, and disconnects. New connections are rejected."""
    manager = Manager(tmp_path)
    for queue in ("Q", "EMPTY"):
        manager.command(f"DEFINE QLOCAL({queue})")
    program = """
        out, into = mq.Queue(qmgr, 'Q', CMQC.MQOO_OUTPUT), mq.Queue(qmgr, 'EMPTY', CMQC.MQOO_INPUT_SHARED)
        out.put(b'kept', mq.MD(Persistence=1), mq.PMO(Options=CMQC.MQPMO_SYNCPOINT))
        wait = mq.GMO(Options=CMQC.MQGMO_WAIT | CMQC.MQGMO_FAIL_IF_QUIESCING, WaitInterval=CMQC.MQWI_UNLIMITED)
        results['waiting'] = reason(into.get, None, mq.MD(), wait)
        results['put'] = reason(out.put, b'', mq.MD(), mq.PMO(Options=CMQC.MQPMO_FAIL_IF_QUIESCING))
        results['open'] = reason(mq.Queue, qmgr, 'Q', CMQC.MQOO_OUTPUT | CMQC.MQOO_FAIL_IF_QUIESCING)
        results['commit'] = reason(qmgr.commit)
        results['end'] = reason(qmgr.disconnect)
        """
    with ThreadPoolExecutor(1) as executor:
        run = executor.submit(manager.run, package, program)
        until(lambda: run.done() or manager.itself.objects.queues["EMPTY"].waiters)
        manager.close()
        assert run.result() == {"waiting": 2161, "put": 2161, "open": 2161, "commit": 0, "end": 0}
    again = Manager(tmp_path)
    assert again.attribute("QLOCAL(Q)", "CURDEPTH") == 1
    again.close()


def test_threads(manager: Manager, package: str, queue: str) -> None:
    """A connection belongs to its thread unless it is shared. ibmmq shares the connections of `connect`."""
    results = manager.run(
        package,
        f"""
        def elsewhere(call, *arguments):
            answers = []
            thread = threading.Thread(target=lambda: answers.append(reason(call, *arguments)))
            thread.start()
            thread.join()
            return answers[0]
        queue = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_OUTPUT)
        results['put'] = elsewhere(queue.put, b'x')
        """,
    )
    assert results == {"put": {"pymqi": 2018, "ibmmq": 0}[package]}


@pytest.mark.parametrize(
    ("option", "interval", "put_count", "get_count"),
    [
        ("BLOCK", "500", 0, 2033),  # the put waits until the get has timed out, so the get receives no message
        ("NO_BLOCK", "CMQC.MQWI_UNLIMITED", 2219, 0),
    ],
)
def test_a_shared_connection_while_a_thread_waits(
    manager: Manager, package: str, queue: str, option: str, interval: str, put_count: int, get_count: int
) -> None:
    program = f"""
        shared = mq.QueueManager(None)
        cd = mq.CD(ChannelName=b'CHANNEL', ConnectionName=b'localhost(1414)', ChannelType=6, TransportType=2)
        shared.connect_with_options('MQB1', cd=cd, opts=CMQC.MQCNO_HANDLE_SHARE_{option})
        out, into = mq.Queue(shared, {queue!r}, CMQC.MQOO_OUTPUT), mq.Queue(shared, {queue!r}, CMQC.MQOO_INPUT_SHARED)
        def get(queue, interval):
            return reason(queue.get, None, mq.MD(), mq.GMO(Options=CMQC.MQGMO_WAIT, WaitInterval=interval))
        waiting = threading.Thread(target=lambda: results.update(got=get(into, {interval})))
        waiting.start()
        get(mq.Queue(qmgr, {queue!r} + '.GO', CMQC.MQOO_INPUT_SHARED), CMQC.MQWI_UNLIMITED)
        results['put'] = reason(out.put, b'x')
        if results['put']:
            mq.Queue(qmgr, {queue!r}).put(b'by another connection')
        waiting.join()
        """
    with manager.signal(queue):
        results = manager.run(package, program)
    assert results == {"put": put_count, "got": get_count}


def test_structures_and_options(manager: Manager, package: str, queue: str) -> None:
    results = manager.run(
        package,
        f"""
        def wrong(structure, **fields):
            for field, value in fields.items():
                setattr(structure, field, value)
            return structure
        queue = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_OUTPUT | CMQC.MQOO_BROWSE)
        ident = '_StrucId' if hasattr(mq.MD(), '_StrucId') else 'StrucId'
        bad = {{ident: b'XXXX'}}
        results['od'] = reason(mq.Queue(qmgr).open, wrong(mq.OD(), **bad), CMQC.MQOO_OUTPUT)
        results['od version'] = reason(mq.Queue(qmgr).open, mq.OD(Version=5), CMQC.MQOO_OUTPUT)
        results['md'] = reason(queue.put, b'', wrong(mq.MD(), **bad))
        results['md version'] = reason(queue.put, b'', mq.MD(Version=3))
        results['pmo'] = reason(queue.put, b'', mq.MD(), wrong(mq.PMO(), **bad))
        results['gmo'] = reason(queue.get, None, mq.MD(), mq.GMO(Version=9))
        results['sd'] = reason(mq.Subscription(qmgr).sub, mq.SD(Version=2))
        results['open options'] = reason(mq.Queue(qmgr).open, {queue.encode()!r},
                                       CMQC.MQOO_INPUT_SHARED | CMQC.MQOO_INPUT_EXCLUSIVE)
        results['put options'] = reason(queue.put, b'', mq.MD(),
                                      mq.PMO(Options=CMQC.MQPMO_SYNCPOINT | CMQC.MQPMO_NO_SYNCPOINT))
        results['get'] = reason(queue.get)
        results['unknown'] = reason(mq.Queue(qmgr).open, b'NO.SUCH.QUEUE', CMQC.MQOO_OUTPUT)
        queue.close()
        topic = mq.Topic(qmgr, topic_string=b'some/topic')
        results['topic for input'] = reason(topic.open, None, b'some/topic', None, CMQC.MQOO_INPUT_SHARED)
        """,
    )
    assert results == {
        "od": 2044,
        "od version": 2044,
        "md": 2026,
        "md version": 2026,
        "pmo": 2173,
        "gmo": 2186,
        "sd": 2424,
        "open options": 2046,
        "put options": 2046,
        "get": 2037,
        "unknown": 2085,
        "topic for input": 2045,
    }
