"""Functions that only ibmmq has: asynchronous consume, MQSTAT, MQSUBRQ, several attributes, put with properties of
a reply.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.helpers.client_packages import connecting, package
from tests.helpers.client_programs import Manager
from tests.helpers.installed import CLIENT_PACKAGES, missing

CONSUMER = """
calls = []
def consume(**call):
    cbc = call['cbc']
    calls.append([cbc.CallType, cbc.CompCode, cbc.Reason, call['msg']])
    if call['msg'] == b'answer me':
        mq.Queue(qmgr, queue + '.ANSWERS').put(b'answer')
def wait(count):
    deadline = time.monotonic() + 30
    while len(calls) < count and time.monotonic() < deadline:
        time.sleep(0.01)
"""


@pytest.fixture
def ibmmq() -> str:
    if not (CLIENT_PACKAGES / "ibmmq" / "ibmmq").is_dir():
        missing("ibmmq on the stand-in", "tests/programs.sh")
    return "ibmmq"


def test_asynchronous_consume(manager: Manager, ibmmq: str, queue: str) -> None:
    manager.command(f"DEFINE QLOCAL({queue}.ANSWERS)")
    results = manager.run(
        ibmmq,
        f"queue = {queue!r}\n{CONSUMER}"
        + """
def put(data):
    other = mq.connect('MQB1', 'SYSTEM.DEF.SVRCONN', 'localhost(1414)')
    mq.Queue(other, queue).put(data)
    other.disconnect()
into = mq.Queue(qmgr, queue, CMQC.MQOO_INPUT_SHARED)
results['too early'] = reason(qmgr.ctl, CMQC.MQOP_START, mq.CTLO())
cbd = mq.CBD(CallbackFunction=consume)
gmo = mq.GMO(Options=CMQC.MQGMO_WAIT | CMQC.MQGMO_NO_SYNCPOINT, WaitInterval=CMQC.MQWI_UNLIMITED)
into.cb(operation=CMQC.MQOP_REGISTER, cbd=cbd, md=mq.MD(), gmo=gmo)
put(b'before')
qmgr.ctl(CMQC.MQOP_START, mq.CTLO())
wait(1)
results['busy'] = reason(into.get)
put(b'x' * 200_000)
put(b'answer me')
wait(3)
results['calls'] = [[*call[:3], len(call[3])] for call in calls]
qmgr.ctl(CMQC.MQOP_SUSPEND, mq.CTLO())
put(b'while suspended')
time.sleep(0.2)
results['suspended'] = len(calls)
qmgr.ctl(CMQC.MQOP_RESUME, mq.CTLO())
wait(4)
qmgr.ctl(CMQC.MQOP_STOP, mq.CTLO())
results['resumed'] = calls[-1][3]
results['answer'] = mq.Queue(qmgr, queue + '.ANSWERS', CMQC.MQOO_INPUT_SHARED).get()
put(b'after')
time.sleep(0.1)
results['stopped'] = [len(calls), into.get()]
into.cb(operation=CMQC.MQOP_DEREGISTER, cbd=cbd, md=mq.MD(), gmo=gmo)
results['deregistered'] = reason(into.cb, operation=CMQC.MQOP_DEREGISTER, cbd=cbd, md=mq.MD(), gmo=gmo)
qmgr.disconnect()
""",
    )
    manager.command(f"DELETE QLOCAL({queue}.ANSWERS) PURGE")
    assert results == {
        "too early": 2446,
        "busy": 2500,
        "calls": [[6, 0, 0, 6], [6, 0, 0, 200_000], [6, 0, 0, 9]],
        "suspended": 3,
        "resumed": "while suspended",
        "answer": "answer",
        "stopped": [4, "after"],
        "deregistered": 2448,
    }


def test_closing_a_handle_deregisters_its_consumer(manager: Manager, ibmmq: str, queue: str) -> None:
    """MQCLOSE and MQDISC deregister consumers, and call those that requested it (MQCBDO_DEREGISTER_CALL)."""
    results = manager.run(
        ibmmq,
        f"queue = {queue!r}\n{CONSUMER}"
        + """
opened = [mq.Queue(qmgr, queue, CMQC.MQOO_INPUT_SHARED) for _ in range(3)]
gmo = mq.GMO(Options=CMQC.MQGMO_WAIT | CMQC.MQGMO_NO_SYNCPOINT, WaitInterval=CMQC.MQWI_UNLIMITED)
for queue_of_consumer, options in zip(opened, (CMQC.MQCBDO_DEREGISTER_CALL, CMQC.MQCBDO_DEREGISTER_CALL, CMQC.MQCBDO_NONE)):
    cbd = mq.CBD(CallbackFunction=consume, Options=options)
    queue_of_consumer.cb(operation=CMQC.MQOP_REGISTER, cbd=cbd, md=mq.MD(), gmo=gmo)
opened[0].close()
results['closed'] = [call[0] for call in calls]
qmgr.disconnect()
results['disconnected'] = [call[0] for call in calls]
""",
    )
    deregistered = 4  # MQCBCT_DEREGISTER_CALL
    assert results["closed"] == [deregistered]
    assert results["disconnected"] == [deregistered, deregistered]


def test_a_suspended_consumer_receives_nothing(manager: Manager, ibmmq: str, queue: str) -> None:
    """This applies as soon as MQCTL has returned, even if the consumer was waiting for a message."""
    results = manager.run(
        ibmmq,
        f"queue = {queue!r}\n{CONSUMER}"
        + """
other = mq.Queue(mq.connect('MQB1', 'SYSTEM.DEF.SVRCONN', 'localhost(1414)'), queue,
                 CMQC.MQOO_OUTPUT | CMQC.MQOO_INPUT_SHARED)
into = mq.Queue(qmgr, queue, CMQC.MQOO_INPUT_SHARED)
gmo = mq.GMO(Options=CMQC.MQGMO_WAIT | CMQC.MQGMO_NO_SYNCPOINT, WaitInterval=CMQC.MQWI_UNLIMITED)
into.cb(operation=CMQC.MQOP_REGISTER, cbd=mq.CBD(CallbackFunction=consume), md=mq.MD(), gmo=gmo)
qmgr.ctl(CMQC.MQOP_START, mq.CTLO())
for number in range(1, 21):
    other.put(b'for the consumer')
    wait(number)
    qmgr.ctl(CMQC.MQOP_SUSPEND, mq.CTLO())
    other.put(b'while suspended')
    results[str(number)] = [reason(other.get), reason(into.get)]
    qmgr.ctl(CMQC.MQOP_RESUME, mq.CTLO())
results['calls'] = len(calls)
qmgr.disconnect()
""",
    )
    # The program can use the handle again, and no callback is left.
    assert results == {str(number): [0, 2033] for number in range(1, 21)} | {"calls": 20}


def test_a_consumer_is_called_if_there_is_no_message(manager: Manager, ibmmq: str, queue: str) -> None:
    results = manager.run(
        ibmmq,
        f"queue = {queue!r}\n{CONSUMER}"
        + """
into = mq.Queue(qmgr, queue, CMQC.MQOO_INPUT_SHARED)
gmo = mq.GMO(Options=CMQC.MQGMO_WAIT | CMQC.MQGMO_NO_SYNCPOINT, WaitInterval=100)
into.cb(operation=CMQC.MQOP_REGISTER, cbd=mq.CBD(CallbackFunction=consume), md=mq.MD(), gmo=gmo)
qmgr.ctl(CMQC.MQOP_START, mq.CTLO())
wait(2)
qmgr.disconnect()
results['calls'] = [call[:3] for call in calls[:2]]
""",
    )
    assert results == {"calls": [[5, 2, 2033], [5, 2, 2033]]}


def test_a_message_that_is_too_long_for_its_consumer_is_reported_once(manager: Manager, ibmmq: str, queue: str) -> None:
    """MQCBCT_MSG_NOT_REMOVED with MQRC_TRUNCATED_MSG_FAILED: the message stays, and the consumer is suspended."""
    results = manager.run(
        ibmmq,
        f"queue = {queue!r}\n{CONSUMER}"
        + """
into = mq.Queue(qmgr, queue, CMQC.MQOO_INPUT_SHARED)
gmo = mq.GMO(Options=CMQC.MQGMO_WAIT | CMQC.MQGMO_NO_SYNCPOINT, WaitInterval=CMQC.MQWI_UNLIMITED)
small = mq.CBD(CallbackFunction=consume, MaxMsgLength=4)
into.cb(operation=CMQC.MQOP_REGISTER, cbd=small, md=mq.MD(), gmo=gmo)
other = mq.connect('MQB1', 'SYSTEM.DEF.SVRCONN', 'localhost(1414)')
mq.Queue(other, queue).put(b'0123456789')
qmgr.ctl(CMQC.MQOP_START, mq.CTLO())
wait(1)
time.sleep(0.3)
qmgr.ctl(CMQC.MQOP_STOP, mq.CTLO())
results['calls'] = [call[:3] for call in calls]
into.cb(operation=CMQC.MQOP_REGISTER, cbd=mq.CBD(CallbackFunction=consume), md=mq.MD(), gmo=gmo)
qmgr.ctl(CMQC.MQOP_START, mq.CTLO())
wait(2)
results['then'] = calls[1]
qmgr.disconnect()
""",
    )
    assert results == {"calls": [[7, 1, 2080]], "then": [6, 0, 0, "0123456789"]}


def test_a_consumer_survives_get_disabled(manager: Manager, ibmmq: str, queue: str) -> None:
    """It is called with MQRC_GET_INHIBITED, the event handler is not. It gets messages again after the queue is enabled."""
    results = manager.run(
        ibmmq,
        f"queue = {queue!r}\n{CONSUMER}"
        + """
events = []
into = mq.Queue(qmgr, queue, CMQC.MQOO_INPUT_SHARED | CMQC.MQOO_SET)
gmo = mq.GMO(Options=CMQC.MQGMO_WAIT | CMQC.MQGMO_NO_SYNCPOINT, WaitInterval=CMQC.MQWI_UNLIMITED)
into.cb(operation=CMQC.MQOP_REGISTER, cbd=mq.CBD(CallbackFunction=consume), md=mq.MD(), gmo=gmo)
results['before'] = [reason(qmgr.ctl, what, mq.CTLO()) for what in (CMQC.MQOP_SUSPEND, CMQC.MQOP_RESUME)]
other = mq.connect('MQB1', 'SYSTEM.DEF.SVRCONN', 'localhost(1414)')
way = mq.Queue(other, queue, CMQC.MQOO_SET | CMQC.MQOO_OUTPUT)
way.set(CMQC.MQIA_INHIBIT_GET, CMQC.MQQA_GET_INHIBITED)
qmgr.ctl(CMQC.MQOP_START, mq.CTLO())
wait(1)
results['told'] = calls[0][:3]
way.set(CMQC.MQIA_INHIBIT_GET, CMQC.MQQA_GET_ALLOWED)
way.put(b'again')
deadline = time.monotonic() + 30
while calls[-1][3] != b'again' and time.monotonic() < deadline:
    time.sleep(0.01)
results['last'] = calls[-1]
qmgr.disconnect()
""",
    )
    assert results == {"before": [2534, 2534], "told": [5, 2, 2016], "last": [6, 0, 0, "again"]}


def test_several_attributes(manager: Manager, ibmmq: str, queue: str) -> None:
    manager.command(f"ALTER QLOCAL({queue}) DESCR('a queue') MAXDEPTH(77)")
    results = manager.run(
        ibmmq,
        f"""
        queue = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_INQUIRE | CMQC.MQOO_SET)
        wanted = [CMQC.MQCA_Q_DESC, CMQC.MQIA_MAX_Q_DEPTH, CMQC.MQCA_Q_NAME, CMQC.MQIA_Q_TYPE]
        answers = queue.inquire(wanted)
        results['answers'] = [answers[selector] for selector in wanted]
        results['selector'] = reason(queue.inquire, [CMQC.MQIA_LAST])
        queue.set({{CMQC.MQIA_INHIBIT_GET: CMQC.MQQA_GET_INHIBITED, CMQC.MQIA_INHIBIT_PUT: CMQC.MQQA_PUT_INHIBITED}})
        results['set'] = queue.inquire([CMQC.MQIA_INHIBIT_GET, CMQC.MQIA_INHIBIT_PUT])
        queue.close()
        other = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_INQUIRE)
        results['not for set'] = reason(other.set, CMQC.MQIA_INHIBIT_GET, 0)
        """,
    )
    texts = [answer.strip() if isinstance(answer, str) else answer for answer in results["answers"]]
    assert texts == ["a queue", 77, queue, 1]
    assert results["set"] == {"9": 1, "10": 1}
    assert results["selector"] in (2067, 2068)
    assert results["not for set"] == 2040


def test_status_of_asynchronous_puts(manager: Manager, ibmmq: str, queue: str) -> None:
    results = manager.run(
        ibmmq,
        f"""
        queue = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_OUTPUT)
        pmo = mq.PMO(Options=CMQC.MQPMO_ASYNC_RESPONSE | CMQC.MQPMO_NO_SYNCPOINT)
        for _ in range(3):
            queue.put(b'x', mq.MD(), pmo)
        sts = qmgr.stat(CMQC.MQSTAT_TYPE_ASYNC_ERROR)
        results['good'] = [sts.PutSuccessCount, sts.PutFailureCount, sts.CompCode]
        inhibit = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_SET)
        inhibit.set(CMQC.MQIA_INHIBIT_PUT, CMQC.MQQA_PUT_INHIBITED)
        results['put'] = reason(queue.put, b'x', mq.MD(), pmo)
        sts = qmgr.stat(CMQC.MQSTAT_TYPE_ASYNC_ERROR)
        results['bad'] = [sts.PutSuccessCount, sts.PutFailureCount, sts.CompCode, sts.Reason]
        results['object'] = sts.ObjectName
        """,
    )
    assert results["good"] == [3, 0, 0]
    assert results["put"] == 0
    assert results["bad"] == [0, 1, 2, 2051]
    assert results["object"].strip() == queue


def test_subscription_request(manager: Manager, ibmmq: str) -> None:
    results = manager.run(
        ibmmq,
        """
        topic = mq.Topic(qmgr, topic_string='on/request')
        topic.open(open_opts=CMQC.MQOO_OUTPUT)
        topic.pub(b'kept', mq.MD(), mq.PMO(Options=CMQC.MQPMO_RETAIN))
        subscription = mq.Subscription(qmgr)
        subscription.sub(sub_opts=CMQC.MQSO_CREATE | CMQC.MQSO_MANAGED | CMQC.MQSO_PUBLICATIONS_ON_REQUEST,
                         topic_string='on/request')
        results['before'] = reason(subscription.get)
        sro = mq.SRO()
        subscription.subrq(sro=sro)
        results['number'] = sro.NumPubs
        results['data'] = subscription.get(None, mq.MD(), mq.GMO(Options=CMQC.MQGMO_NO_PROPERTIES))
        subscription.close(close_sub_queue=True)
        """,
    )
    assert results == {"before": 2033, "number": 1, "data": "kept"}


def test_buffer_and_handle(manager: Manager, ibmmq: str) -> None:
    """MQMHBUF and MQBUFMH, which no package calls: a program with ibmmq's structures calls them with ctypes."""
    results = manager.run(
        ibmmq,
        """
        import ctypes
        library = ctypes.CDLL('libmqm_r.so')
        def call(verb, *arguments):
            codes = ctypes.c_int32(), ctypes.c_int32()
            getattr(library, verb)(*arguments, *(ctypes.byref(code) for code in codes))
            return [code.value for code in codes]
        def options(struc_id, value):
            return struc_id + (1).to_bytes(4, 'little') + value.to_bytes(4, 'little')
        hconn = ctypes.c_int32(qmgr.get_handle())
        handle = mq.MessageHandle(qmgr)
        handle.properties.set('colour', 'green')
        handle.properties.set('size', 5, property_type=CMQC.MQTYPE_INT32)
        md = ctypes.create_string_buffer(mq.MD(Format=CMQC.MQFMT_STRING).pack())
        name = mq.OD(Version=CMQC.MQOD_VERSION_4)
        name.set_vs('ObjectString', b'%')
        at = 344  # of ObjectString in the MQOD
        charv = name.pack()[at:at + 24]
        buffer, length = ctypes.create_string_buffer(1000), ctypes.c_int32()
        hmsg = ctypes.c_int64(handle.get_handle())
        results['short'] = call('MQMHBUF', hconn, hmsg, options(b'MHBO', 1), charv, md, 10, buffer, ctypes.byref(length))
        results['made'] = call('MQMHBUF', hconn, hmsg, options(b'MHBO', 3), charv, md, 1000, buffer, ctypes.byref(length))
        results['rfh2'] = [buffer.raw[:4], mq.MD().unpack(md.raw[:364]).Format, b'<colour>green</colour>' in buffer.raw]
        results['deleted'] = reason(handle.properties.get, 'colour')
        total = length.value
        results['read'] = call('MQBUFMH', hconn, hmsg, options(b'BMHO', 1), md, total, buffer, ctypes.byref(length))
        results['back'] = [length.value, handle.properties.get('size', property_type=CMQC.MQTYPE_INT32),
                         mq.MD().unpack(md.raw[:364]).Format]
        """,
    )
    assert results == {
        "short": [2, 2478],
        "made": [0, 0],
        "rfh2": ["RFH ", "MQHRF2  ", True],
        "deleted": 2471,
        "read": [0, 0],
        "back": [0, 5, "MQSTR   "],
    }


@pytest.mark.smoke
def test_a_handle_is_not_reused_before_mqdisc_has_returned(
    manager: Manager, ibmmq: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ibmmq frees the buffers of MQGET by connection handle after MQDISC. They must not belong to another thread."""
    calls = package(ibmmq).ibmmqc
    mqdisc = calls.MQDISC
    free, returns = threading.Event(), threading.Event()

    def slow(handle: int) -> object:
        result = mqdisc(handle)
        free.set()
        returns.wait()
        return result

    with connecting(ibmmq, manager.place) as connect, ThreadPoolExecutor() as threads:
        first = connect()
        with monkeypatch.context() as patch:
            patch.setattr(calls, "MQDISC", slow)
            disconnecting = threads.submit(first.disconnect)
            free.wait()
            try:
                connecting_again = threads.submit(connect)
                with pytest.raises(TimeoutError):
                    connecting_again.result(0.3)
            finally:
                returns.set()
            disconnecting.result()
        connecting_again.result().disconnect()
