"""TLS, client channel definition tables and tokens: connections of the bridge with both packages on the stand-in.

Reasons come from the IBM MQ documentation: see tests/ibm_standin/src/tls.c and ccdt.c. The treatment of CMS key repositories
by IBM's GSKit cannot be tested here.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from bridge.config.queue_manager import ListenerConfig
from bridge.mq.ibm.connection import IbmConnection, connect_ibm
from bridge.mq.ibm.parameters import ConnectionParameters, Tls
from bridge.mq.mqi import MQOD, GetOptions, MQError
from bridge.telemetry.message import Message
from bridge.wire.mq import MQMD
from tests.helpers import client_packages
from tests.helpers.certificate_authority import Authority
from tests.helpers.patience import until
from tests.helpers.served_queue_manager import ServedQueueManager
from tests.helpers.token_issuer import Issuer
from tests.ibm_standin import cmqc
from tests.ibm_standin.mqi.connection import StandInConnection

PASSWORD = "key store 1"
CHANNEL = "DEV.APP.SVRCONN"
INQUIRE = cmqc.MQOO_INQUIRE


class Site:
    """A queue manager whose channel requires TLS and certificates (SSLCAUTH(REQUIRED)), and a client of it."""

    def __init__(self, directory: Path, **tls: Any) -> None:
        self.directory = directory
        self.authority = Authority(directory)
        self.authority.issue("qm1", common_name="QM1")
        self.authority.client("client")
        self.repository = self.authority.key_repository("client", PASSWORD, label="bridge")
        options = {
            "certificate_file": directory / "qm1.pem",
            "key_file": directory / "qm1.key",
            "client_certificates": "required",
            "ca_file": self.authority.file,
        }
        self.listener = ListenerConfig.model_validate({"tls": options | tls})
        self.queue_manager = ServedQueueManager(
            directory / "data", listener=self.listener, stand_in=True, channels=[CHANNEL]
        )
        self.place = f"127.0.0.1({self.queue_manager.port})"
        self.tls = Tls(
            key_repository=str(self.repository),
            cipher_spec="ANY_TLS12_OR_HIGHER",
            certificate_label="bridge",
            password=PASSWORD,
        )

    def parameters(self, *, tls: Tls | None = None, **changes: Any) -> ConnectionParameters:
        parameters = {"channel": CHANNEL, "connections": self.place} | changes
        return ConnectionParameters(queue_manager="MQB1", tls=tls or self.tls, **parameters)

    def secured(self, **changes: Any) -> ConnectionParameters:
        """Return parameters with changed TLS options."""
        return self.parameters(tls=msgspec.structs.replace(self.tls, **changes))

    @contextlib.contextmanager
    def channel(self, attributes: str) -> Iterator[None]:
        """Define the channel. Without a definition, connections are not limited."""
        connection = StandInConnection(self.queue_manager.itself, "tests")
        (response,) = connection.command(f"DEFINE CHANNEL({CHANNEL}) CHLTYPE(SVRCONN) {attributes}")
        assert response.ok, response.message
        try:
            yield
        finally:
            connection.command(f"DELETE CHANNEL({CHANNEL}) CHLTYPE(SVRCONN)")
            connection.disconnect()

    def repository_of(self, name: str, trusts: Authority | None = None, **issue: Any) -> str:
        """A key repository of another client."""
        self.authority.client(name, **issue)
        return str(self.authority.key_repository(name, PASSWORD, label="bridge", trusts=trusts))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    new_site = Site(tmp_path_factory.mktemp("site"))
    yield new_site
    new_site.queue_manager.close()


@pytest.fixture
def connect(package: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[ConnectionParameters], IbmConnection]]:
    """Connect with a package, as parameters specify."""
    library = client_packages.package(package)
    for variable in ("MQI_STANDIN", "MQSERVER"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("MQCCDTURL", "")  # pymqi's connections set it, so restore it afterwards
    monkeypatch.delenv("MQCCDTURL")
    connections: list[IbmConnection] = []

    def new(parameters: ConnectionParameters) -> IbmConnection:
        connections.append(connect_ibm(library, parameters))
        return connections[-1]

    yield new
    for connection in connections:
        try:
            connection.disconnect()
        except MQError as error:
            assert error.reason in (cmqc.MQRC_CONNECTION_BROKEN, cmqc.MQRC_HCONN_ERROR)


Connecting = Callable[[ConnectionParameters], IbmConnection]


def works(connection: IbmConnection) -> bool:
    """Return whether a call succeeds on a connection."""
    connection.close(connection.open(MQOD(ObjectType=cmqc.MQOT_Q_MGR), INQUIRE))
    return True


def refused(connect: Connecting, parameters: ConnectionParameters) -> MQError:
    with pytest.raises(MQError) as raised:
        connect(parameters)
    assert PASSWORD not in str(raised.value)
    return raised.value


# TLS -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cipher_spec", ["ANY_TLS12", "ANY_TLS13", "ECDHE_ECDSA_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"]
)
def test_a_client_certificate_and_a_cipher_spec_connect(connect: Connecting, site: Site, cipher_spec: str) -> None:
    assert works(connect(site.secured(cipher_spec=cipher_spec)))


@pytest.mark.parametrize("peer_name", ["CN=QM1", "CN=qm1, O=EXAMPLE", "O=Exam*;CN=*M1", 'CN="QM1"', "O=*", "CN=*M*"])
def test_a_peer_name_matches_as_sslpeer_does(connect: Connecting, site: Site, peer_name: str) -> None:
    assert works(connect(site.secured(peer_name=peer_name)))


@pytest.mark.parametrize("peer_name", ["CN=QM2", "CN=QM1,OU=MQ", "CN=QM", "CN=QM1,CN=QM1"])
def test_a_different_peer_name_is_rejected(connect: Connecting, site: Site, peer_name: str) -> None:
    error = refused(connect, site.secured(peer_name=peer_name))
    assert error.reason == cmqc.MQRC_SSL_PEER_NAME_MISMATCH
    assert f"the queue manager's certificate does not match {peer_name}" in error.detail


@pytest.mark.parametrize("peer_name", ["QM1", "HOST=QM1", "cn=QM1", "CN =QM1", "CN=", "CN=Q*1", 'CN="QM1'])
def test_a_malformed_peer_name_is_rejected(connect: Connecting, site: Site, peer_name: str) -> None:
    assert refused(connect, site.secured(peer_name=peer_name)).reason == cmqc.MQRC_SSL_PEER_NAME_ERROR


def test_a_cipher_spec_that_differs_from_the_channel_is_rejected(connect: Connecting, tmp_path: Path) -> None:
    site = Site(tmp_path, ciphers="ANY_TLS13")
    try:
        error = refused(connect, site.secured(cipher_spec="ANY_TLS12"))
        assert works(connect(site.secured(cipher_spec="ANY_TLS13")))
    finally:
        site.queue_manager.close()
    assert error.reason == cmqc.MQRC_SSL_INITIALIZATION_ERROR
    assert "check that ANY_TLS12 matches SSLCIPH of the channel" in error.detail


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ("SSLCIPH(ANY_TLS13)", 0),
        ("SSLCIPH(TLS_AES_256_GCM_SHA384) SSLPEER('CN=client,O=Example')", 0),
        ("SSLCIPH(' ')", cmqc.MQRC_SSL_INITIALIZATION_ERROR),
        ("SSLCIPH(ANY_TLS12)", cmqc.MQRC_SSL_INITIALIZATION_ERROR),
        ("SSLCIPH(ANY_TLS13) SSLPEER('CN=other')", cmqc.MQRC_SSL_PEER_NAME_MISMATCH),
    ],
)
def test_the_definition_of_the_channel_decides_on_client_certificates(
    connect: Connecting, site: Site, attributes: str, reason: int
) -> None:
    with site.channel(attributes):
        if reason:
            assert refused(connect, site.secured(cipher_spec="ANY_TLS13")).reason == reason
        else:
            assert works(connect(site.secured(cipher_spec="ANY_TLS13")))


def test_a_channel_that_requires_certificates_rejects_a_client_without_one(connect: Connecting, tmp_path: Path) -> None:
    site = Site(tmp_path, client_certificates="optional")
    nameless = site.secured(certificate_label="")
    try:
        with site.channel("SSLCIPH(ANY_TLS12_OR_HIGHER) SSLCAUTH(OPTIONAL)"):
            assert works(connect(nameless))
        with site.channel("SSLCIPH(ANY_TLS12_OR_HIGHER)"):
            assert refused(connect, nameless).reason == cmqc.MQRC_SSL_INITIALIZATION_ERROR
    finally:
        site.queue_manager.close()


def test_a_channel_with_a_cipher_spec_rejects_a_client_without_one(connect: Connecting, tmp_path: Path) -> None:
    with ServedQueueManager(tmp_path, tcp=True, stand_in=True) as served:
        StandInConnection(served.itself, "tests").command(
            f"DEFINE CHANNEL({CHANNEL}) CHLTYPE(SVRCONN) SSLCIPH(ANY_TLS12)"
        )
        place = f"127.0.0.1({served.port})"
        error = refused(connect, ConnectionParameters(queue_manager="MQB1", channel=CHANNEL, connections=place))
    assert error.reason == cmqc.MQRC_SSL_INITIALIZATION_ERROR


def test_an_unknown_cipher_spec_is_rejected(connect: Connecting, site: Site) -> None:
    assert refused(connect, site.secured(cipher_spec="NO_SUCH")).reason == cmqc.MQRC_SSL_INITIALIZATION_ERROR


def test_a_cipher_spec_that_is_not_fips_certified_is_rejected_with_fips(connect: Connecting, site: Site) -> None:
    spec = "TLS_CHACHA20_POLY1305_SHA256"
    assert works(connect(site.secured(cipher_spec=spec)))
    assert refused(connect, site.secured(cipher_spec=spec, fips=True)).reason == cmqc.MQRC_SSL_INITIALIZATION_ERROR


def test_a_channel_with_tls_rejects_a_client_without_tls(connect: Connecting, site: Site) -> None:
    plain = ConnectionParameters(queue_manager="MQB1", channel=CHANNEL, connections=site.place)
    error = refused(connect, plain)
    assert error.reason in (cmqc.MQRC_Q_MGR_NOT_AVAILABLE, cmqc.MQRC_CONNECTION_BROKEN)
    assert "the bridge needs the section tls" in error.detail


def test_a_channel_without_tls_rejects_a_client_with_tls(connect: Connecting, site: Site, tmp_path: Path) -> None:
    with ServedQueueManager(tmp_path, tcp=True, stand_in=True) as plain:
        error = refused(connect, site.parameters(connections=f"127.0.0.1({plain.port})"))
    assert error.reason == cmqc.MQRC_SSL_INITIALIZATION_ERROR


def test_the_error_names_a_key_repository_that_does_not_exist(connect: Connecting, site: Site) -> None:
    error = refused(connect, site.secured(key_repository=str(site.directory / "none.p12")))
    assert error.reason == cmqc.MQRC_KEY_REPOSITORY_ERROR
    assert f"{site.directory / 'none.p12'} does not exist" in error.detail


def test_a_wrong_password_of_the_key_repository_is_rejected(connect: Connecting, site: Site) -> None:
    error = refused(connect, site.secured(password="another"))
    assert error.reason == cmqc.MQRC_KEY_REPOSITORY_ERROR
    assert f"check the password of {site.repository}" in error.detail


def test_without_a_password_the_stash_file_is_needed(connect: Connecting, site: Site) -> None:
    error = refused(connect, site.secured(password=""))
    assert error.reason == cmqc.MQRC_KEY_REPOSITORY_ERROR
    assert f"{site.repository.with_suffix('.sth')} does not exist" in error.detail
    stash = site.repository.with_suffix(".sth")
    stash.write_text(f"{PASSWORD}\n")
    try:
        assert works(connect(site.secured(password="")))
    finally:
        stash.unlink()


def test_a_cms_key_repository_needs_both_files(connect: Connecting, site: Site, tmp_path: Path) -> None:
    cms = tmp_path / "cms"
    parts = (site.directory / "client.pem", site.directory / "client.key", site.authority.file)
    cms.with_suffix(".pem").write_bytes(b"".join(part.read_bytes() for part in parts))
    cms.with_suffix(".kdb").write_bytes(b"")
    parameters = site.secured(key_repository=str(cms), password="")
    error = refused(connect, parameters)
    assert error.reason == cmqc.MQRC_KEY_REPOSITORY_ERROR
    assert f"{cms}.sth does not exist" in error.detail
    cms.with_suffix(".sth").write_bytes(b"")
    assert works(connect(parameters))
    assert works(connect(site.secured(key_repository=f"{cms}.kdb", password="")))


def test_a_missing_certificate_label_is_rejected(connect: Connecting, site: Site) -> None:
    assert refused(connect, site.secured(certificate_label="other")).reason == cmqc.MQRC_SSL_INITIALIZATION_ERROR


def test_without_the_default_label_no_certificate_is_presented(connect: Connecting, site: Site) -> None:
    """A channel with SSLCAUTH(REQUIRED) rejects this."""
    error = refused(connect, site.secured(certificate_label=""))
    assert error.reason == cmqc.MQRC_SSL_INITIALIZATION_ERROR
    assert "certificate_label" in error.detail


def test_a_queue_manager_that_the_key_repository_does_not_trust_is_rejected(
    connect: Connecting, site: Site, tmp_path: Path
) -> None:
    repository = site.repository_of("wary", trusts=Authority(tmp_path))
    assert refused(connect, site.secured(key_repository=repository)).reason == cmqc.MQRC_SSL_INITIALIZATION_ERROR


def test_an_untrusted_client_certificate_is_rejected(connect: Connecting, site: Site, tmp_path: Path) -> None:
    other = Authority(tmp_path)
    other.client("stranger")
    repository = other.key_repository("stranger", PASSWORD, label="bridge", trusts=site.authority)
    error = refused(connect, site.secured(key_repository=str(repository)))
    assert error.reason == cmqc.MQRC_SSL_INITIALIZATION_ERROR


def test_an_expired_certificate_of_the_queue_manager_is_rejected(connect: Connecting, tmp_path: Path) -> None:
    site = Site(tmp_path)
    try:
        site.authority.issue("qm1", common_name="QM1", begins=-2, ends=-1)  # the listener checks it again
        assert refused(connect, site.parameters()).reason == cmqc.MQRC_SSL_INITIALIZATION_ERROR
    finally:
        site.queue_manager.close()


def test_an_expiring_certificate_ends_no_connection_and_prevents_new_ones(connect: Connecting, site: Site) -> None:
    lifetime = 3 / 3600
    parameters = site.secured(key_repository=site.repository_of("brief", ends=lifetime))
    expires = time.time() + 3600 * lifetime
    connection = connect(parameters)
    until(lambda: time.time() > expires + 1)
    assert works(connection)
    error = refused(connect, parameters)
    assert error.reason == cmqc.MQRC_SSL_INITIALIZATION_ERROR
    assert "no certificate has expired" in error.detail
    assert works(connection)


def test_large_messages_are_sent_over_tls(connect: Connecting, site: Site) -> None:
    connection = connect(site.parameters())
    connection.command("DEFINE QLOCAL(TLS.LARGE)")
    data = bytes(range(256)) * 12_000
    try:
        connection.put1(MQOD(ObjectName="TLS.LARGE"), Message(MQMD(), data))
        handle = connection.open(MQOD(ObjectName="TLS.LARGE"), cmqc.MQOO_INPUT_SHARED)
        assert connection.get(handle, GetOptions()).data == data
    finally:
        connection.command("DELETE QLOCAL(TLS.LARGE) PURGE")


# Client channel definition tables --------------------------------------------------------------------------------------


def entry(queue_manager: str, *places: str, name: str = CHANNEL, **security: str) -> dict[str, Any]:
    """A channel of a CCDT."""
    connections = [{"host": host, "port": int(port)} for host, port in (place[:-1].split("(") for place in places)]
    return {
        "general": {"description": 'a "channel" of {tests}'},
        "name": name,
        "clientConnection": {"connection": connections, "queueManager": queue_manager},
        "transmissionSecurity": security,
        "type": "clientConnection",
    }


def table(file: Path, *channels: dict[str, Any]) -> str:
    """The URL of a new CCDT."""
    file.write_text(json.dumps({"channel": channels}, indent=2))
    return f"file://{file}"


def by_table(site: Site, url: str, name: str = "MQB1") -> ConnectionParameters:
    tls = msgspec.structs.replace(site.tls, cipher_spec="")
    return ConnectionParameters(queue_manager=name, ccdt_url=url, tls=tls)


def test_a_ccdt_contains_channel_connections_and_tls(connect: Connecting, site: Site, tmp_path: Path) -> None:
    """The second connection of the list, and the entry of the requested queue manager, are used."""
    nobody = "127.0.0.1(9)"
    secured = {"cipherSpecification": "ANY_TLS13", "certificatePeerName": "CN=QM1,O=Example"}
    url = table(tmp_path / "ccdt.json", entry("OTHER", nobody, name="A"), entry("MQB1", nobody, site.place, **secured))
    assert works(connect(by_table(site, url)))


def test_the_peer_name_of_a_ccdt_is_compared(connect: Connecting, site: Site, tmp_path: Path) -> None:
    secured = {"cipherSpecification": "ANY_TLS13", "certificatePeerName": "CN=QM2"}
    error = refused(connect, by_table(site, table(tmp_path / "ccdt.json", entry("MQB1", site.place, **secured))))
    assert error.reason == cmqc.MQRC_SSL_PEER_NAME_MISMATCH


def test_a_ccdt_is_read_from_a_web_server(connect: Connecting, site: Site, tmp_path: Path) -> None:
    table(tmp_path / "ccdt.json", entry("MQB1", site.place, cipherSpecification="ANY_TLS12_OR_HIGHER"))

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(tmp_path))

        def log_message(self, *arguments: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            place = f"http://127.0.0.1:{server.server_port}"
            assert works(connect(by_table(site, f"{place}/ccdt.json")))
            missing = refused(connect, by_table(site, f"{place}/none.json"))
        finally:
            server.shutdown()
            thread.join()
    assert missing.reason == cmqc.MQRC_Q_MGR_NOT_AVAILABLE
    assert "check that the CCDT can be read" in missing.detail


def test_a_queue_manager_group_is_tried_in_the_order_of_channel_names(
    connect: Connecting, site: Site, tmp_path: Path
) -> None:
    """The group accepts any queue manager name. Without the asterisk, the name must match."""
    secured = {"cipherSpecification": "ANY_TLS12_OR_HIGHER"}
    entries = entry("GROUP", site.place, **secured), entry("GROUP", "127.0.0.1(9)", name="A", **secured)
    url = table(tmp_path / "ccdt.json", *entries)
    assert works(connect(by_table(site, url, "*GROUP")))
    assert refused(connect, by_table(site, url, "GROUP")).reason == cmqc.MQRC_Q_MGR_NAME_ERROR


def test_a_ccdt_without_an_entry_for_the_queue_manager_is_rejected(
    connect: Connecting, site: Site, tmp_path: Path
) -> None:
    url = table(tmp_path / "ccdt.json", entry("OTHER", site.place))
    error = refused(connect, by_table(site, url))
    assert error.reason == cmqc.MQRC_Q_MGR_NAME_ERROR
    assert "an entry of the CCDT has queueManager MQB1" in error.detail


def test_a_binary_ccdt_cannot_be_read_by_the_stand_in(connect: Connecting, site: Site, tmp_path: Path) -> None:
    (tmp_path / "AMQCLCHL.TAB").write_bytes(b"AMQR\0\0\0\1")
    error = refused(connect, by_table(site, f"file://{tmp_path / 'AMQCLCHL.TAB'}"))
    assert error.reason == cmqc.MQRC_Q_MGR_NOT_AVAILABLE


def test_the_client_library_never_reconnects_even_if_the_ccdt_allows_it(connect: Connecting, tmp_path: Path) -> None:
    """The bridge reconnects, and restores its handles and units of work itself."""
    with ServedQueueManager(tmp_path / "data", tcp=True, stand_in=True) as served:
        channel = entry("MQB1", f"127.0.0.1({served.port})")
        channel["connectionManagement"] = {"defaultReconnect": "yes"}
        url = table(tmp_path / "ccdt.json", channel)
        connection = connect(ConnectionParameters(queue_manager="MQB1", ccdt_url=url))
        assert works(connection)
    with pytest.raises(MQError) as raised:
        works(connection)
    assert raised.value.reason == cmqc.MQRC_CONNECTION_BROKEN


# Tokens ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path)


@pytest.fixture
def token_site(issuer: Issuer, tmp_path: Path) -> Iterator[ServedQueueManager]:
    methods = [{"method": "jwt", "key_file": issuer.public, "leeway": 0}]
    listener = ListenerConfig.model_validate({"authentication": methods})
    with ServedQueueManager(tmp_path / "data", listener=listener, stand_in=True) as served:
        yield served


def with_token(served: ServedQueueManager, issuer: Issuer) -> ConnectionParameters:
    place = f"127.0.0.1({served.port})"
    return ConnectionParameters(queue_manager="MQB1", channel=CHANNEL, connections=place, token_file=str(issuer.file))


def only(package: str, expected: str) -> None:
    if package != expected:
        pytest.skip("pymqi cannot send a token")


def test_a_token_is_read_again_for_each_connection(
    package: str, connect: Connecting, token_site: ServedQueueManager, issuer: Issuer
) -> None:
    only(package, "ibmmq")
    issuer.issue("first", 60)
    assert works(connect(with_token(token_site, issuer)))
    issuer.issue("second", 60)
    assert works(connect(with_token(token_site, issuer)))
    assert {connection._user for connection in token_site.tcp_connections()} == {"first", "second"}


def test_a_token_that_has_expired_or_has_an_invalid_signature_is_rejected(
    package: str, connect: Connecting, token_site: ServedQueueManager, issuer: Issuer
) -> None:
    only(package, "ibmmq")
    for lifetime, key in ((-1.0, None), (60.0, ec.generate_private_key(ec.SECP256R1()))):
        issuer.issue("app", lifetime, key)
        error = refused(connect, with_token(token_site, issuer))
        assert error.reason == cmqc.MQRC_NOT_AUTHORIZED
        assert f"rejected the token of {issuer.file}: check that it has not expired" in error.detail


def test_the_error_names_a_token_file_that_cannot_be_read(
    package: str, connect: Connecting, token_site: ServedQueueManager, issuer: Issuer
) -> None:
    only(package, "ibmmq")
    error = refused(connect, with_token(token_site, issuer))
    assert error.reason == cmqc.MQRC_NOT_AUTHORIZED
    assert f"token_file {issuer.file} cannot be read: No such file" in error.detail


def test_pymqi_reports_that_it_cannot_send_a_token(
    package: str, connect: Connecting, token_site: ServedQueueManager, issuer: Issuer
) -> None:
    only(package, "pymqi")
    issuer.issue("app", 60)
    error = refused(connect, with_token(token_site, issuer))
    assert error.reason == cmqc.MQRC_FUNCTION_NOT_SUPPORTED
    assert "use ibmmq" in error.detail


def test_a_token_requires_a_client_without_automatic_reconnection(
    package: str, connect: Connecting, token_site: ServedQueueManager, issuer: Issuer
) -> None:
    """IBM MQ, "Using authentication tokens in an application"."""
    only(package, "ibmmq")
    library = client_packages.package(package)
    issuer.issue("app", 60)
    cd = library.CD(ChannelName=CHANNEL.encode(), ConnectionName=f"127.0.0.1({token_site.port})".encode())
    token = issuer.file.read_text().strip()

    def reason(options: int, **channel: Any) -> int:
        cno = library.CNO(Options=options)
        with pytest.raises(library.MQMIError) as raised:
            library.QueueManager(None).connect_with_options("MQB1", cno=cno, token=token, **channel)
        code: int = raised.value.reason
        return code

    assert reason(cmqc.MQCNO_RECONNECT, cd=cd) == cmqc.MQRC_RECONNECT_INCOMPATIBLE
    assert reason(cmqc.MQCNO_LOCAL_BINDING) == cmqc.MQRC_FUNCTION_NOT_SUPPORTED
