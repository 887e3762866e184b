"""Programs for IBM MQ on the real packages: put and get, browse, units of work, request and reply, publish and subscribe."""

from __future__ import annotations

import pytest

from tests.helpers.client_programs import Manager


@pytest.mark.smoke
def test_put_and_get(manager: Manager, package: str, queue: str) -> None:
    results = manager.run(
        package,
        f"""
        mq.Queue(qmgr, {queue!r}).put(b'Hello from Python!')
        queue = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_INPUT_SHARED)
        md = mq.MD()
        results['data'] = queue.get(None, md)
        results['put by'] = md.PutApplName
        results['id'] = md.MsgId[:4]
        results['empty'] = reason(queue.get)
        queue.close()
        qmgr.disconnect()
        """,
    )
    assert results["data"] == "Hello from Python!"
    assert results["id"] == "AMQ "
    assert results["put by"].strip()
    assert results["empty"] == 2033


@pytest.mark.smoke
def test_descriptors_are_transferred_completely(manager: Manager, package: str, queue: str) -> None:
    results = manager.run(
        package,
        f"""
        od = mq.OD(ObjectName={queue.encode()!r}, Version=CMQC.MQOD_VERSION_4)
        queue = mq.Queue(qmgr)
        queue.open(od, CMQC.MQOO_OUTPUT | CMQC.MQOO_INPUT_SHARED)
        md = mq.MD(Version=CMQC.MQMD_VERSION_2, MsgType=CMQC.MQMT_REQUEST, ReplyToQ=b'ANSWERS', Priority=3,
                   Format=CMQC.MQFMT_STRING, CorrelId=b'c' * 24, Expiry=6000, CodedCharSetId=1208,
                   Persistence=CMQC.MQPER_NOT_PERSISTENT, ApplIdentityData=b'')
        pmo = mq.PMO(Options=CMQC.MQPMO_NO_SYNCPOINT | CMQC.MQPMO_NEW_MSG_ID)
        queue.put(b'12345', md, pmo)
        results['pmo'] = [pmo.ResolvedQName.strip(b' \\0'), pmo.ResolvedQMgrName.strip(b' \\0'), pmo.KnownDestCount]
        results['put'] = [md.ReplyToQMgr.strip(b' \\0'), md.PutDate.isdigit(), md.MsgId != bytes(24)]
        got = mq.MD(Version=CMQC.MQMD_VERSION_2)
        gmo = mq.GMO(Version=CMQC.MQGMO_VERSION_3)
        gmo.Options = CMQC.MQGMO_NO_SYNCPOINT
        queue.get(100, got, gmo)
        results['same id'] = got.MsgId == md.MsgId
        results['got'] = [got.MsgType, got.ReplyToQ.strip(b' \\0'), got.Priority, got.Format, got.CorrelId, got.Persistence,
                        got.CodedCharSetId, 5900 < got.Expiry <= 6000, got.StrucId if hasattr(got, 'StrucId') else b'MD  ',
                        got.MsgSeqNumber]
        results['gmo'] = [gmo.ResolvedQName.strip(b' \\0'), gmo.ReturnedLength, gmo.MsgToken != bytes(16)]
        results['od'] = [od.ResolvedQMgrName.strip(b' \\0'), od.ResolvedType]
        """,
    )
    assert results["pmo"] == [queue, "MQB1", 1]
    assert results["put"] == ["MQB1", True, True]
    assert results["same id"]
    assert results["got"] == [1, "ANSWERS", 3, "MQSTR   ", "c" * 24, 0, 1208, True, "MD  ", 1]
    assert results["gmo"] == [queue, 5, True]


def test_waiting_get(manager: Manager, package: str, queue: str) -> None:
    """A get waits in the queue manager. Meanwhile, other threads of the program use their own connections."""
    program = f"""
        def waiting(interval):
            return mq.GMO(Options=CMQC.MQGMO_WAIT | CMQC.MQGMO_FAIL_IF_QUIESCING, WaitInterval=interval)
        def meanwhile():
            other = mq.connect('MQB1', 'SYSTEM.DEF.SVRCONN', 'localhost(1414)')
            mq.Queue(other, {queue!r} + '.GO', CMQC.MQOO_INPUT_SHARED).get(None, mq.MD(), waiting(CMQC.MQWI_UNLIMITED))
            mq.Queue(other, {queue!r}).put(b'at last')
            other.disconnect()
        start = time.monotonic()
        empty = mq.Queue(qmgr, {queue!r} + '.GO', CMQC.MQOO_INPUT_SHARED)
        results['nothing'] = reason(empty.get, None, mq.MD(), waiting(200))
        results['waited'] = time.monotonic() - start
        queue = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_INPUT_SHARED)
        thread = threading.Thread(target=meanwhile)
        thread.start()
        results['data'] = queue.get(None, mq.MD(), waiting(CMQC.MQWI_UNLIMITED))
        thread.join()
        """
    with manager.signal(queue):
        results = manager.run(package, program)
    assert results["nothing"] == 2033 and results["waited"] >= 0.2
    assert results["data"] == "at last"


def test_truncation(manager: Manager, package: str, queue: str) -> None:
    """A message that is too long stays, and its length is returned. MQGMO_ACCEPT_TRUNCATED_MSG gets the part that fits."""
    results = manager.run(
        package,
        f"""
        mq.Queue(qmgr, {queue!r}).put(b'0123456789')
        queue = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_INPUT_SHARED)
        try:
            queue.get(4)
        except mq.MQMIError as error:
            results['refused'] = [error.comp, error.reason, error.original_length]
        md = mq.MD()
        gmo = mq.GMO(Options=CMQC.MQGMO_ACCEPT_TRUNCATED_MSG)
        try:
            queue.get(4, md, gmo)
        except mq.MQMIError as error:
            results['accepted'] = [error.comp, error.reason, error.original_length, error.message]
        results['then'] = reason(queue.get)
        """,
    )
    assert results["refused"] == [1, 2080, 10]
    assert results["accepted"] == [1, 2079, 10, "0123"]
    assert results["then"] == 2033


def test_long_messages(manager: Manager, package: str, queue: str) -> None:
    """Without a length, both packages repeat the call with the length that the first call returned."""
    results = manager.run(
        package,
        f"""
        mq.Queue(qmgr, {queue!r}).put(b'x' * 3_000_000)
        mq.Queue(qmgr, {queue!r}).put(b'')
        queue = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_INPUT_SHARED)
        results['lengths'] = [len(queue.get()), len(queue.get())]
        """,
    )
    assert results["lengths"] == [3_000_000, 0]


def test_browse(manager: Manager, package: str, queue: str) -> None:
    results = manager.run(
        package,
        f"""
        for data in (b'1', b'2', b'3'):
            mq.Queue(qmgr, {queue!r}).put(data)
        queue = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_BROWSE | CMQC.MQOO_INPUT_SHARED)
        seen = []
        option = CMQC.MQGMO_BROWSE_FIRST
        while True:
            try:
                seen.append(queue.get(None, mq.MD(), mq.GMO(Options=option)))
            except mq.MQMIError as error:
                results['end'] = error.reason
                break
            option = CMQC.MQGMO_BROWSE_NEXT
            if seen[-1] == b'2':
                queue.get(None, mq.MD(), mq.GMO(Options=CMQC.MQGMO_MSG_UNDER_CURSOR))
        results['seen'] = seen
        results['left'] = [queue.get(), queue.get(), reason(queue.get)]
        """,
    )
    assert results == {"end": 2033, "seen": ["1", "2", "3"], "left": ["1", "3", 2033]}


def test_get_by_identifiers(manager: Manager, package: str, queue: str) -> None:
    results = manager.run(
        package,
        f"""
        ids = []
        for number in b'123':
            md = mq.MD(CorrelId=bytes([number]) * 24)
            mq.Queue(qmgr, {queue!r}).put(bytes([number]), md)
            ids.append(md.MsgId)
        queue = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_INPUT_SHARED)
        results['by correlation'] = queue.get(None, mq.MD(CorrelId=b'3' * 24))
        results['by message'] = queue.get(None, mq.MD(MsgId=ids[1]))
        results['none'] = reason(queue.get, None, mq.MD(MsgId=ids[1]))
        gmo = mq.GMO(Version=CMQC.MQGMO_VERSION_2, MatchOptions=CMQC.MQMO_NONE)
        results['any'] = queue.get(None, mq.MD(MsgId=ids[1]), gmo)
        """,
    )
    assert results == {"by correlation": "3", "by message": "2", "none": 2033, "any": "1"}


def test_units_of_work(manager: Manager, package: str, queue: str) -> None:
    results = manager.run(
        package,
        f"""
        out = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_OUTPUT)
        into = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_INPUT_SHARED)
        in_unit = mq.PMO(Options=CMQC.MQPMO_SYNCPOINT)
        got_in_unit = mq.GMO(Options=CMQC.MQGMO_SYNCPOINT)
        out.put(b'backed out', mq.MD(), in_unit)
        results['before'] = reason(into.get)
        qmgr.backout()
        out.put(b'kept', mq.MD(), in_unit)
        qmgr.commit()
        results['got'] = into.get(None, mq.MD(), got_in_unit)
        results['meanwhile'] = reason(into.get)
        qmgr.backout()
        md = mq.MD()
        results['again'] = into.get(None, md, got_in_unit)
        results['count'] = md.BackoutCount
        out.put(b'by disconnect', mq.MD(), in_unit)
        qmgr.disconnect()
        again = mq.connect('MQB1', 'SYSTEM.DEF.SVRCONN', 'localhost(1414)')
        results['after'] = mq.Queue(again, {queue!r}, CMQC.MQOO_INPUT_SHARED).get()
        """,
    )
    assert results == {
        "before": 2033,
        "got": "kept",
        "meanwhile": 2033,
        "again": "kept",
        "count": 1,
        "after": "by disconnect",
    }


def test_the_end_of_a_program_backs_out_its_work(manager: Manager, package: str, queue: str) -> None:
    manager.run(
        package,
        f"""
        import os
        mq.Queue(qmgr, {queue!r}).put(b'lost', mq.MD(), mq.PMO(Options=CMQC.MQPMO_SYNCPOINT))
        print('{{}}', flush=True)
        os._exit(0)
        """,
    )
    manager.wait_for_depth(queue, 0)


def test_request_and_reply(manager: Manager, package: str, queue: str) -> None:
    """The requester creates a dynamic queue for the reply. The replier copies the MsgId to CorrelId."""
    results = manager.run(
        package,
        f"""
        def reply():
            mine = mq.connect('MQB1', 'SYSTEM.DEF.SVRCONN', 'localhost(1414)')
            requests = mq.Queue(mine, {queue!r}, CMQC.MQOO_INPUT_SHARED)
            md = mq.MD()
            data = requests.get(None, md, mq.GMO(Options=CMQC.MQGMO_WAIT, WaitInterval=5000))
            answer = mq.MD(CorrelId=md.MsgId, MsgType=CMQC.MQMT_REPLY)
            od = mq.OD(ObjectName=md.ReplyToQ, ObjectQMgrName=md.ReplyToQMgr)
            mine.put1(od, data.upper(), answer)
            mine.disconnect()
        thread = threading.Thread(target=reply)
        thread.start()
        od = mq.OD(ObjectName=b'SYSTEM.DEFAULT.MODEL.QUEUE', DynamicQName=b'REPLIES.*')
        replies = mq.Queue(qmgr, od, CMQC.MQOO_INPUT_EXCLUSIVE)
        name = od.ObjectName.strip(b' \\0')
        results['name'] = name
        md = mq.MD(ReplyToQ=name, MsgType=CMQC.MQMT_REQUEST)
        mq.Queue(qmgr, {queue!r}).put(b'question', md)
        results['reply'] = replies.get(None, mq.MD(CorrelId=md.MsgId), mq.GMO(Options=CMQC.MQGMO_WAIT, WaitInterval=5000))
        thread.join()
        replies.close()
        results['gone'] = reason(mq.Queue(qmgr).open, name, CMQC.MQOO_OUTPUT)
        """,
    )
    assert results["name"].startswith("REPLIES.") and len(results["name"]) > len("REPLIES.")
    assert results["reply"] == "QUESTION"
    assert results["gone"] == 2085


def test_publish_and_subscribe(manager: Manager, package: str) -> None:
    results = manager.run(
        package,
        f"""
        def descriptor(name, options, topic=None):
            sd = mq.SD(Options=options)
            sd.set_vs('SubName', name)
            if topic:
                sd.set_vs('ObjectString', topic)
            return sd
        def received(subscription):
            data = []
            while True:
                try:
                    data.append(subscription.get(None, mq.MD(), mq.GMO(Options=CMQC.MQGMO_NO_SYNCPOINT)))
                except mq.MQMIError as error:
                    return data
        durable = CMQC.MQSO_CREATE | CMQC.MQSO_DURABLE | CMQC.MQSO_MANAGED
        name = b'{package} readings'
        first = mq.Subscription(qmgr)
        first.sub(sub_desc=descriptor(name, durable, b'{package}/+/temperature'))
        topic = mq.Topic(qmgr, topic_string=b'{package}/1/temperature')
        topic.open(open_opts=CMQC.MQOO_OUTPUT)
        topic.pub(b'20.5')
        results['first'] = received(first)
        first.close(sub_close_options=CMQC.MQCO_KEEP_SUB, close_sub_queue=True)
        topic.pub(b'21.0')
        again = mq.Subscription(qmgr)
        again.sub(sub_desc=descriptor(name, CMQC.MQSO_RESUME | CMQC.MQSO_DURABLE | CMQC.MQSO_MANAGED))
        results['resumed'] = received(again)
        again.close(sub_close_options=CMQC.MQCO_REMOVE_SUB, close_sub_queue=True)
        results['removed'] = reason(mq.Subscription(qmgr).sub, descriptor(name, CMQC.MQSO_RESUME))
        options = mq.PMO(Options=CMQC.MQPMO_RETAIN)
        topic.pub(b'retained', mq.MD(), options)
        late = mq.Subscription(qmgr)
        late.sub(sub_opts=CMQC.MQSO_CREATE | CMQC.MQSO_MANAGED | CMQC.MQSO_NON_DURABLE,
                 topic_string=b'{package}/#')
        results['retained'] = received(late)
        late.close(close_sub_queue=True)
        topic.close()
        """,
    )
    assert results == {"first": ["20.5"], "resumed": ["21.0"], "removed": 2428, "retained": ["retained"]}


def test_subscription_to_a_queue_of_another_queue_manager(manager: Manager, package: str) -> None:
    """As the bridge does: the destination is a queue at a queue manager with the name of an MQTT client."""
    results = manager.run(
        package,
        f"""
        destination = mq.Queue(qmgr)
        destination.open(mq.OD(ObjectName=b'SYSTEM.MQTT.PUBLICATION.QUEUE', ObjectQMgrName=b'client-{package}'),
                         CMQC.MQOO_OUTPUT)
        sd = mq.SD(Options=CMQC.MQSO_CREATE | CMQC.MQSO_NON_DURABLE, SubLevel=1)
        sd.set_vs('SubName', b'client-{package}:away/#')
        sd.set_vs('ObjectString', b'away/#')
        sd.set_vs('SubUserData', b'1')
        subscription = mq.Subscription(qmgr)
        subscription.sub(sub_desc=sd, sub_queue=destination)
        topic = mq.Topic(qmgr, topic_string=b'away/1')
        topic.open(open_opts=CMQC.MQOO_OUTPUT)
        pmo = mq.PMO(Version=CMQC.MQPMO_VERSION_3, PubLevel=9)
        topic.pub(b'for the client', mq.MD(), pmo)
        transmit = mq.Queue(qmgr, b'SYSTEM.MQTT.TRANSMIT.QUEUE', CMQC.MQOO_INPUT_SHARED)
        md = mq.MD()
        data = transmit.get(None, md)
        results['format'] = md.Format
        results['header'] = [data[:4], data[8:56].strip(b' \\0'), data[56:104].strip(b' \\0')]
        results['user data'] = b'<Sud>1</Sud>' in data
        results['end'] = data[-14:]
        subscription.close(sub_close_options=CMQC.MQCO_REMOVE_SUB)
        """,
    )
    assert results == {
        "format": "MQXMIT  ",
        "header": ["XQH ", "SYSTEM.MQTT.PUBLICATION.QUEUE", f"client-{package}"],
        "user data": True,
        "end": "for the client",
    }


def test_commands(manager: Manager, package: str, queue: str) -> None:
    """PCF: define, find, change and delete a queue, as programs of administrators do."""
    results = manager.run(
        package,
        f"""
        from importlib import import_module
        CMQCFC = import_module(sys.argv[1] + '.CMQCFC')
        pcf = mq.PCFExecute(qmgr)
        pcf.MQCMD_PING_Q_MGR()
        name = {queue.encode()!r} + b'.NEW'
        pcf.MQCMD_CREATE_Q({{CMQC.MQCA_Q_NAME: name, CMQC.MQIA_Q_TYPE: CMQC.MQQT_LOCAL, CMQC.MQIA_MAX_Q_DEPTH: 123}})
        answers = pcf.MQCMD_INQUIRE_Q({{CMQC.MQCA_Q_NAME: {queue.encode()!r} + b'*', CMQC.MQIA_Q_TYPE: CMQC.MQQT_ALL}})
        results['queues'] = sorted([answer[CMQC.MQCA_Q_NAME].strip(), answer[CMQC.MQIA_MAX_Q_DEPTH]] for answer in answers)
        pcf.MQCMD_DELETE_Q({{CMQC.MQCA_Q_NAME: name}})
        results['gone'] = reason(pcf.MQCMD_INQUIRE_Q, {{CMQC.MQCA_Q_NAME: name}})
        pcf.disconnect()
        """,
    )
    assert results["queues"] == [[queue, 5000], [f"{queue}.NEW", 123]]
    assert results["gone"] == 2085


def test_inquire_and_set(manager: Manager, package: str, queue: str) -> None:
    results = manager.run(
        package,
        f"""
        queue = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_INQUIRE | CMQC.MQOO_SET | CMQC.MQOO_OUTPUT)
        results['name'] = queue.inquire(CMQC.MQCA_Q_NAME)
        results['depth'] = queue.inquire(CMQC.MQIA_CURRENT_Q_DEPTH)
        results['qmgr'] = qmgr.inquire(CMQC.MQCA_Q_MGR_NAME)
        results['level'] = qmgr.inquire(CMQC.MQIA_COMMAND_LEVEL) >= 900
        queue.set(CMQC.MQIA_INHIBIT_PUT, CMQC.MQQA_PUT_INHIBITED)
        results['inhibited'] = reason(queue.put, b'x')
        queue.set(CMQC.MQIA_INHIBIT_PUT, CMQC.MQQA_PUT_ALLOWED)
        results['allowed'] = reason(queue.put, b'x')
        """,
    )
    assert results["name"].strip() == queue and results["qmgr"].strip() == "MQB1"
    assert (results["depth"], results["level"]) == (0, True)
    assert (results["inhibited"], results["allowed"]) == (2051, 0)
