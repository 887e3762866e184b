"""The user of messages and commands from applications over TCP: the authenticated user, not the claimed one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from bridge.config.queue_manager import ListenerConfig
from bridge.config.tls import ClientTlsConfig
from bridge.mq.mqi import MQOD, GetOptions, MQError
from bridge.mq.remote import RemoteConnection
from bridge.security.privileged import user_of_this_process
from bridge.security.tls import tls_context
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.certificate_authority import Authority
from tests.helpers.served_queue_manager import ServedQueueManager

RECORDS = """
DEFINE QLOCAL(Q)
DEFINE QLOCAL(ANSWERS)
SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('alice','nobody') AUTHADD(CONNECT)
SET AUTHREC PROFILE(ANSWERS) OBJTYPE(QUEUE) PRINCIPAL('alice','nobody') AUTHADD(PUT,GET)
"""
ADMINISTRATOR = user_of_this_process()


class Site:
    """A queue manager, and a way to connect with the certificate of `alice`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory)
        self.authority.issue("listener")
        self.authority.issue("alice", usage=ExtendedKeyUsageOID.CLIENT_AUTH)
        (directory / "data").mkdir()

    def served(self, authentication: list[dict[str, Any]], *, authorities: bool) -> ServedQueueManager:
        pair = {"certificate_file": self.directory / "listener.pem", "key_file": self.directory / "listener.key"}
        tls = {**pair, "client_certificates": "optional", "ca_file": self.authority.file}
        listener = ListenerConfig.model_validate({"tls": tls, "authentication": authentication})
        served = ServedQueueManager(self.directory / "data", listener=listener, authorities=authorities)
        assert all(response.ok for response in RemoteConnection(self.directory / "data").command(RECORDS))
        return served

    def connected(self, served: ServedQueueManager, user: str, certificate: str = "alice") -> RemoteConnection:
        files = self.directory / f"{certificate}.pem", self.directory / f"{certificate}.key"
        pair = dict(zip(("certificate_file", "key_file"), files, strict=True))
        tls = tls_context(ClientTlsConfig.model_validate({"ca_file": self.authority.file, **pair}))
        return RemoteConnection(("localhost", served.port), user=user, tls=tls)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


CERTIFICATE = [{"method": "certificate"}]
ANONYMOUS = [{"method": "anonymous"}]


@pytest.mark.parametrize("user", ["mqm", ADMINISTRATOR, "alice", ""])
@pytest.mark.parametrize(
    ("authentication", "authorities", "identity"),
    [
        (CERTIFICATE, True, "alice"),
        (CERTIFICATE, False, "alice"),
        (ANONYMOUS, True, "nobody"),
        (ANONYMOUS, False, "nobody"),
        ([], True, "nobody"),
        ([], False, None),
    ],
    ids=[
        "certificate",
        "certificate, ignored",
        "anonymous",
        "anonymous, ignored",
        "nobody asked",
        "nobody asked, ignored",
    ],
)
def test_messages_have_the_authenticated_user(
    site: Site, authentication: Any, authorities: bool, identity: str | None, user: str
) -> None:
    """MQMD.UserIdentifier is the authenticated user. Without authentication and authorities, it is the claimed user."""
    with site.served(authentication, authorities=authorities) as served:
        if identity is None and user in ("mqm", ADMINISTRATOR):  # CHLAUTH(*) TYPE(BLOCKUSER) USERLIST(*MQADMIN)
            with pytest.raises(MQError, match="MQRC_NOT_AUTHORIZED"):
                site.connected(served, user)
            return
        connection = site.connected(served, user)
        connection.put1(MQOD(ObjectName="ANSWERS"), Message(MQMD(), b"x"))
        handle = connection.open(MQOD(ObjectName="ANSWERS"), cmqc.MQOO_INPUT_SHARED)
        md = connection.get(handle, GetOptions()).md
    assert md.UserIdentifier.rstrip(b" \0").decode() == (user if identity is None else identity)


@pytest.mark.parametrize(
    "authentication", [CERTIFICATE, ANONYMOUS, []], ids=["certificate", "anonymous", "nobody asked"]
)
@pytest.mark.parametrize("user", ["mqm", ADMINISTRATOR])
def test_no_application_becomes_an_administrator_by_claiming_it(
    site: Site, authentication: Any, user: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Commands are rejected, and the audit log contains the authenticated user."""
    with site.served(authentication, authorities=True) as served:
        connection = site.connected(served, user)
        for command in (lambda: connection.command("DELETE QLOCAL(Q)"), lambda: connection.clear_retained("t")):
            with pytest.raises(MQError, match="MQRC_NOT_AUTHORIZED"):
                command()
        assert "Q" in served.itself.objects.queues
    entries = [json.loads(record.getMessage()) for record in caplog.records if record.name == "bridge.audit"]
    who = "alice" if authentication is CERTIFICATE else "nobody"
    commands = [(entry["command"], entry["user"], entry["ok"]) for entry in entries if entry["event"] == "command"]
    assert commands[-2:] == [("DELETE QLOCAL(Q)", who, False), ("CLEAR TOPICSTR('t')", who, False)]


@pytest.mark.parametrize(
    ("records", "authentication", "user", "identity"),
    [
        ([], CERTIFICATE, "", "alice"),
        (["SET CHLAUTH(*) TYPE(BLOCKADDR) ADDRLIST('127.*')"], CERTIFICATE, "", cmqc.MQRC_CONNECTION_BROKEN),
        (["SET CHLAUTH(*) TYPE(BLOCKADDR) ADDRLIST('127.*') WARN(YES)"], CERTIFICATE, "", "alice"),
        (["SET CHLAUTH(*) TYPE(BLOCKADDR) ADDRLIST('10.*')"], CERTIFICATE, "", "alice"),
        (["SET CHLAUTH(*) TYPE(BLOCKUSER) USERLIST('alice')"], CERTIFICATE, "", cmqc.MQRC_NOT_AUTHORIZED),
        (["SET CHLAUTH(*) TYPE(BLOCKUSER) USERLIST('alice')"], CERTIFICATE, "bob", cmqc.MQRC_NOT_AUTHORIZED),
        (["SET CHLAUTH(OTHER) TYPE(BLOCKUSER) USERLIST('alice')"], CERTIFICATE, "", "alice"),
        (["SET CHLAUTH(*) TYPE(ADDRESSMAP) ADDRESS('*') USERSRC(NOACCESS)"], CERTIFICATE, "", cmqc.MQRC_NOT_AUTHORIZED),
        (["SET CHLAUTH(*) TYPE(ADDRESSMAP) ADDRESS('127.0.0.1') MCAUSER('app')"], [], "x", "app"),
        (["SET CHLAUTH(*) TYPE(USERMAP) CLNTUSER('alice') MCAUSER('app')"], CERTIFICATE, "bob", "app"),
        (["SET CHLAUTH(*) TYPE(USERMAP) CLNTUSER('bob') MCAUSER('app')"], CERTIFICATE, "bob", "alice"),
        (["SET CHLAUTH(*) TYPE(USERMAP) CLNTUSER('mqm') MCAUSER('app')"], [], "mqm", "app"),
        (["SET CHLAUTH(*) TYPE(USERMAP) CLNTUSER('mqm') MCAUSER('mqm')"], [], "mqm", "mqm"),
        (["SET CHLAUTH(*) TYPE(SSLPEERMAP) SSLPEER('CN=alice') MCAUSER('mqm')"], CERTIFICATE, "", "mqm"),
        (["SET CHLAUTH(*) TYPE(SSLPEERMAP) SSLPEER('CN=bob') MCAUSER('mqm')"], CERTIFICATE, "", "alice"),
        (["SET CHLAUTH(*) TYPE(BLOCKUSER) USERLIST(*MQADMIN) ACTION(REMOVE)"], [], "mqm", cmqc.MQRC_NOT_AUTHORIZED),
    ],
)
@pytest.mark.parametrize("authorities", [True, False], ids=["enforced", "ignored"])
def test_channel_authentication_records_apply_to_applications(
    site: Site, authorities: bool, records: list[str], authentication: Any, user: str, identity: str | int
) -> None:
    """They apply to applications over TCP as to MQTT clients. Here, records for all channels apply to one without a
    channel.
    """
    with site.served(authentication, authorities=authorities) as served:
        local = RemoteConnection(site.directory / "data")
        everybody = "SET AUTHREC OBJTYPE(QMGR) GROUP('nobody') AUTHADD(CONNECT)"
        answers = "SET AUTHREC PROFILE(ANSWERS) OBJTYPE(QUEUE) GROUP('nobody') AUTHADD(PUT,GET)"
        assert all(response.ok for response in local.command("\n".join([everybody, answers, *records])))
        if authorities and not authentication and user == "mqm" and not isinstance(identity, str):
            identity = "nobody"  # a claimed name is not trusted without authentication
        if isinstance(identity, int):
            with pytest.raises(MQError) as refused:
                site.connected(served, user)
            # A client that is closed at once notices it while it connects, in the TLS handshake, or after it.
            closed = {cmqc.MQRC_Q_MGR_NOT_AVAILABLE, cmqc.MQRC_SSL_INITIALIZATION_ERROR, cmqc.MQRC_CONNECTION_BROKEN}
            assert refused.value.reason in (closed if identity in closed else {identity})
            return
        connection = site.connected(served, user)
        connection.put1(MQOD(ObjectName="ANSWERS"), Message(MQMD(), b"x"))
        handle = connection.open(MQOD(ObjectName="ANSWERS"), cmqc.MQOO_INPUT_SHARED)
        assert connection.get(handle, GetOptions()).md.UserIdentifier.rstrip(b" \0").decode() == identity


def test_a_user_name_too_long_for_mq_is_rejected_unless_it_is_mapped(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """Two names with the same beginning are different users (IBM MQ, "User IDs": at most 12 characters)."""
    name = "administrator-2"
    site.authority.issue(name, usage=ExtendedKeyUsageOID.CLIENT_AUTH)
    with site.served(CERTIFICATE, authorities=False) as served:
        with pytest.raises(MQError, match="MQRC_NOT_AUTHORIZED"):
            site.connected(served, "", name)
        assert f"'{name}'" in caplog.text
        record = f"SET CHLAUTH(*) TYPE(USERMAP) CLNTUSER('{name}') MCAUSER('app')"
        assert all(response.ok for response in RemoteConnection(site.directory / "data").command(record))
        site.connected(served, "", name).put1(MQOD(ObjectName="ANSWERS"), Message(MQMD(), b"x"))


def test_the_status_of_a_queue_has_user_and_address_of_an_application_over_tcp(site: Site) -> None:
    with site.served(CERTIFICATE, authorities=False) as served:
        connection = site.connected(served, "")
        connection.open(MQOD(ObjectName="ANSWERS"), cmqc.MQOO_INPUT_SHARED)
        (response,) = RemoteConnection(site.directory / "data").command("DISPLAY QSTATUS(ANSWERS) TYPE(HANDLE)")
        (handle,) = response.objects
    assert (handle["USERID"], handle["CONNAME"], handle["INPUT"]) == ("alice", "127.0.0.1", "SHARED")


@pytest.mark.parametrize(
    "options",
    [
        cmqc.MQPMO_SET_IDENTITY_CONTEXT,
        cmqc.MQPMO_SET_ALL_CONTEXT,
        cmqc.MQPMO_ALTERNATE_USER_AUTHORITY,
    ],
    ids=["identity", "all", "alternate user"],
)
def test_acting_as_another_user_requires_authority(site: Site, options: int) -> None:
    """The authority is required to set the context of a message, and to act as an alternate user."""
    with site.served(CERTIFICATE, authorities=True) as served:
        connection = site.connected(served, "")
        od = MQOD(ObjectName="ANSWERS", AlternateUserId="mqm")
        md = MQMD(UserIdentifier=b"mqm")
        with pytest.raises(MQError, match="MQRC_NOT_AUTHORIZED"):
            connection.put1(od, Message(md, b""), options)
        for option in (cmqc.MQOO_SET_IDENTITY_CONTEXT, cmqc.MQOO_SET_ALL_CONTEXT, cmqc.MQOO_ALTERNATE_USER_AUTHORITY):
            with pytest.raises(MQError, match="MQRC_NOT_AUTHORIZED"):
                connection.open(od, cmqc.MQOO_OUTPUT | option)
