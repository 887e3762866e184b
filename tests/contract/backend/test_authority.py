"""MQRC_NOT_AUTHORIZED: the authority that each call requires, with an alternate user.

The connected user is an administrator. Source: IBM MQ documentation, "Authorizations for MQI calls".
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from bridge.config.queue_manager import COMMAND_QUEUE
from bridge.mq.mqi import MQOD, MQSD
from bridge.telemetry.message import Message
from bridge.wire.mq import MQMD
from bridge.wire.mq.pcf import MQCFH, MQCFST, decode_pcf, encode_pcf
from tests.helpers.mq_applications import Application, Workplace, refused
from tests.ibm_standin import cmqc, cmqcfc

#: A user without any authority. A real queue manager requires a user that the operating system knows.
USER = os.environ.get("MQBRIDGE_TEST_ALTERNATE_USER", "app")


@pytest.fixture(autouse=True)
def _known_to_the_operating_system(request: pytest.FixtureRequest) -> None:
    if "[real" in request.node.name and "MQBRIDGE_TEST_ALTERNATE_USER" not in os.environ:
        pytest.skip("MQBRIDGE_TEST_ALTERNATE_USER names no user without authorities")


def grant(mq: Workplace, profile: str, kind: str, authorities: str) -> None:
    whose = f"PROFILE('{profile}') OBJTYPE({kind}) PRINCIPAL('{USER}')"
    mq.command(f"SET AUTHREC {whose} AUTHADD({authorities})")
    mq.at_end(f"DELETE AUTHREC {whose}")


@pytest.mark.parametrize(
    ("options", "authorities"),
    [
        (cmqc.MQOO_INPUT_SHARED, "GET"),
        (cmqc.MQOO_INPUT_EXCLUSIVE, "GET"),
        (cmqc.MQOO_BROWSE, "BROWSE"),
        (cmqc.MQOO_OUTPUT, "PUT"),
        (cmqc.MQOO_INQUIRE, "INQ"),
        (cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_BROWSE | cmqc.MQOO_OUTPUT, "GET,BROWSE,PUT"),
        # Context needs the authority of the connected user.
        (cmqc.MQOO_OUTPUT | cmqc.MQOO_SET_ALL_CONTEXT, "PUT"),
    ],
)
def test_opening_a_queue(mq: Workplace, queue: str, app: Application, options: int, authorities: str) -> None:
    *others, last = authorities.split(",")
    if others:
        grant(mq, queue, "QUEUE", ",".join(others))
    with refused(cmqc.MQRC_NOT_AUTHORIZED):
        app.open_as(USER, options, ObjectName=queue)
    grant(mq, queue, "QUEUE", last)
    app.close(app.open_as(USER, options, ObjectName=queue))


@pytest.mark.smoke
def test_the_authority_of_the_opened_name_is_checked(mq: Workplace, queue: str, app: Application) -> None:
    alias = mq.alias(f"TARGET('{queue}')")
    grant(mq, alias, "QUEUE", "PUT")
    app.close(app.open_as(USER, cmqc.MQOO_OUTPUT, ObjectName=alias))
    with refused(cmqc.MQRC_NOT_AUTHORIZED):
        app.open_as(USER, cmqc.MQOO_OUTPUT, ObjectName=queue)


@pytest.mark.smoke
def test_a_queue_at_another_queue_manager(mq: Workplace, app: Application) -> None:
    """For a name with the local queue manager, the transmission queue is checked. For a remote queue, its definition is
    checked.
    """
    transmission = mq.queue("USAGE(XMITQ)")
    remote = mq.remote_queue(f"RNAME(THERE) RQMNAME(ELSEWHERE) XMITQ('{transmission}')")
    there: dict[str, Any] = {"ObjectName": "THERE", "ObjectQMgrName": transmission}
    for od in (there, {"ObjectName": remote}):
        with refused(cmqc.MQRC_NOT_AUTHORIZED):
            app.open_as(USER, cmqc.MQOO_OUTPUT, **od)
    grant(mq, remote, "QUEUE", "PUT")
    app.close(app.open_as(USER, cmqc.MQOO_OUTPUT, ObjectName=remote))
    with refused(cmqc.MQRC_NOT_AUTHORIZED):
        app.open_as(USER, cmqc.MQOO_OUTPUT, **there)
    grant(mq, transmission, "QUEUE", "PUT")
    app.close(app.open_as(USER, cmqc.MQOO_OUTPUT, **there))


def test_topics(mq: Workplace, app: Application) -> None:
    """The authority may come from any topic object at or above the topic string."""
    root = mq.name()
    above, below = mq.topic_object(root), mq.topic_object(f"{root}/a")
    options = cmqc.MQOO_OUTPUT

    def open_(topic: str) -> None:
        app.close(app.open_as(USER, options, ObjectType=cmqc.MQOT_TOPIC, ObjectString=topic))

    with refused(cmqc.MQRC_NOT_AUTHORIZED):
        open_(f"{root}/a/x")
    grant(mq, below, "TOPIC", "PUB")
    open_(f"{root}/a/x")
    with refused(cmqc.MQRC_NOT_AUTHORIZED):
        open_(f"{root}/b")
    grant(mq, above, "TOPIC", "PUB")
    open_(f"{root}/b")


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_put1(mq: Workplace, app: Application, kind: str) -> None:
    if kind == "queue":
        od = MQOD(ObjectName=mq.queue(), AlternateUserId=USER)
        profile, type_, authority = od.ObjectName, "QUEUE", "PUT"
    else:
        od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=mq.name(), AlternateUserId=USER)
        profile, type_, authority = mq.topic_object(od.ObjectString), "TOPIC", "PUB"
    message = Message(MQMD(), b"x")
    with refused(cmqc.MQRC_NOT_AUTHORIZED):
        app.connection.put1(od, message, cmqc.MQPMO_ALTERNATE_USER_AUTHORITY)
    grant(mq, profile, type_, authority)
    app.connection.put1(od, message, cmqc.MQPMO_ALTERNATE_USER_AUTHORITY)


@pytest.mark.whole_mqi
def test_subscribing(mq: Workplace, app: Application) -> None:
    """SUB for create and alter, RESUME for resume, and PUT for the destination."""
    topic, name, queue = mq.name(), mq.name(), mq.queue()
    node = mq.topic_object(topic)
    handle = app.open_queue(queue)

    def subscribe(how: int, destination: int | None = handle) -> None:
        sd = MQSD(
            Options=how | cmqc.MQSO_ALTERNATE_USER_AUTHORITY | cmqc.MQSO_DURABLE | cmqc.MQSO_ANY_USERID,
            ObjectString=topic,
            SubName=name,
            AlternateUserId=USER,
        )
        app.close(app.connection.subscribe(sd, destination)[0])

    with refused(cmqc.MQRC_NOT_AUTHORIZED):
        subscribe(cmqc.MQSO_CREATE)
    grant(mq, node, "TOPIC", "SUB")
    with refused(cmqc.MQRC_NOT_AUTHORIZED):
        subscribe(cmqc.MQSO_CREATE)
    grant(mq, queue, "QUEUE", "PUT")
    subscribe(cmqc.MQSO_CREATE)
    mq.at_end(f"DELETE SUB('{name}')")
    subscribe(cmqc.MQSO_ALTER)
    with refused(cmqc.MQRC_NOT_AUTHORIZED):
        subscribe(cmqc.MQSO_RESUME)
    grant(mq, node, "TOPIC", "RESUME")
    subscribe(cmqc.MQSO_RESUME)


def test_commands(mq: Workplace, app: Application, request: pytest.FixtureRequest) -> None:
    """DSP for the queue manager, and the authority of the command for its object ("Authorizations for PCF commands").

    The command server checks the user in MQMD.UserIdentifier.
    """
    if request.node.callspec.params["connect"] in ("local", "remote"):
        pytest.skip("it has no command server")
    queue, replies = mq.queue(), mq.queue()

    def cleared() -> int:
        body = encode_pcf(MQCFH(Command=cmqcfc.MQCMD_CLEAR_Q), [MQCFST(cmqc.MQCA_Q_NAME, queue.encode())])
        fields = {"Format": cmqc.MQFMT_ADMIN, "MsgType": cmqc.MQMT_REQUEST, "CodedCharSetId": 1208}
        md = MQMD(ReplyToQ=replies.encode(), UserIdentifier=USER.encode(), **fields)
        handle = app.open_queue(COMMAND_QUEUE, cmqc.MQOO_OUTPUT | cmqc.MQOO_SET_IDENTITY_CONTEXT)
        app.connection.put(handle, Message(md, body), cmqc.MQPMO_SET_IDENTITY_CONTEXT)
        app.close(handle)
        reply = app.take(replies, cmqc.MQGMO_WAIT | cmqc.MQGMO_CONVERT, WaitInterval=30_000)
        app.all(replies)
        return decode_pcf(reply.data)[0].Reason

    mq.command(f"SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('{USER}') AUTHADD(CONNECT)")
    mq.at_end(f"DELETE AUTHREC OBJTYPE(QMGR) PRINCIPAL('{USER}')")
    grant(mq, queue, "QUEUE", "CLR")
    assert cleared() == cmqc.MQRC_NOT_AUTHORIZED
    mq.command(f"SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('{USER}') AUTHADD(DSP)")
    assert cleared() == cmqc.MQRC_NONE
    grant(mq, queue, "QUEUE", "DSP")
    mq.command(f"SET AUTHREC PROFILE('{queue}') OBJTYPE(QUEUE) PRINCIPAL('{USER}') AUTHRMV(CLR)")
    assert cleared() == cmqc.MQRC_NOT_AUTHORIZED


@pytest.mark.whole_mqi
def test_a_dynamic_queue_belongs_to_its_creator(mq: Workplace, app: Application) -> None:
    model = mq.model_queue("DEFTYPE(TEMPDYN)")
    own = {"ObjectName": model, "DynamicQName": f"{mq.name('D')}.*"}
    grant(mq, model, "QUEUE", "GET")
    with refused(cmqc.MQRC_NOT_AUTHORIZED):
        app.open_as(USER, cmqc.MQOO_INPUT_SHARED, **own)
    grant(mq, model, "QUEUE", "DSP")
    od = MQOD(AlternateUserId=USER, **own)
    handle = app.open(od, cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_ALTERNATE_USER_AUTHORITY)
    app.close(app.open_as(USER, cmqc.MQOO_OUTPUT, ObjectName=od.ObjectName))
    with refused(cmqc.MQRC_NOT_AUTHORIZED):
        app.open_as(f"{USER}x"[:12], cmqc.MQOO_OUTPUT, ObjectName=od.ObjectName)
    app.close(handle)


def test_generic_profiles(mq: Workplace, app: Application) -> None:
    """The most specific profile applies, even if it grants less."""
    first, second = mq.queue(), mq.queue()
    prefix = first.rpartition(".")[0]
    grant(mq, f"{prefix}.*", "QUEUE", "PUT")
    grant(mq, first, "QUEUE", "GET")
    app.close(app.open_as(USER, cmqc.MQOO_OUTPUT, ObjectName=second))
    with refused(cmqc.MQRC_NOT_AUTHORIZED):
        app.open_as(USER, cmqc.MQOO_OUTPUT, ObjectName=first)
