"""Connecting to a queue manager with the default security of IBM MQ: CONNAUTH, CHLAUTH, authorities.

Source: IBM MQ documentation, "Resolving CHLAUTH access issues", "Connection authentication: Configuration", "2540
(MQRC_UNKNOWN_CHANNEL_NAME)".
"""

from __future__ import annotations

from typing import Any

import pytest

from bridge.mq.mqi import MQOD
from bridge.telemetry.message import Message
from bridge.wire.mq import MQMD
from tests.helpers.mq_applications import refused
from tests.helpers.secured_queue_manager import ADMINISTRATOR, CHANNEL, SecuredConnections
from tests.ibm_standin import cmqc

NO = cmqc.MQRC_NOT_AUTHORIZED


@pytest.mark.smoke
def test_connecting_requires_authority(secured: SecuredConnections) -> None:
    with refused(NO):
        secured.connect()
    secured.manager.grant("CONNECT")
    secured.connect()


@pytest.mark.parametrize("wrong", [{"password": "guessed"}, {"user": "stranger"}], ids=["password", "user"])
def test_a_given_password_must_be_correct(secured: SecuredConnections, wrong: Any) -> None:
    secured.manager.grant("CONNECT")
    secured.manager.grant("CONNECT", user="stranger")
    with refused(NO):
        secured.connect(**wrong)


@pytest.mark.smoke
def test_a_user_without_a_password_is_not_authenticated(secured: SecuredConnections) -> None:
    """CHCKCLNT(REQDADM) checks privileged users only. Here, an unverified name has no authorities."""
    secured.manager.grant("CONNECT")
    with refused(NO):
        secured.connect(user="", password="")


def test_privileged_users_are_blocked_on_all_channels(secured: SecuredConnections) -> None:
    """Unless a record of the channel overrides this: BLOCKUSER('*MQADMIN')."""
    with refused(NO):
        secured.connect(user=ADMINISTRATOR)
    secured.manager.command(f"SET CHLAUTH('{CHANNEL}') TYPE(BLOCKUSER) USERLIST('nobody')")
    address = "ADDRESSMAP) ADDRESS('127.0.0.1')"
    secured.manager.command(f"SET CHLAUTH('{CHANNEL}') TYPE({address} USERSRC(MAP) MCAUSER('{ADMINISTRATOR}')")
    (response,) = secured.connect(user=ADMINISTRATOR).command("DISPLAY QMGR QMNAME")
    assert response.ok


def test_system_channels_reject_all_clients(secured: SecuredConnections) -> None:
    secured.manager.grant("CONNECT")
    with refused(NO):
        secured.connect(channel="SYSTEM.DEF.SVRCONN")


def test_system_admin_svrconn_is_open(secured: SecuredConnections) -> None:
    secured.manager.grant("CONNECT")
    secured.connect(channel="SYSTEM.ADMIN.SVRCONN")


def test_a_channel_that_is_not_defined(secured: SecuredConnections) -> None:
    secured.manager.grant("CONNECT")
    with refused(cmqc.MQRC_UNKNOWN_CHANNEL_NAME):
        secured.connect(channel="NOT.DEFINED")


def test_operations_require_authorities_of_the_user(secured: SecuredConnections) -> None:
    secured.manager.grant("CONNECT")
    secured.manager.command("DEFINE QLOCAL(Q)")
    connection = secured.connect()
    with refused(NO):
        connection.put1(MQOD(ObjectName="Q"), Message(MQMD(), b"x"))
    secured.manager.grant("PUT", "QUEUE", "Q")
    connection.put1(MQOD(ObjectName="Q"), Message(MQMD(), b"x"))
