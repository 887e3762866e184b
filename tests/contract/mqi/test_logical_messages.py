"""Groups, segments and both wildcard schemes on the real pymqi and ibmmq."""

from __future__ import annotations

import pytest

from tests.helpers.client_programs import Manager


@pytest.mark.smoke
def test_groups_and_segments(manager: Manager, package: str, queue: str) -> None:
    results = manager.run(
        package,
        f"""
writer = mq.Queue(qmgr, '{queue}', CMQC.MQOO_OUTPUT)
reader = mq.Queue(qmgr, '{queue}', CMQC.MQOO_INPUT_SHARED)
pmo = mq.PMO(Version=2, Options=CMQC.MQPMO_LOGICAL_ORDER | CMQC.MQPMO_SYNCPOINT)
whole = (CMQC.MQGMO_LOGICAL_ORDER | CMQC.MQGMO_COMPLETE_MSG | CMQC.MQGMO_ALL_MSGS_AVAILABLE | CMQC.MQGMO_NO_SYNCPOINT)

def put(data, flags):
    writer.put(data, mq.MD(Version=2, MsgFlags=flags), pmo)

def get():
    md, gmo = mq.MD(Version=2), mq.GMO(Version=2, Options=whole, MatchOptions=CMQC.MQMO_NONE)
    return reader.get(None, md, gmo), md.MsgSeqNumber, md.Offset

put(b'first', CMQC.MQMF_MSG_IN_GROUP)
put(b'sec', CMQC.MQMF_LAST_MSG_IN_GROUP | CMQC.MQMF_SEGMENT)
qmgr.commit()
results['too soon'] = reason(get)
results['unfinished'] = reason(put, b'', 0)
put(b'ond', CMQC.MQMF_LAST_MSG_IN_GROUP | CMQC.MQMF_LAST_SEGMENT)
qmgr.commit()
results['got'] = [get(), get()]
put(b'begun', CMQC.MQMF_MSG_IN_GROUP)
results['outside'] = reason(writer.put, b'', mq.MD(Version=2, MsgFlags=CMQC.MQMF_MSG_IN_GROUP),
                          mq.PMO(Version=2, Options=CMQC.MQPMO_LOGICAL_ORDER))
results['closed'] = reason(writer.close)
qmgr.commit()
        """,
    )
    assert results["got"] == [["first", 1, 0], ["second", 2, 0]]
    assert (results["too soon"], results["unfinished"]) == (2033, 2241)
    assert (results["outside"], results["closed"]) == (2245, 2241)


@pytest.mark.smoke
def test_wildcard_schemes(manager: Manager, package: str) -> None:
    results = manager.run(
        package,
        """
def subscribed(scheme):
    sd = mq.SD(Options=CMQC.MQSO_CREATE | CMQC.MQSO_MANAGED | CMQC.MQSO_NON_DURABLE | scheme)
    sd.set_vs('ObjectString', 'wild/' + sys.argv[1] + '/*/?')
    subscription = mq.Subscription(qmgr)
    subscription.sub(sub_desc=sd)
    return subscription

by_character, by_topic = subscribed(CMQC.MQSO_WILDCARD_CHAR), subscribed(CMQC.MQSO_WILDCARD_TOPIC)
for last in ('a/b/c', '*/?', 'a/bc'):
    topic = mq.Topic(qmgr, topic_string='wild/' + sys.argv[1] + '/' + last, open_opts=CMQC.MQOO_OUTPUT)
    topic.pub(last.encode())
    topic.close()

def bodies(subscription):
    got = []
    while not reason(lambda: got.append(subscription.get(None, mq.MD(), mq.GMO(Options=CMQC.MQGMO_NO_SYNCPOINT)))):
        pass
    subscription.close(close_sub_queue=True)
    return got

results['char'], results['topic'] = bodies(by_character), bodies(by_topic)
        """,
    )
    assert results == {"char": ["a/b/c", "*/?"], "topic": ["*/?"]}
