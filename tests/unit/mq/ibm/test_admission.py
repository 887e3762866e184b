"""Authority to connect, subscribe and publish: the queue manager checks it for each client, as an alternate user."""

from __future__ import annotations

import asyncio

import pytest

from bridge.mq.embedded.queuemanager import QueueManager
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.transmission import PublicationMessage
from bridge.wire import cmqc
from tests.helpers.ibm_backends import NONE, TRANSMIT, Fault, ended, opened, stop
from tests.helpers.patience import PATIENCE
from tests.helpers.units import Unit, requests
from tests.ibm_standin.mqi.connection import StandInConnection

AUTHORITIES = f"""
SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('bridge') AUTHADD(CONNECT,INQ,ALTUSR,SETID)
SET AUTHREC PROFILE('SYSTEM.MQTT.**') OBJTYPE(QUEUE) PRINCIPAL('bridge') AUTHADD(GET,BROWSE,PUT)
SET AUTHREC PROFILE('SYSTEM.BASE.TOPIC') OBJTYPE(TOPIC) PRINCIPAL('bridge') AUTHADD(SUB,RESUME,SETID)
SET AUTHREC PROFILE('{TRANSMIT}') OBJTYPE(QUEUE) PRINCIPAL('alice','bob') AUTHADD(PUT)
SET AUTHREC PROFILE('SYSTEM.BASE.TOPIC') OBJTYPE(TOPIC) PRINCIPAL('alice') AUTHADD(PUB,SUB,RESUME)
"""


@pytest.fixture
def enforced(queue_manager: QueueManager) -> QueueManager:
    assert all(response.ok for response in StandInConnection(queue_manager).command(AUTHORITIES))
    queue_manager.enforce_authorities()
    return queue_manager


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_the_authority_of_the_client_is_checked(
    enforced: QueueManager, caplog: pytest.LogCaptureFixture, asynchronous: bool
) -> None:
    """As an alternate user, for connecting, subscribing and publishing. A blank user is the bridge itself."""
    refused = cmqc.MQRC_NOT_AUTHORIZED
    backend = await opened(enforced, NONE, asynchronous=asynchronous)
    reasons_of_users = {}
    for user in ("alice", "bob", "carol", ""):
        admitted = backend.admit("c", user)
        subscribed = backend.subscribe("c", requests(("t/c", 1)), durable=True, user=user)

        def fill(unit: Unit, user: str = user) -> None:
            identity = ClientIdentity("c", user.encode())
            unit.publications = [(PublicationMessage(identity.descriptors[1], "c", "t/c", b"x", 1, 1), False)]

        reasons = await asyncio.wait_for(admitted, PATIENCE), (await asyncio.wait_for(subscribed, PATIENCE))[0]
        reasons_of_users[user] = (*reasons, (await ended(backend, fill)).refusals.get(0, 0))
    await stop(backend)
    assert reasons_of_users == {
        "alice": (0, 0, 0),
        "bob": (0, refused, refused),
        "carol": (refused, refused, refused),
        "": (0, 0, refused),
    }
    lines = [record.getMessage() for record in caplog.records if record.name != "bridge.mq.embedded.authority"]
    assert any("'c' as user 'carol': MQRC_NOT_AUTHORIZED" in line for line in lines)
    assert any("subscription c:t/c as user 'bob': MQRC_NOT_AUTHORIZED" in line for line in lines)
    assert any("topic 't/c' as user 'bob': MQRC_NOT_AUTHORIZED" in line for line in lines)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", range(1, 4))
async def test_a_client_waits_while_the_queue_manager_is_unreachable(
    enforced: QueueManager, number: int, after: bool
) -> None:
    backend = await opened(enforced, Fault("subscriptions", number, after=after))
    answers: list[tuple[str, int]] = []
    for user in ("alice", "carol", "bob"):
        admission = backend.admit("c", user)
        admission.add_done_callback(lambda answer, user=user: answers.append((user, answer.result())))  # type: ignore[misc]
    await asyncio.wait_for(backend.admit("c", ""), PATIENCE)
    await stop(backend)
    assert answers == [("alice", 0), ("carol", cmqc.MQRC_NOT_AUTHORIZED), ("bob", 0)], "in the order asked"


async def test_many_clients_of_one_user_cause_one_check(enforced: QueueManager) -> None:
    fault = Fault("subscriptions", 0, after=False)
    backend = await opened(enforced, fault)
    before = fault.calls
    answers = [backend.admit(f"c{number}", "alice") for number in range(100)]
    await asyncio.wait_for(backend.admit("last", "alice"), PATIENCE)
    await stop(backend)
    assert [answer.result() for answer in answers] == [0] * 100
    assert fault.calls - before < 100
