"""The character set of a client: its environment variable MQCCSID, or its locale.

Source: IBM MQ documentation, "Choosing client or server CCSID", "CodedCharSetId (MQLONG)" of the MQMD.
"""

from __future__ import annotations

import pytest

from tests.helpers.client_programs import Manager

#: The character set is the client's, not that of the queue manager, which is 1208. `ä` is one byte in 819.
LATIN_1 = {"MQCCSID": "819"}


@pytest.mark.parametrize(
    ("variables", "ccsid"),
    [({"MQCCSID": "850"}, 850), ({"LC_ALL": "C.UTF-8"}, 1208), ({"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}, 819)],
    ids=["MQCCSID", "locale UTF-8", "locale C"],
)
def test_mqccsi_q_mgr_means_the_character_set_of_the_client_on_put(
    manager: Manager, package: str, queue: str, variables: dict[str, str], ccsid: int
) -> None:
    results = manager.run(
        package,
        f"""
md = mq.MD(CodedCharSetId=0)
mq.Queue(qmgr, {queue!r}).put(b'x', md)
results['returned'] = md.CodedCharSetId
got = mq.MD(CodedCharSetId=1208)
mq.Queue(qmgr, {queue!r}, CMQC.MQOO_INPUT_SHARED).get(None, got, mq.GMO())
results['got'] = got.CodedCharSetId
""",
        **variables,
    )
    assert results == {"returned": ccsid, "got": ccsid}


@pytest.mark.smoke
def test_in_bindings_mode_it_means_that_of_the_queue_manager(manager: Manager, package: str, queue: str) -> None:
    program = f"""
qmgr = mq.connect('MQB1')
md = mq.MD(CodedCharSetId=0)
mq.Queue(qmgr, {queue!r}).put(b'x', md)
results['returned'] = md.CodedCharSetId
"""
    assert manager.run(package, program, connect=False, **LATIN_1) == {"returned": 1208}


@pytest.mark.smoke
def test_mqget_converts_to_the_character_set_of_the_client(manager: Manager, package: str, queue: str) -> None:
    """MQGMO_CONVERT with MQCCSI_Q_MGR."""
    results = manager.run(
        package,
        f"""
mq.Queue(qmgr, {queue!r}).put('ä'.encode(), mq.MD(CodedCharSetId=1208, Format=CMQC.MQFMT_STRING))
got = mq.MD(CodedCharSetId=0)
data = mq.Queue(qmgr, {queue!r}, CMQC.MQOO_INPUT_SHARED).get(None, got, mq.GMO(Options=CMQC.MQGMO_CONVERT))
results['data'] = [data.hex(), got.CodedCharSetId]
""",
        **LATIN_1,
    )
    assert results == {"data": ["e4", 819]}


@pytest.mark.parametrize(("ccsid", "subscription"), [(0, "Ã¤"), (819, "Ã¤"), (1208, "ä")])
def test_names_in_a_command_are_in_the_character_set_of_its_message(
    manager: Manager, package: str, ccsid: int, subscription: str
) -> None:
    """UTF-8 text whose CCSID is MQCCSI_Q_MGR is read in the client's character set."""
    manager.command(f"DEFINE SUB('{subscription}') TOPICSTR('x') DEST(SYSTEM.ADMIN.COMMAND.QUEUE)")
    try:
        results = manager.run(
            package,
            """
import struct
CMQCFC = mq.CMQCFC
name = 'ä'.encode()
def parameter(number, text):
    return struct.pack('<5i', 4, 20 + len(text) + -len(text) % 4, number, 0, len(text)) + text + b' ' * (-len(text) % 4)
body = struct.pack('<9i', 1, 36, 1, CMQCFC.MQCMD_INQUIRE_SUBSCRIPTION, 1, 1, 0, 0, 1)
body += parameter(CMQCFC.MQCACF_SUB_NAME, name)
od = mq.OD(ObjectName=b'SYSTEM.DEFAULT.MODEL.QUEUE', DynamicQName=b'CHARS.*')
replies = mq.Queue(qmgr, od, CMQC.MQOO_INPUT_EXCLUSIVE)
"""
            + f"""
md = mq.MD(Format=CMQC.MQFMT_ADMIN, MsgType=CMQC.MQMT_REQUEST, ReplyToQ=od.ObjectName, CodedCharSetId={ccsid})
mq.Queue(qmgr, 'SYSTEM.ADMIN.COMMAND.QUEUE').put(body, md)
wait = mq.GMO(Options=CMQC.MQGMO_WAIT, WaitInterval=30000)
reply = replies.get(None, mq.MD(), wait)
results['reason'] = struct.unpack('<9i', reply[:36])[7]
""",
            **LATIN_1,
        )
    finally:
        manager.command(f"DELETE SUB('{subscription}')")
    assert results == {"reason": 0}


def test_topic_strings_are_in_the_character_set_of_the_client_by_default(manager: Manager, package: str) -> None:
    """VSCCSID of the MQCHARV overrides it."""
    results = manager.run(
        package,
        """
def subscribed(topic, ccsid):
    sd = mq.SD(Options=CMQC.MQSO_CREATE | CMQC.MQSO_MANAGED)
    sd.set_vs('ObjectString', topic, vs_ccsid=ccsid)
    subscription = mq.Subscription(qmgr)
    subscription.sub(sub_desc=sd)
    return subscription
latin, utf = subscribed('ä/1'.encode('latin-1'), 0), subscribed('ä/2'.encode(), 1208)
od = mq.OD(Version=4, ObjectType=CMQC.MQOT_TOPIC)
for topic in ('ä/1', 'ä/2'):
    od.set_vs('ObjectString', topic.encode(), vs_ccsid=1208)
    qmgr.put1(od, topic.encode(), mq.MD())
gmo = CMQC.MQGMO_NO_PROPERTIES
results['got'] = [subscription.get(None, mq.MD(), mq.GMO(Options=gmo)).decode() for subscription in (latin, utf)]
for subscription in (latin, utf):
    subscription.close(close_sub_queue=True)
""",
        **LATIN_1,
    )
    assert results == {"got": ["ä/1", "ä/2"]}
