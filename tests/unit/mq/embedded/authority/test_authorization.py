"""The authorization service: the authority required for each call, the records that apply, and the reaction of the
backend.
"""

from __future__ import annotations

import asyncio
import grp
import logging
import os
import pwd
import random
from collections.abc import Iterator

import pytest

from bridge.mq.backend import UnitOfWork
from bridge.mq.embedded.authority import AuthorizationService, specificity
from bridge.mq.embedded.backend import EmbeddedBackend
from bridge.mq.embedded.mqsc.commands import prepare
from bridge.mq.mqi import MQOD, MQSD, MQError
from bridge.mqtt.packets import Publish
from bridge.security.privileged import user_of_this_process
from bridge.telemetry.conversion import to_mq
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.embedded_manager import Manager
from tests.helpers.units import requests
from tests.ibm_standin.mqi.connection import StandInConnection

XMITQ = "SYSTEM.MQTT.TRANSMIT.QUEUE"
QUEUE = cmqc.MQOT_Q


@pytest.fixture
def enforcing(manager: Manager) -> Iterator[Manager]:
    manager.itself.enforce_authorities()
    yield manager


def service(manager: Manager) -> AuthorizationService:
    assert manager.itself.authorization is not None
    return manager.itself.authorization


def may(manager: Manager, user: str, name: str, authority: str = "PUT", object_type: int = QUEUE) -> bool:
    try:
        service(manager).check(user, object_type, name, authority)
    except MQError as error:
        assert error.reason == cmqc.MQRC_NOT_AUTHORIZED
        assert user in error.detail and name in error.detail and authority in error.detail
        return False
    return True


def grant(manager: Manager, whose: str, profile: str = "Q", authorities: str = "PUT", kind: str = "QUEUE") -> None:
    manager.ok(f"SET AUTHREC PROFILE('{profile}') OBJTYPE({kind}) {whose} AUTHADD({authorities})")


# Records that apply ---------------------------------------------------------------------------------------------------


def test_administrators_have_all_authorities(enforcing: Manager) -> None:
    assert may(enforcing, user_of_this_process(), "Q")
    assert may(enforcing, "mqm", "Q")
    service(enforcing).check(None, QUEUE, "Q", "PUT")
    assert not may(enforcing, "alice", "Q")


@pytest.mark.parametrize("user", ["mqm          x", "mqm "])
def test_a_truncated_user_name_does_not_make_a_user_an_administrator(enforcing: Manager, user: str) -> None:
    """The command server knows the user of a command from the 12 bytes of MQMD.UserIdentifier."""
    enforcing.ok("SET AUTHREC OBJTYPE(QMGR) GROUP('nobody') AUTHADD(CONNECT)")
    with pytest.raises(MQError, match="MQRC_NOT_AUTHORIZED"):
        StandInConnection(enforcing.itself, "test", user)
    StandInConnection(enforcing.itself, "test", "mqmx").disconnect()


def test_members_of_mqm_may_do_everything(enforcing: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "bridge.mq.embedded.authority.groups_of", lambda user: frozenset({"mqm"} if user == "eve" else ())
    )
    service(enforcing).refresh()
    assert may(enforcing, "eve", "Q") and not may(enforcing, "alice", "Q")


def test_authorities_of_principal_and_groups_are_combined(enforcing: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    members = {"alice": {"apps", "others"}, "bob": {"apps"}}
    monkeypatch.setattr(
        "bridge.mq.embedded.authority.groups_of", lambda user: frozenset(members.get(user, ())) | {"nobody"}
    )
    grant(enforcing, "PRINCIPAL('alice')", authorities="PUT")
    grant(enforcing, "GROUP('apps')", authorities="GET")
    grant(enforcing, "GROUP('others')", authorities="BROWSE")
    grant(enforcing, "GROUP('nobody')", authorities="INQ")
    authorities = {
        user: [word for word in ("PUT", "GET", "BROWSE", "INQ", "SET") if may(enforcing, user, "Q", word)]
        for user in ("alice", "bob", "carol")
    }
    assert authorities == {"alice": ["PUT", "GET", "BROWSE", "INQ"], "bob": ["GET", "INQ"], "carol": ["INQ"]}


def test_groups_are_those_of_the_operating_system(enforcing: Manager) -> None:
    user = next(account for account in pwd.getpwall() if account.pw_uid and account.pw_name != user_of_this_process())
    group = grp.getgrgid(user.pw_gid).gr_name
    grant(enforcing, f"GROUP('{group}')")
    assert may(enforcing, user.pw_name, "Q")
    assert not may(enforcing, "nobody-knows-me", "Q")


def test_refresh_security_reads_groups_again(enforcing: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    """The members of groups are remembered until then."""
    grant(enforcing, "GROUP('apps')")
    assert not may(enforcing, "alice", "Q")
    monkeypatch.setattr("bridge.mq.embedded.authority.groups_of", lambda _user: frozenset({"apps"}))
    assert not may(enforcing, "alice", "Q")
    enforcing.ok("REFRESH SECURITY")
    assert may(enforcing, "alice", "Q")


def test_the_most_specific_profile_of_each_entity_decides(enforcing: Manager) -> None:
    grant(enforcing, "PRINCIPAL('alice')", "**", "GET")
    grant(enforcing, "PRINCIPAL('alice')", "APP.*", "PUT")
    grant(enforcing, "PRINCIPAL('alice')", "APP.IN", "NONE")
    grant(enforcing, "GROUP('nobody')", "APP.**", "BROWSE")
    authorities = {
        name: [w for w in ("GET", "PUT", "BROWSE") if may(enforcing, "alice", name, w)]
        for name in ("APP.IN", "APP.OUT", "APP.A.B", "OTHER")
    }
    assert authorities == {
        "APP.IN": ["BROWSE"],
        "APP.OUT": ["PUT", "BROWSE"],
        "APP.A.B": ["GET", "BROWSE"],
        "OTHER": ["GET"],
    }


def test_profiles_are_ordered_by_specificity() -> None:
    """IBM MQ, "Using OAM generic profiles": from the left, a character precedes ?, which precedes * and then **."""
    ordered = ["AB.C", "AB.?", "AB.*", "AB.**", "A?.C", "A?.**", "A*.C", "A*", "A**", "?B.C", "*.C", "**"]
    shuffled = ordered.copy()
    random.Random(7).shuffle(shuffled)
    assert sorted(shuffled, key=specificity) == ordered


def test_changes_take_effect_immediately(enforcing: Manager) -> None:
    assert not service(enforcing).may_publish(b"alice", "plant/a")
    grant(enforcing, "PRINCIPAL('alice')", "PLANT", "PUB", "TOPIC")
    assert not service(enforcing).may_publish(b"alice", "plant/a"), "the topic object does not exist yet"
    enforcing.ok("DEFINE TOPIC(PLANT) TOPICSTR('plant')")
    assert service(enforcing).may_publish(b"alice", "plant/a")
    enforcing.ok("ALTER TOPIC(PLANT) DESCR('x')")
    assert service(enforcing).may_publish(b"alice", "plant/a")
    enforcing.ok("DELETE TOPIC(PLANT)")
    assert not service(enforcing).may_publish(b"alice", "plant/a")


def test_a_rejection_is_logged(enforcing: Manager, caplog: pytest.LogCaptureFixture) -> None:
    enforcing.ok("DEFINE TOPIC(PLANT) TOPICSTR('plant')")
    with caplog.at_level(logging.WARNING, "bridge.mq.embedded.authority"):
        may(enforcing, "alice", "Q", "GET")
        service(enforcing).may_publish(b"bob", "plant/a")
        service(enforcing).may_publish(b"", "x")
    assert [record.getMessage() for record in caplog.records] == [
        "MQB3401W user 'alice' lacks authority for queue Q (GET)",
        "MQB3401W user 'bob' lacks authority for topic 'plant/a', topic object PLANT or SYSTEM.BASE.TOPIC (PUB)",
        "MQB3401W user 'nobody' lacks authority for topic 'x', topic object SYSTEM.BASE.TOPIC (PUB)",
    ]


# Applications ---------------------------------------------------------------------------------------------------------


def refusal(manager: Manager, user: str, od: MQOD, options: int) -> str:
    """Return the authority that is missing for an MQOPEN, or blank if it is allowed."""
    connection = StandInConnection(manager.itself, "app", user)
    try:
        connection.close(connection.open(od, options))
    except MQError as error:
        assert error.reason == cmqc.MQRC_NOT_AUTHORIZED
        return error.detail.removeprefix(f"user {user!r} lacks authority for ")
    finally:
        connection.disconnect()
    return ""


@pytest.fixture
def app(enforcing: Manager) -> Manager:
    """User `app` may connect, and put to and get from Q."""
    enforcing.ok("DEFINE QLOCAL(Q)")
    enforcing.ok("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('app') AUTHADD(CONNECT)")
    grant(enforcing, "PRINCIPAL('app')", authorities="PUT,GET")
    return enforcing


def test_connecting_requires_connect(app: Manager) -> None:
    StandInConnection(app.itself, "app", "app").disconnect()
    with pytest.raises(MQError, match=r"user 'bob' lacks authority for queue manager MQB1 \(CONNECT\)") as error:
        StandInConnection(app.itself, "app", "bob")
    assert error.value.reason == cmqc.MQRC_NOT_AUTHORIZED


OUTPUT, ALTERNATE = cmqc.MQOO_OUTPUT, cmqc.MQOO_ALTERNATE_USER_AUTHORITY


@pytest.mark.parametrize(
    ("grants", "od", "options", "missing"),
    [
        ("", MQOD(ObjectName="Q"), OUTPUT | cmqc.MQOO_INPUT_SHARED, ""),
        ("", MQOD(ObjectName="Q"), OUTPUT | cmqc.MQOO_BROWSE, "queue Q (BROWSE)"),
        ("", MQOD(ObjectName="Q"), OUTPUT | cmqc.MQOO_PASS_ALL_CONTEXT, "queue Q (PASSALL)"),
        ("QUEUE PASSID", MQOD(ObjectName="Q"), OUTPUT | cmqc.MQOO_PASS_IDENTITY_CONTEXT, ""),
        # Setting the context requires the authority for the queue manager as well.
        ("QUEUE SETID", MQOD(ObjectName="Q"), OUTPUT | cmqc.MQOO_SET_IDENTITY_CONTEXT, "queue manager MQB1 (SETID)"),
        ("QMGR SETID", MQOD(ObjectName="Q"), OUTPUT | cmqc.MQOO_SET_IDENTITY_CONTEXT, "queue Q (SETID)"),
        # An alternate user requires ALTUSR. Its own authorities are then checked, except for the context.
        ("", MQOD(ObjectName="Q", AlternateUserId="bob"), OUTPUT | ALTERNATE, "queue manager MQB1 (ALTUSR)"),
        ("QMGR ALTUSR", MQOD(ObjectName="Q", AlternateUserId="mqm"), cmqc.MQOO_BROWSE | ALTERNATE, ""),
        (
            "QMGR ALTUSR",
            MQOD(ObjectName="Q", AlternateUserId="mqm"),
            OUTPUT | ALTERNATE | cmqc.MQOO_PASS_ALL_CONTEXT,
            "queue Q (PASSALL)",
        ),
        ("", MQOD(ObjectType=cmqc.MQOT_Q_MGR), cmqc.MQOO_INQUIRE, "queue manager MQB1 (INQ)"),
        ("QMGR INQ", MQOD(ObjectType=cmqc.MQOT_Q_MGR), cmqc.MQOO_INQUIRE, ""),
        (
            "",
            MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString="a"),
            OUTPUT,
            "topic 'a', topic object SYSTEM.BASE.TOPIC (PUB)",
        ),
        # Authority is checked for a topic behind an alias, too.
        ("", MQOD(ObjectName="NEWS"), OUTPUT, "queue NEWS (PUT)"),
        ("NEWS PUT", MQOD(ObjectName="NEWS"), OUTPUT, "topic 'news', topic object NEWS or SYSTEM.BASE.TOPIC (PUB)"),
    ],
)
def test_opening_requires_the_authorities_of_the_options(
    app: Manager, grants: str, od: MQOD, options: int, missing: str
) -> None:
    app.ok("DEFINE TOPIC(NEWS) TOPICSTR('news')")
    app.ok("DEFINE QALIAS(NEWS) TARGET(NEWS) TARGTYPE(TOPIC)")
    if grants:
        subject, authorities = grants.split()
        kind, profile = ("QMGR", "MQB1") if subject == "QMGR" else ("QUEUE", "Q" if subject == "QUEUE" else subject)
        grant(app, "PRINCIPAL('app')", profile, authorities, kind)
    assert refusal(app, "app", od, options) == missing


def test_open_handles_stay_valid(app: Manager) -> None:
    """Authority is checked when an object is opened."""
    connection = StandInConnection(app.itself, "app", "app")
    handle = connection.open(MQOD(ObjectName="Q"), OUTPUT)
    app.ok("DELETE AUTHREC PROFILE(Q) OBJTYPE(QUEUE) PRINCIPAL('app')")
    connection.put(handle, Message(MQMD(), b"x"))
    assert refusal(app, "app", MQOD(ObjectName="Q"), OUTPUT) == "queue Q (PUT)"


def test_creators_of_permanent_dynamic_queues_have_all_authorities(app: Manager) -> None:
    """Their creators have all authorities for them, also after a restart, until they are deleted."""
    app.ok("DEFINE QMODEL(PERM) DEFTYPE(PERMDYN)")
    grant(app, "PRINCIPAL('app')", "PERM", "PUT,DSP")
    connection = StandInConnection(app.itself, "app", "app")
    connection.open(MQOD(ObjectName="PERM", DynamicQName="MINE"), OUTPUT)
    connection.disconnect()
    app.restart()
    app.itself.enforce_authorities()
    app.ok("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('bob') AUTHADD(CONNECT)")
    grant(app, "PRINCIPAL('bob')", "MINE", "PUT")
    other = StandInConnection(app.itself, "app", "bob")
    with pytest.raises(MQError, match=r"MINE \(DLT\)"):
        other.close(other.open(MQOD(ObjectName="MINE"), OUTPUT), cmqc.MQCO_DELETE)
    connection = StandInConnection(app.itself, "app", "app")
    other.disconnect()
    connection.close(connection.open(MQOD(ObjectName="MINE"), cmqc.MQOO_INPUT_SHARED), cmqc.MQCO_DELETE)
    assert not [record for record in app.itself.objects.authority_records.granted if record.profile == "MINE"]


def test_setting_context_on_an_own_dynamic_queue_requires_authority_for_the_queue_manager(app: Manager) -> None:
    """Its creator has all authorities for the queue, but none for the queue manager ("Authorizations for MQI calls")."""
    app.ok("DEFINE QMODEL(TEMP) DEFTYPE(TEMPDYN)")
    grant(app, "PRINCIPAL('app')", "TEMP", "GET,DSP")
    connection = StandInConnection(app.itself, "app", "app")
    od = MQOD(ObjectName="TEMP", DynamicQName="MINE")
    connection.open(od, cmqc.MQOO_INPUT_SHARED)
    setting = OUTPUT | cmqc.MQOO_SET_ALL_CONTEXT
    assert refusal(app, "app", MQOD(ObjectName="MINE"), setting) == "queue manager MQB1 (SETALL)"
    grant(app, "PRINCIPAL('app')", "MQB1", "SETALL", "QMGR")
    connection.close(connection.open(MQOD(ObjectName="MINE"), setting))
    connection.disconnect()


def test_removing_a_subscription_requires_its_creator_or_sub(app: Manager) -> None:
    """The creator of a subscription and other users with SUB for the topic can remove it. RESUME is not sufficient."""
    app.ok("DEFINE TOPIC(PLANT) TOPICSTR('plant')")
    app.ok("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('bob') AUTHADD(CONNECT)")
    grant(app, "PRINCIPAL('app')", "PLANT", "SUB", "TOPIC")
    grant(app, "PRINCIPAL('bob')", "PLANT", "RESUME", "TOPIC")
    durable = cmqc.MQSO_DURABLE | cmqc.MQSO_MANAGED | cmqc.MQSO_ANY_USERID
    names = ("S1", "S2")
    creator = StandInConnection(app.itself, "app", "app")
    subscriptions = [
        creator.subscribe(MQSD(Options=durable | cmqc.MQSO_CREATE, ObjectString="plant/a", SubName=name))[0]
        for name in names
    ]
    grant(app, "PRINCIPAL('app')", "PLANT", "RESUME", "TOPIC")
    app.ok("SET AUTHREC PROFILE(PLANT) OBJTYPE(TOPIC) PRINCIPAL('app') AUTHRMV(SUB)")
    creator.close(subscriptions[0], cmqc.MQCO_REMOVE_SUB)
    creator.close(subscriptions[1])
    other = StandInConnection(app.itself, "app", "bob")
    handle, _ = other.subscribe(MQSD(Options=durable | cmqc.MQSO_RESUME, SubName="S2"))
    with pytest.raises(MQError, match=r"PLANT or SYSTEM.BASE.TOPIC \(SUB\)"):
        other.close(handle, cmqc.MQCO_REMOVE_SUB)
    grant(app, "PRINCIPAL('bob')", "PLANT", "SUB,RESUME", "TOPIC")
    other.close(handle, cmqc.MQCO_REMOVE_SUB)


def test_subscribing_with_identity_context_requires_setid(app: Manager) -> None:
    """SETID for the queue manager and for the topic."""
    app.ok("DEFINE TOPIC(PLANT) TOPICSTR('plant')")
    options = cmqc.MQSO_CREATE | cmqc.MQSO_MANAGED | cmqc.MQSO_SET_IDENTITY_CONTEXT
    connection = StandInConnection(app.itself, "app", "app")

    def subscribe() -> None:
        connection.subscribe(MQSD(Options=options, ObjectString="plant/a"))

    grant(app, "PRINCIPAL('app')", "PLANT", "SUB", "TOPIC")
    with pytest.raises(MQError, match=r"queue manager MQB1 \(SETID\)"):
        subscribe()
    app.ok("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('app') AUTHADD(SETID)")
    with pytest.raises(MQError, match=r"SYSTEM.BASE.TOPIC \(SETID\)"):
        subscribe()
    grant(app, "PRINCIPAL('app')", "PLANT", "SUB,SETID", "TOPIC")
    subscribe()


# MQTT clients ---------------------------------------------------------------------------------------------------------


def publication(topic: str, user: str, qos: int = 1) -> UnitOfWork:
    unit = UnitOfWork()
    unit.publications.append(
        (to_mq(Publish(topic, b"x", qos, False, False, 1), ClientIdentity("c", user.encode())), False)
    )
    return unit


@pytest.mark.parametrize("enforced", [False, True], ids=["ignored", "enforced"])
async def test_the_backend_rejects_clients_subscriptions_and_publications(manager: Manager, enforced: bool) -> None:
    """Rejection of clients, of subscriptions and of publications."""
    prepare(manager.itself)
    manager.ok("DEFINE TOPIC(PLANT) TOPICSTR('plant')")
    grant(manager, "PRINCIPAL('alice')", "PLANT", "PUB,SUB", "TOPIC")
    grant(manager, "PRINCIPAL('alice','bob')", XMITQ, "PUT")
    if enforced:
        manager.itself.enforce_authorities()
    backend = EmbeddedBackend(manager.itself, XMITQ, asyncio.get_running_loop())
    admitted: dict[str, int] = {}
    subscribed: dict[str, list[int]] = {}
    published: dict[str, int] = {}
    for user in ("alice", "bob", "carol", ""):
        admitted[user] = await backend.admit("c", user)
        subscribed[user] = await backend.subscribe("c", requests(("plant/#", 1), ("x", 0)), durable=False, user=user)
        unit = publication("plant/a", user)
        published[user] = backend.submit(unit).get(0, 0)
    no = cmqc.MQRC_NOT_AUTHORIZED if enforced else 0
    assert admitted == {"alice": 0, "bob": 0, "carol": no, "": no}
    assert subscribed == {"alice": [0, no], "bob": [no, no], "carol": [no, no], "": [no, no]}
    assert published == {"alice": 0, "bob": no, "carol": no, "": no}


def test_the_user_that_runs_the_queue_manager_is_known() -> None:
    assert user_of_this_process() == pwd.getpwuid(os.geteuid()).pw_name
