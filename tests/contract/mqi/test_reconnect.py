"""MQCNO_RECONNECT: a program continues after its connection broke, and learns which results are unknown.

Source: IBM MQ, "Automatic client reconnection".
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.mqi import MQOD
from bridge.telemetry.message import Message
from bridge.wire.mq import MQMD
from tests.helpers.client_programs import Manager
from tests.helpers.patience import until
from tests.ibm_standin.mqi.connection import StandInConnection

CONNECT = """
cd = mq.CD(ChannelName=b'CHANNEL', ConnectionName=b'localhost(1414)', ChannelType=6, TransportType=2)
qmgr = mq.QueueManager(None)
qmgr.connect_with_options({name!r}, cd=cd, opts=CMQC.{option} | CMQC.MQCNO_HANDLE_SHARE_BLOCK)
"""
UNIT = """
queue = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_OUTPUT | CMQC.MQOO_INQUIRE | CMQC.MQOO_INPUT_SHARED)
def puts():
    return [reason(queue.put, b'x', mq.MD(), mq.PMO(Options=CMQC.MQPMO_SYNCPOINT)) for _ in range(3)]
results['puts'] = puts()
results['end'] = reason(qmgr.{end})
results['puts again'] = puts()
results['end again'] = reason(qmgr.commit)
"""


def program(text: str, option: str = "MQCNO_RECONNECT", name: str = "MQB1") -> str:
    return CONNECT.format(option=option, name=name) + textwrap.dedent(text)


@pytest.mark.parametrize(
    ("cut", "end", "puts", "ended", "depth"),
    [
        ("MQPUT:1:before", "commit", [0, 0, 0], 0, 6),  # the unit of work was empty: the put is repeated
        ("MQPUT:1:after", "commit", [0, 0, 0], 0, 6),
        ("MQPUT:2:before", "commit", [0, 2003, 2003], 2003, 3),
        ("MQPUT:2:after", "commit", [0, 2003, 2003], 2003, 3),
        ("MQPUT:2", "backout", [0, 2003, 2003], 0, 3),
        ("MQCMIT:1:before", "commit", [0, 0, 0], 2549, 3),
        ("MQCMIT:1:after", "commit", [0, 0, 0], 2549, 6),
        ("MQBACK:1:before", "backout", [0, 0, 0], 0, 3),
    ],
)
def test_a_unit_of_work(
    manager: Manager, package: str, queue: str, cut: str, end: str, puts: list[int], ended: int, depth: int
) -> None:
    """It is backed out, and the next call reports that. The outcome of a commit in progress is unknown."""
    results = manager.run(package, program(UNIT.format(queue=queue, end=end)), connect=False, MQI_STANDIN_CUT=cut)
    assert results == {"puts": puts, "end": ended, "puts again": [0, 0, 0], "end again": 0}
    manager.wait_for_depth(queue, depth)


@pytest.mark.parametrize(
    ("cut", "reasons", "depth"),
    [
        ("MQPUT:1:before", {"put": 2549}, 0),
        ("MQPUT:1:after", {"put": 2549, "got": "x"}, 0),
        ("MQOPEN:1", {"got": "x"}, 0),
        ("MQINQ:1:after", {"got": "x"}, 0),
        ("MQGET:1:before", {"got": "x"}, 0),
        ("MQCLOSE:1", {"got": "x"}, 0),
    ],
)
def test_outside_of_a_unit_of_work(
    manager: Manager, package: str, queue: str, cut: str, reasons: dict[str, Any], depth: int
) -> None:
    results = manager.run(
        package,
        program(f"""
            queue = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_OUTPUT | CMQC.MQOO_INQUIRE | CMQC.MQOO_INPUT_SHARED)
            results['put'] = reason(queue.put, b'x')
            results['type'] = queue.inquire(CMQC.MQIA_Q_TYPE)
            try:
                results['got'] = queue.get()
            except mq.MQMIError as error:
                results['get'] = error.reason
            results['close'] = reason(queue.close)
            results['disconnect'] = reason(qmgr.disconnect)
            """),
        connect=False,
        MQI_STANDIN_CUT=cut,
    )
    expected = {"put": 0, "type": 1, "close": 0, "disconnect": 0} | reasons
    assert results == (expected if "got" in expected else expected | {"get": 2033})
    manager.wait_for_depth(queue, depth)


def put_to_go(manager: Manager) -> None:
    connection = StandInConnection(manager.itself, "tests")
    connection.put1(MQOD(ObjectName="GO"), Message(MQMD(), b"go"))
    connection.disconnect()


class Restarted:
    """A queue manager that ends while a program waits for a message on queue GO, and that can be restarted."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.manager = Manager(directory)
        self.manager.command("DEFINE QLOCAL(GO)")

    def end_under(self, package: str, text: str, executor: Executor, **variables: str) -> Future[dict[str, Any]]:
        """Run a program until it waits, and end the queue manager."""
        ran = executor.submit(self.manager.run, package, text, connect=False, **variables)
        until(lambda: ran.done() or self.manager.itself.objects.queues["GO"].waiters)
        assert not ran.done(), ran.result()
        self.manager.close()
        return ran

    def start(self) -> None:
        self.manager = Manager(self._directory)

    def run(self, package: str, text: str, first: str = "") -> dict[str, Any]:
        """Run a program, restart the queue manager, run a command, and put a message on GO."""
        with ThreadPoolExecutor(1) as executor:
            ran = self.end_under(package, text, executor)
            before = QueueManager("MQB1", self._directory)  # unreachable
            if first:
                (response,) = StandInConnection(before, "tests").command(first)
                assert response.ok, response.message
            before.close()
            self.start()
            put_to_go(self.manager)
            return ran.result()


@pytest.fixture
def restarted(tmp_path: Path) -> Iterator[Restarted]:
    restarted = Restarted(tmp_path)
    yield restarted
    restarted.manager.close()


GO = """
def get(queue, interval=CMQC.MQWI_UNLIMITED):
    gmo = mq.GMO(Options=CMQC.MQGMO_WAIT | CMQC.MQGMO_NO_SYNCPOINT, WaitInterval=interval)
    return queue.get(None, mq.MD(), gmo)
def wait_for_the_start():
    return get(mq.Queue(qmgr, 'GO', CMQC.MQOO_INPUT_SHARED))
"""


@pytest.mark.smoke
def test_a_restarted_queue_manager(restarted: Restarted, package: str) -> None:
    """Open handles are restored: exclusive input, dynamic queues, managed subscriptions. Closed ones are not."""
    for queue in ("CLOSED", "EXCLUSIVE"):
        restarted.manager.command(f"DEFINE QLOCAL({queue})")
    results = restarted.run(
        package,
        program(
            GO
            + """
def subscribed(topic, name=None):
    sd = mq.SD(Options=CMQC.MQSO_CREATE | CMQC.MQSO_MANAGED | (CMQC.MQSO_DURABLE if name else 0))
    sd.set_vs('ObjectString', topic)
    if name:
        sd.set_vs('SubName', name)
    subscription = mq.Subscription(qmgr)
    subscription.sub(sub_desc=sd)
    return subscription
mq.Queue(qmgr, 'CLOSED', CMQC.MQOO_INPUT_EXCLUSIVE).close()
passing = subscribed('a/b')
exclusive = mq.Queue(qmgr, 'EXCLUSIVE', CMQC.MQOO_INPUT_EXCLUSIVE | CMQC.MQOO_OUTPUT)
lasting = subscribed('c/d', 'THAT.LASTS')
od = mq.OD(ObjectName=b'SYSTEM.DEFAULT.MODEL.QUEUE', DynamicQName=b'OWN.*')
own = mq.Queue(qmgr, od, CMQC.MQOO_INPUT_EXCLUSIVE)
name = od.ObjectName.strip(b' \\0')
results['waited'] = wait_for_the_start()
for queue in ('EXCLUSIVE', name, 'CLOSED'):
    mq.Queue(qmgr, queue, CMQC.MQOO_OUTPUT).put(b'to a queue')
for topic in ('a/b', 'c/d'):
    mq.Topic(qmgr, topic_string=topic, open_opts=CMQC.MQOO_OUTPUT).pub(topic.encode())
gmo = mq.GMO(Options=CMQC.MQGMO_WAIT | CMQC.MQGMO_NO_PROPERTIES, WaitInterval=30_000)
results['queues'] = [get(exclusive, 0), get(own, 0)]
results['topics'] = [subscription.get(None, mq.MD(), gmo) for subscription in (passing, lasting)]
for subscription in (passing, lasting):
    subscription.close(close_sub_queue=True)
results['closed'] = [reason(opened.close) for opened in (exclusive, own)]
results['end'] = reason(qmgr.disconnect)
""",
            "MQCNO_RECONNECT_Q_MGR",
        ),
    )
    assert results == {
        "waited": "go",
        "queues": ["to a queue", "to a queue"],
        "topics": ["a/b", "c/d"],
        "closed": [0, 0],
        "end": 0,
    }


@pytest.mark.parametrize(("meanwhile", "waited"), [("DELETE QLOCAL(Q)", 2548), ("ALTER QLOCAL(Q) GET(DISABLED)", 0)])
def test_objects_that_cannot_be_opened_again(restarted: Restarted, package: str, meanwhile: str, waited: int) -> None:
    """The connection ends if an object that was open no longer exists."""
    restarted.manager.command("DEFINE QLOCAL(Q)")
    results = restarted.run(
        package,
        program(
            GO
            + """
queue = mq.Queue(qmgr, 'Q', CMQC.MQOO_OUTPUT)
results['waited'] = reason(wait_for_the_start)
results['put'] = reason(queue.put, b'x')
"""
        ),
        meanwhile,
    )
    assert results == {"waited": waited, "put": 2009 if waited else 0}


@pytest.mark.parametrize("package", ["ibmmq"], indirect=True)  # pymqi has no MQCB
def test_the_event_handler_and_consumers(restarted: Restarted, package: str) -> None:
    """It is called for the reconnection, and consumers continue."""
    results = restarted.run(
        package,
        program("""
events, data, came = [], [], threading.Event()
def handle(**call):
    events.append([call['cbc'].CompCode, call['cbc'].Reason, reason(qmgr.commit)])
def consume(**call):
    data.append(call['msg'])
    came.set()
go = mq.Queue(qmgr, 'GO', CMQC.MQOO_INPUT_SHARED)
gmo = mq.GMO(Options=CMQC.MQGMO_WAIT | CMQC.MQGMO_NO_SYNCPOINT, WaitInterval=CMQC.MQWI_UNLIMITED)
go.cb(operation=CMQC.MQOP_REGISTER, cbd=mq.CBD(CallbackFunction=consume), md=mq.MD(), gmo=gmo)
handler = mq.CBD(CallbackFunction=handle, CallbackType=CMQC.MQCBT_EVENT_HANDLER)
qmgr.cb(operation=CMQC.MQOP_REGISTER, cbd=handler)
qmgr.ctl(CMQC.MQOP_START, mq.CTLO())
came.wait(60)
qmgr.ctl(CMQC.MQOP_STOP, mq.CTLO())
results.update(events=events, data=data)
"""),
    )
    # A call in the handler would never return: MQRC_CALL_IN_PROGRESS.
    assert results == {"events": [[1, 2544, 2219], [1, 2545, 2219]], "data": ["go"]}


@pytest.mark.smoke
def test_a_queue_manager_that_does_not_return(restarted: Restarted, package: str) -> None:
    text = program(GO + "results['reasons'] = [reason(wait_for_the_start), reason(qmgr.commit)]")
    with ThreadPoolExecutor(1) as executor:
        ran = restarted.end_under(package, text, executor, MQI_STANDIN_RECONNECT_TIMEOUT="0")
        assert ran.result() == {"reasons": [2556, 2009]}
    restarted.start()


@pytest.mark.parametrize(
    ("option", "defrecon", "commit"),
    [
        ("MQCNO_RECONNECT_AS_DEF", "NO", 2009),
        ("MQCNO_RECONNECT_AS_DEF", "YES", 0),
        ("MQCNO_RECONNECT_AS_DEF", "QMGR", 0),
        ("MQCNO_RECONNECT_AS_DEF", "DISABLED", 2009),
        ("MQCNO_RECONNECT_DISABLED", "YES", 2009),
        ("MQCNO_RECONNECT_Q_MGR", "NO", 0),
    ],
)
def test_which_connections_reconnect(manager: Manager, package: str, option: str, defrecon: str, commit: int) -> None:
    number = ("NO", "YES", "QMGR", "DISABLED").index(defrecon)
    text = program("results['commit'] = reason(qmgr.commit)", option).replace(
        "cd=cd", f"cd=(setattr(cd, 'Version', 10), setattr(cd, 'DefReconnect', {number}), cd)[-1]"
    )
    assert manager.run(package, text, connect=False, MQI_STANDIN_CUT="MQCMIT:1:before") == {"commit": commit}


@pytest.mark.parametrize(("option", "waited"), [("MQCNO_RECONNECT", 0), ("MQCNO_RECONNECT_Q_MGR", 2546)])
def test_another_queue_manager(restarted: Restarted, package: str, tmp_path: Path, option: str, waited: int) -> None:
    """With MQCNO_RECONNECT, any queue manager of a group is accepted."""
    other = Manager(tmp_path / "other", name="MQB2")
    other.command("DEFINE QLOCAL(GO)")
    put_to_go(other)
    text = program(GO + "results['waited'] = reason(wait_for_the_start)", option, "*GROUP")
    with ThreadPoolExecutor(1) as executor:
        places = f"{restarted.manager.place},{other.place}"
        assert restarted.end_under(package, text, executor, MQI_STANDIN=places).result() == {"waited": waited}
    other.close()
    restarted.start()


@pytest.mark.parametrize(("option", "durable"), [("MQCNO_RECONNECT", 2555), ("MQCNO_RECONNECT_Q_MGR", 0)])
def test_options_that_are_not_allowed_with_reconnection(
    manager: Manager, package: str, queue: str, option: str, durable: int
) -> None:
    """2547: the options depend on lost state. 2555: on the same queue manager ("MQRC_RECONNECT_Q_MGR_REQD")."""
    results = manager.run(
        package,
        program(
            f"""
            queue = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_OUTPUT)
            results['order'] = reason(queue.put, b'x', mq.MD(Version=2), mq.PMO(Options=CMQC.MQPMO_LOGICAL_ORDER))
            into = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_INPUT_SHARED)
            token = mq.GMO(Version=3, MatchOptions=CMQC.MQMO_MATCH_MSG_TOKEN, MsgToken=b'1' * 16)
            results['token'] = reason(into.get, None, mq.MD(), token)
            sd = mq.SD(Options=CMQC.MQSO_CREATE | CMQC.MQSO_MANAGED | CMQC.MQSO_DURABLE)
            sd.set_vs('SubName', {queue!r})
            sd.set_vs('ObjectString', 'a/b')
            subscription = mq.Subscription(qmgr)
            results['durable'] = reason(subscription.sub, sub_desc=sd)
            if not results['durable']:
                subscription.close(CMQC.MQCO_REMOVE_SUB, close_sub_queue=True)
            """,
            option,
        ),
        connect=False,
    )
    assert results == {"order": 2547, "token": durable or 2033, "durable": durable}
