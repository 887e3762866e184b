"""Programs that use the real pymqi and ibmmq with a queue manager that enforces authorities: which user is checked.

The programs run as the user of the queue manager, an administrator, who may claim to be another user (MQCSP).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.mq.embedded.server import Conversation
from tests.helpers.client_programs import Manager
from tests.ibm_standin import cmqc

RECORDS = """
DEFINE QLOCAL(Q)
DEFINE TOPIC(PLANT) TOPICSTR('plant')
SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('app') AUTHADD(CONNECT)
SET AUTHREC PROFILE(Q) OBJTYPE(QUEUE) PRINCIPAL('app') AUTHADD(PUT,GET)
SET AUTHREC PROFILE(PLANT) OBJTYPE(TOPIC) PRINCIPAL('app') AUTHADD(SUB)
SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('nobody') AUTHADD(CONNECT)
"""
#: Connect as a user, or as the user that runs the program.
AS = """
def connected(*user):
    return mq.connect('MQB1', 'SYSTEM.DEF.SVRCONN', 'localhost(1414)', *user)
"""
NO = cmqc.MQRC_NOT_AUTHORIZED


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    manager = Manager(Path(tmp_path_factory.mktemp("data")))
    for command in RECORDS.strip().splitlines():
        manager.command(command)
    manager.itself.enforce_authorities()
    yield manager
    manager.close()


@pytest.mark.smoke
def test_the_user_of_the_queue_manager_has_all_authorities(manager: Manager, package: str) -> None:
    results = manager.run(
        package,
        AS
        + """
        qmgr = connected()
        results['put'] = reason(mq.Queue(qmgr, 'Q').put, b'x')
        results['command'] = reason(mq.PCFExecute(qmgr).MQCMD_INQUIRE_Q_MGR)
        """.replace("\n        ", "\n"),
        connect=False,
    )
    assert results == {"put": 0, "command": 0}


@pytest.mark.smoke
def test_a_user_with_some_authorities(manager: Manager, package: str) -> None:
    results = manager.run(
        package,
        AS
        + """
        qmgr = connected('app', 'none is asked for')
        results['put'] = reason(mq.Queue(qmgr, 'Q').put, b'x')
        results['get'] = reason(mq.Queue(qmgr, 'Q').get)
        results['inquire'] = reason(mq.Queue(qmgr, 'Q').inquire, CMQC.MQIA_CURRENT_Q_DEPTH)
        results['unknown'] = reason(mq.Queue(qmgr, 'SYSTEM.DEAD.LETTER.QUEUE').put, b'x')
        results['publish'] = reason(mq.Topic(qmgr, topic_string='plant/a').pub, b'x')
        sd = mq.SD()
        sd.Options = CMQC.MQSO_CREATE + CMQC.MQSO_NON_DURABLE + CMQC.MQSO_MANAGED
        sd.set_vs('ObjectString', 'plant/#')
        results['subscribe'] = reason(mq.Subscription(qmgr).sub, sub_desc=sd)
        sd.set_vs('ObjectString', 'offices')
        results['elsewhere'] = reason(mq.Subscription(qmgr).sub, sub_desc=sd)
        """.replace("\n        ", "\n"),
        connect=False,
    )
    assert results == {"put": 0, "get": 0, "inquire": NO, "unknown": NO, "publish": NO, "subscribe": 0, "elsewhere": NO}


def test_a_user_without_authority_to_connect(manager: Manager, package: str) -> None:
    results = manager.run(package, AS + "results['reason'] = reason(connected, 'carol', 'x')\n", connect=False)
    assert results == {"reason": NO}


def test_users_over_tcp_are_not_verified(manager: Manager, package: str) -> None:
    """The connection has no user, whichever user it claims."""
    results = manager.run(
        package,
        AS
        + """
        for name in ('app', 'mqm'):
            qmgr = connected(name, 'x')
            results[name] = reason(mq.Queue(qmgr, 'Q').put, b'x')
            qmgr.disconnect()
        """.replace("\n        ", "\n"),
        connect=False,
        MQI_STANDIN=f"127.0.0.1({manager.port})",
    )
    assert results == {"app": NO, "mqm": NO}


def test_only_an_administrator_can_act_as_another_user(
    manager: Manager, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The password of an MQCSP is not checked, so a claimed name does not change the user."""
    monkeypatch.setattr(Conversation, "_peer", lambda self: "app")
    results = manager.run(
        package,
        AS
        + """
        for name in ('app', 'mqm', 'carol'):
            qmgr = connected(name, 'x')
            results[name] = [
                reason(mq.Queue(qmgr, 'Q').put, b'x'),
                reason(mq.Queue(qmgr, 'SYSTEM.DEAD.LETTER.QUEUE').put, b'x'),
            ]
            qmgr.disconnect()
        """.replace("\n        ", "\n"),
        connect=False,
    )
    assert results == {"app": [0, NO], "mqm": [0, NO], "carol": [0, NO]}
