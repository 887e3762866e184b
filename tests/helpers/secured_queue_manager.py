"""A queue manager with the default security of IBM MQ, at a TCP port: for programs on the stand-in.

Source: IBM MQ documentation, "Resolving CHLAUTH access issues" (the default rules), "Connection authentication:
Configuration" (CHCKCLNT).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import msgspec

from bridge.config.queue_manager import ListenerConfig
from bridge.mq.ibm.connection import IbmConnection, connect_ibm
from bridge.mq.ibm.parameters import ConnectionParameters
from bridge.mq.mqi import CommandResponse
from tests.helpers.client_packages import package
from tests.helpers.served_queue_manager import ServedQueueManager
from tests.ibm_standin.mqi.connection import StandInConnection

#: The channel that applications use.
CHANNEL = "APP.SVRCONN"
#: Privileged, as a member of group mqm.
ADMINISTRATOR = "mqm"
USER = "app"
PASSWORD = "secret"
#: In addition to the default rule of this queue manager: BLOCKUSER('*MQADMIN') for all channels.
_RULES = f"""
ALTER AUTHINFO(SYSTEM.DEFAULT.AUTHINFO.IDPWOS) AUTHTYPE(IDPWOS) CHCKCLNT(REQDADM)
SET CHLAUTH('SYSTEM.ADMIN.SVRCONN') TYPE(ADDRESSMAP) ADDRESS('*') USERSRC(CHANNEL)
SET CHLAUTH('SYSTEM.*') TYPE(ADDRESSMAP) ADDRESS('*') USERSRC(NOACCESS)
DEFINE CHANNEL({CHANNEL}) CHLTYPE(SVRCONN) TRPTYPE(TCP)
"""


class SecuredQueueManager(ServedQueueManager):
    """CONNAUTH and CHLAUTH in force, authorities enforced. Users `app` and `mqm` have the password `secret`.

    `app` has no authorities, not even CONNECT.
    """

    def __init__(self, directory: Path) -> None:
        passwords = directory / "passwords"
        directory.mkdir(parents=True, exist_ok=True)
        passwords.write_text("".join(f"{user}:{PASSWORD}\n" for user in (USER, ADMINISTRATOR)))
        # The listener rejects other names, as IBM MQ rejects undefined channels.
        channels = [CHANNEL, "SYSTEM.DEF.SVRCONN", "SYSTEM.ADMIN.SVRCONN"]
        listener = ListenerConfig(password_file=passwords)
        super().__init__(directory / "data", authorities=True, listener=listener, stand_in=True, channels=channels)
        self._administrator = StandInConnection(self.itself, "tests")
        for command in _RULES.strip().splitlines():
            self.command(command)

    @property
    def address(self) -> str:
        """CONNAME of the queue manager."""
        return f"127.0.0.1({self.port})"

    def command(self, text: str) -> CommandResponse:
        """Run MQSC as the administrator, in bindings mode."""
        (response,) = self._administrator.command(text)
        assert response.ok, response.message
        return response

    def grant(self, authorities: str, kind: str = "QMGR", profile: str = "", user: str = USER) -> None:
        """Grant a user authorities for an object."""
        named = f"PROFILE('{profile}') " if profile else ""
        self.command(f"SET AUTHREC {named}OBJTYPE({kind}) PRINCIPAL('{user}') AUTHADD({authorities})")


class SecuredConnections:
    """Connections by one of the packages to a secured queue manager."""

    def __init__(self, library: str, manager: SecuredQueueManager) -> None:
        self._library = package(library)
        self._parameters = ConnectionParameters(
            queue_manager="MQB1", channel=CHANNEL, connections=manager.address, user=USER, password=PASSWORD
        )
        self._made: list[IbmConnection] = []
        self.manager = manager

    def connect(self, **changed: str) -> IbmConnection:
        """Connect as `app` with APP.SVRCONN, unless parameters specify otherwise."""
        connection = connect_ibm(self._library, msgspec.structs.replace(self._parameters, **changed))
        self._made.append(connection)
        return connection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._made:
            connection.disconnect()


@contextlib.contextmanager
def secured(library: str, directory: Path) -> Iterator[SecuredConnections]:
    """Connections by a package to a secured queue manager."""
    with SecuredQueueManager(directory) as manager, SecuredConnections(library, manager) as connections:
        yield connections
