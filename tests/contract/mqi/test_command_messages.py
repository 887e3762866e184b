"""PCF programs that use the real pymqi and ibmmq, written like the examples in their documentation."""

from __future__ import annotations

import pytest

from tests.helpers.client_programs import Manager

PCF = "pcf = mq.PCFExecute(qmgr)\nCMQCFC = mq.CMQCFC\n"


@pytest.mark.smoke
def test_ping(manager: Manager, package: str) -> None:
    results = manager.run(
        package,
        PCF
        + """
results['ping'] = pcf.MQCMD_PING_Q_MGR()
results['connected'] = qmgr.is_connected
        """,
    )
    assert not any(results["ping"])  # pymqi returns the empty reply, ibmmq nothing
    assert results["connected"]


@pytest.mark.smoke
def test_queues_are_created_inquired_and_deleted(manager: Manager, package: str) -> None:
    results = manager.run(
        package,
        PCF
        + """
name = b'PCF.' + sys.argv[1].encode()
pcf.MQCMD_CREATE_Q({CMQC.MQCA_Q_NAME: name, CMQC.MQIA_Q_TYPE: CMQC.MQQT_LOCAL, CMQC.MQIA_MAX_Q_DEPTH: 123,
                    CMQC.MQCA_Q_DESC: b'made by a program', CMQCFC.MQIACF_REPLACE: CMQCFC.MQRP_NO})
results['again'] = reason(pcf.MQCMD_CREATE_Q, {CMQC.MQCA_Q_NAME: name, CMQC.MQIA_Q_TYPE: CMQC.MQQT_LOCAL})
pcf.MQCMD_CHANGE_Q({CMQC.MQCA_Q_NAME: name, CMQC.MQIA_Q_TYPE: CMQC.MQQT_LOCAL, CMQC.MQIA_MAX_Q_DEPTH: 99})
queue = mq.Queue(qmgr, name)
queue.put(b'x')
queue.close()
try:
    response = pcf.MQCMD_INQUIRE_Q({CMQC.MQCA_Q_NAME: b'PCF.*', CMQC.MQIA_Q_TYPE: CMQC.MQQT_LOCAL})
except mq.MQMIError as e:
    results['error'] = e.reason
else:
    results['queues'] = [(info[CMQC.MQCA_Q_NAME].strip(), info[CMQC.MQIA_CURRENT_Q_DEPTH],
                        info[CMQC.MQIA_MAX_Q_DEPTH]) for info in response]
results['full'] = reason(pcf.MQCMD_DELETE_Q, {CMQC.MQCA_Q_NAME: name})
pcf.MQCMD_CLEAR_Q({CMQC.MQCA_Q_NAME: name})
pcf.MQCMD_DELETE_Q({CMQC.MQCA_Q_NAME: name, CMQC.MQIA_Q_TYPE: CMQC.MQQT_LOCAL})
results['gone'] = reason(pcf.MQCMD_INQUIRE_Q, {CMQC.MQCA_Q_NAME: name})
results['unknown'] = reason(pcf.MQCMD_INQUIRE_CHANNEL, {CMQCFC.MQCACH_CHANNEL_NAME: b'DEV.*'})
        """,
    )
    assert results["queues"] == [[f"PCF.{package}", 1, 99]]
    assert (results["again"], results["full"], results["gone"], results["unknown"]) == (4001, 2055, 2085, 4032)


def test_filters(manager: Manager, package: str) -> None:
    manager.command("DEFINE QLOCAL(FILTERED.1) DESCR('WebSphere MQ one') MAXDEPTH(1) REPLACE")
    manager.command("DEFINE QLOCAL(FILTERED.2) DESCR('WebSphere MQ two') MAXDEPTH(2) REPLACE")
    manager.command("DEFINE QLOCAL(FILTERED.3) DESCR('another') MAXDEPTH(3) REPLACE")
    results = manager.run(
        package,
        PCF
        + """
attrs = {CMQC.MQCA_Q_NAME: b'FILTERED.*', CMQC.MQIA_Q_TYPE: CMQC.MQQT_LOCAL,
         CMQCFC.MQIACF_Q_ATTRS: [CMQC.MQCA_Q_DESC, CMQC.MQIA_MAX_Q_DEPTH]}
filter1 = mq.Filter(CMQC.MQCA_Q_DESC).like(b'WebSphere MQ *')
filter2 = mq.Filter(CMQC.MQIA_MAX_Q_DEPTH).greater(1)
result = pcf.MQCMD_INQUIRE_Q(attrs, [filter1, filter2])
results['names'] = [queue[CMQC.MQCA_Q_NAME].strip() for queue in result]
results['keys'] = sorted(result[0])
results['none'] = reason(pcf.MQCMD_INQUIRE_Q, attrs, [mq.Filter(CMQC.MQIA_MAX_Q_DEPTH).less(0)])
        """,
    )
    assert results["names"] == ["FILTERED.2"]
    assert results["keys"] == [15, 20, 2013, 2016]
    assert results["none"] == 3200


def test_queue_manager_and_connections(manager: Manager, package: str) -> None:
    results = manager.run(
        package,
        PCF
        + """
(info,) = pcf.MQCMD_INQUIRE_Q_MGR()
results['name'] = info[CMQC.MQCA_Q_MGR_NAME].strip()
results['level'] = info[CMQC.MQIA_COMMAND_LEVEL]
results['keys'] = [type(key).__name__ for key in pcf.stringify_keys(info)]
(status,) = pcf.MQCMD_INQUIRE_Q_MGR_STATUS()
results['status'] = status[CMQCFC.MQIACF_Q_MGR_STATUS]
attrs = {CMQCFC.MQBACF_GENERIC_CONNECTION_ID: mq.ByteString(b''), CMQCFC.MQIACF_CONNECTION_ATTRS: [CMQCFC.MQIACF_ALL]}
results['tags'] = [connection[CMQCFC.MQCACF_APPL_TAG].strip() for connection in pcf.MQCMD_INQUIRE_CONNECTION(attrs)]
names = pcf.MQCMD_INQUIRE_Q_NAMES({CMQC.MQCA_Q_NAME: b'SYSTEM.ADMIN.*'})
results['names'] = [name.strip() for name in names[0][CMQCFC.MQCACF_Q_NAMES]]
namelist = pcf.MQCMD_INQUIRE_NAMELIST({CMQC.MQCA_NAMELIST_NAME: b'*'})
results['namelists'] = len(namelist)
        """,
    )
    assert (results["name"], results["status"]) == ("MQB1", 2)
    assert results["level"] >= 900
    assert "str" in results["keys"]
    assert results["names"] == ["SYSTEM.ADMIN.COMMAND.QUEUE"]
    assert results["namelists"] == 1
    assert len(results["tags"]) >= 2


def test_subscriptions_and_topics(manager: Manager, package: str) -> None:
    results = manager.run(
        package,
        PCF
        + """
name = b'sub of ' + sys.argv[1].encode()
pcf.MQCMD_CREATE_SUBSCRIPTION({CMQCFC.MQCACF_SUB_NAME: name, CMQC.MQCA_TOPIC_STRING: b'pcf/topic',
                               CMQCFC.MQIACF_DESTINATION_CLASS: CMQC.MQDC_MANAGED})
(subscription,) = pcf.MQCMD_INQUIRE_SUBSCRIPTION({CMQCFC.MQCACF_SUB_NAME: name})
results['topic'] = subscription[CMQC.MQCA_TOPIC_STRING].strip(b'\\0 ')
results['id'] = len(subscription[CMQCFC.MQBACF_SUB_ID])
topic = mq.Topic(qmgr, topic_string=b'pcf/topic')
topic.open(open_opts=CMQC.MQOO_OUTPUT)
pmo = mq.PMO(Options=CMQC.MQPMO_RETAIN)
topic.pub(b'kept', mq.MD(), pmo)
topic.close()
(status,) = pcf.MQCMD_INQUIRE_TOPIC_STATUS({CMQC.MQCA_TOPIC_STRING: b'pcf/topic'})
results['retained'] = status[CMQCFC.MQIACF_RETAINED_PUBLICATION], status[CMQC.MQIA_SUB_COUNT]
pcf.MQCMD_CLEAR_TOPIC_STRING({CMQC.MQCA_TOPIC_STRING: b'pcf/topic', CMQCFC.MQIACF_CLEAR_TYPE: CMQCFC.MQCLRT_RETAINED})
(status,) = pcf.MQCMD_INQUIRE_TOPIC_STATUS({CMQC.MQCA_TOPIC_STRING: b'pcf/topic'})
results['cleared'] = status[CMQCFC.MQIACF_RETAINED_PUBLICATION]
pcf.MQCMD_DELETE_SUBSCRIPTION({CMQCFC.MQCACF_SUB_NAME: name})
results['gone'] = reason(pcf.MQCMD_INQUIRE_SUBSCRIPTION, {CMQCFC.MQCACF_SUB_NAME: name})
pcf.MQCMD_CREATE_TOPIC({CMQC.MQCA_TOPIC_NAME: b'PCF.TOPIC', CMQC.MQCA_TOPIC_STRING: b'pcf', CMQCFC.MQIACF_REPLACE: 1})
topics = pcf.MQCMD_INQUIRE_TOPIC({CMQC.MQCA_TOPIC_NAME: b'PCF.*'})
results['topics'] = [topic[CMQC.MQCA_TOPIC_NAME].strip() for topic in topics]
pcf.MQCMD_DELETE_TOPIC({CMQC.MQCA_TOPIC_NAME: b'PCF.TOPIC'})
        """,
    )
    assert (results["topic"], results["id"], results["retained"], results["cleared"]) == ("pcf/topic", 24, [1, 1], 0)
    assert (results["gone"], results["topics"]) == (2428, ["PCF.TOPIC"])


def test_authority_records_and_status(manager: Manager, package: str) -> None:
    results = manager.run(
        package,
        PCF
        + """
profile = {CMQCFC.MQCACF_AUTH_PROFILE_NAME: b'PCF.AUTH', CMQCFC.MQIACF_OBJECT_TYPE: CMQC.MQOT_Q}
who = {CMQCFC.MQCACF_PRINCIPAL_ENTITY_NAMES: [b'alice', b'bobby']}
auths = {CMQCFC.MQIACF_AUTH_ADD_AUTHS: [CMQCFC.MQAUTH_BROWSE, CMQCFC.MQAUTH_INQUIRE]}
pcf.MQCMD_SET_AUTH_REC({**profile, **auths, **who})
records = pcf.MQCMD_INQUIRE_AUTH_RECS({CMQCFC.MQIACF_AUTH_OPTIONS: CMQCFC.MQAUTHOPT_NAME_ALL_MATCHING, **profile})
results['records'] = [
    (record[CMQCFC.MQCACF_ENTITY_NAME].strip(), record[CMQCFC.MQIACF_AUTHORIZATION_LIST]) for record in records
]
pcf.MQCMD_DELETE_AUTH_REC({**profile, **who})
pcf.MQCMD_CREATE_Q({CMQC.MQCA_Q_NAME: b'PCF.AUTH', CMQC.MQIA_Q_TYPE: CMQC.MQQT_LOCAL})
queue = mq.Queue(qmgr, b'PCF.AUTH', CMQC.MQOO_OUTPUT)
(status,) = pcf.MQCMD_INQUIRE_Q_STATUS({CMQC.MQCA_Q_NAME: b'PCF.AUTH', CMQCFC.MQIACF_Q_STATUS_ATTRS: [CMQCFC.MQIACF_ALL]})
results['status'] = status[CMQC.MQIA_OPEN_OUTPUT_COUNT]
handles = pcf.MQCMD_INQUIRE_Q_STATUS({CMQC.MQCA_Q_NAME: b'PCF.AUTH', CMQCFC.MQIACF_Q_STATUS_TYPE: CMQCFC.MQIACF_Q_HANDLE})
results['handles'] = len(handles)
results['open'] = reason(pcf.MQCMD_DELETE_Q, {CMQC.MQCA_Q_NAME: b'PCF.AUTH'})
queue.close()
pcf.MQCMD_DELETE_Q({CMQC.MQCA_Q_NAME: b'PCF.AUTH'})
escape = {CMQCFC.MQIACF_ESCAPE_TYPE: CMQCFC.MQET_MQSC, CMQCFC.MQCACF_ESCAPE_TEXT: b'DISPLAY QMGR CCSID'}
results['escape'] = pcf.MQCMD_ESCAPE(escape)[0][CMQCFC.MQCACF_ESCAPE_TEXT].strip(b'\\0 ')
        """,
    )
    assert results["records"] == [["alice", [2, 10]], ["bobby", [2, 10]]]
    assert (results["status"], results["handles"], results["open"]) == (1, 1, 4004)
    assert "CCSID(1208)" in results["escape"]


def test_inquiries_of_monitoring_programs(manager: Manager, package: str, queue: str) -> None:
    results = manager.run(
        package,
        PCF
        + f"""
name = {{CMQC.MQCA_Q_NAME: b'{queue}'}}
pcf.MQCMD_RESET_Q_STATS(name)
queue = mq.Queue(qmgr, '{queue}', CMQC.MQOO_OUTPUT | CMQC.MQOO_INPUT_SHARED)
for data in (b'1', b'2', b'3'):
    queue.put(data)
queue.get()
(status,) = pcf.MQCMD_INQUIRE_Q_STATUS(name | {{CMQC.MQIA_Q_TYPE: CMQC.MQQT_ALL,
                                               CMQCFC.MQIACF_Q_STATUS_ATTRS: CMQCFC.MQIACF_ALL}})
results['status'] = status[CMQCFC.MQIACF_UNCOMMITTED_MSGS], status[CMQC.MQIA_CURRENT_Q_DEPTH]
(statistics,) = pcf.MQCMD_RESET_Q_STATS(name)
counters = CMQC.MQIA_HIGH_Q_DEPTH, CMQC.MQIA_MSG_ENQ_COUNT, CMQC.MQIA_MSG_DEQ_COUNT
results['counted'] = [statistics[counter] for counter in counters]
results['filtered'] = [queue[CMQC.MQIA_CURRENT_Q_DEPTH] for queue in pcf.MQCMD_INQUIRE_Q(
    name | {{CMQCFC.MQIACF_Q_ATTRS: [CMQC.MQCA_Q_DESC]}}, [mq.Filter(CMQC.MQIA_CURRENT_Q_DEPTH).greater(0)])]
(manager,) = pcf.MQCMD_INQUIRE_Q_MGR({{CMQCFC.MQIACF_Q_MGR_ATTRS: [CMQC.MQCA_CONN_AUTH]}})
(checks,) = pcf.MQCMD_INQUIRE_AUTH_INFO({{CMQC.MQCA_AUTH_INFO_NAME: manager[CMQC.MQCA_CONN_AUTH],
                                         CMQC.MQIA_AUTH_INFO_TYPE: CMQC.MQAIT_IDPW_OS}})
results['checks'] = checks[CMQC.MQIA_CHECK_CLIENT_BINDING] == CMQCFC.MQCHK_NONE
        """,
    )
    assert results == {"status": [0, 2], "counted": [3, 3, 1], "filtered": [2], "checks": True}


def test_namelists(manager: Manager, package: str) -> None:
    results = manager.run(
        package,
        PCF
        + """
name = b'NL.' + sys.argv[1].encode()
pcf.MQCMD_CREATE_NAMELIST({CMQC.MQCA_NAMELIST_NAME: name, CMQC.MQCA_NAMES: [b'ONE', b'TWO']})
(namelist,) = pcf.MQCMD_INQUIRE_NAMELIST({CMQC.MQCA_NAMELIST_NAME: name})
results['names'] = [name.strip() for name in namelist[CMQC.MQCA_NAMES]]
opened = mq.Queue(qmgr, mq.OD(ObjectName=name, ObjectType=CMQC.MQOT_NAMELIST), CMQC.MQOO_INQUIRE)
results['count'] = opened.inquire(CMQC.MQIA_NAME_COUNT)
opened.close()
pcf.MQCMD_DELETE_NAMELIST({CMQC.MQCA_NAMELIST_NAME: name})
results['gone'] = reason(pcf.MQCMD_INQUIRE_NAMELIST, {CMQC.MQCA_NAMELIST_NAME: name})
        """,
    )
    assert results == {"names": ["ONE", "TWO"], "count": 2, "gone": 2085}
