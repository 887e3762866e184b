"""Authentication with a directory: a real slapd, over plain LDAP, StartTLS and LDAPS, with wrong, hostile and missing
answers.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.config.authentication import LdapAuthenticationConfig
from bridge.security.authenticator import AuthenticationFailed, AuthenticatorUnavailable, Presented
from bridge.security.authenticators import LdapAuthenticator
from tests.helpers.certificate_authority import Authority
from tests.helpers.installed import built
from tests.helpers.line_process import suspend
from tests.helpers.patience import PATIENCE, until

#: The files of Debian's package slapd are below it: installed, or unpacked by `make test` (tests/unpacked-packages.sh).
ROOT = Path("/") if Path("/usr/sbin/slapd").exists() else Path(__file__).parents[3] / "build" / "slapd"
#: Path of the unpacked libraries.
ENVIRONMENT = dict(os.environ)
if Path("/") != ROOT:
    places = [str(path) for part in ("lib", "usr/lib") for path in ROOT.glob(f"{part}/*-linux-gnu*")]
    ENVIRONMENT["LD_LIBRARY_PATH"] = ":".join(places)
SECRET = "correct horse, 7"
CONF = """
include "{1}/etc/ldap/schema/core.schema"
include "{1}/etc/ldap/schema/cosine.schema"
include "{1}/etc/ldap/schema/inetorgperson.schema"
modulepath "{1}/usr/lib/ldap"
moduleload back_mdb
TLSCertificateFile {0}/server.pem
TLSCertificateKeyFile {0}/server.key
pidfile {0}/slapd.pid
database mdb
suffix "dc=example,dc=com"
rootdn "cn=admin,dc=example,dc=com"
directory {0}/db
"""
PEOPLE = """
dn: dc=example,dc=com
objectClass: dcObject
objectClass: organization
o: Example
dc: example

dn: uid=carol,dc=example,dc=com
objectClass: inetOrgPerson
cn: Carol
sn: C
uid: carol
userPassword: {0}

dn: uid=o\\2Cbrien \\23 \\3D\\22\\5C,dc=example,dc=com
objectClass: inetOrgPerson
cn: Odd
sn: O
uid: o,brien # ="\\
userPassword: {0}
"""


class Directory:
    """slapd on free ports of loopback."""

    def __init__(self, directory: Path) -> None:
        Authority(directory).issue("server")
        self.directory = directory
        (directory / "db").mkdir()
        self.conf = directory / "slapd.conf"
        self.conf.write_text(CONF.format(directory, str(ROOT).rstrip("/")))
        (directory / "people.ldif").write_text(PEOPLE.format(SECRET))
        # slapd is also slapadd, by option or by name.
        add = [ROOT / "usr/sbin/slapd", "-Ta", "-f", self.conf, "-l", directory / "people.ldif"]
        subprocess.run(add, check=True, capture_output=True, env=ENVIRONMENT)
        with socket.socket() as first, socket.socket() as other:
            first.bind(("127.0.0.1", 0)), other.bind(("127.0.0.1", 0))
            self.port, self.tls_port = first.getsockname()[1], other.getsockname()[1]
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        urls = f"ldap://127.0.0.1:{self.port}/ ldaps://127.0.0.1:{self.tls_port}/"
        command = [ROOT / "usr/sbin/slapd", "-d", "0", "-f", self.conf, "-h", urls]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
        until(self._answers)
        return process

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.tls_port)) == 0

    def authenticator(self, way: str = "ldap", **options: object) -> LdapAuthenticator:
        """Make a directory authenticator with ldap, starttls or ldaps."""
        port = self.tls_port if way == "ldaps" else self.port
        values = {
            "method": "ldap",
            "url": f"{'ldaps' if way == 'ldaps' else 'ldap'}://localhost:{port}",
            "bind_dn": "uid={user},dc=example,dc=com",
            "start_tls": way == "starttls",
            "ca_file": self.directory / "ca.pem",
        }
        return LdapAuthenticator(LdapAuthenticationConfig.model_validate(values | options))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Directory]:
    built("slapd", ROOT / "usr/sbin/slapd")
    slapd = Directory(tmp_path_factory.mktemp("slapd"))
    yield slapd
    slapd.process.kill()
    slapd.process.wait(PATIENCE)


def presented(user: str | None, password: bytes | None) -> Presented:
    return Presented("c", user, password)


@pytest.mark.parametrize("way", ["ldap", "starttls", "ldaps"])
async def test_correct_and_wrong_passwords(directory: Directory, way: str) -> None:
    authenticator = directory.authenticator(way)
    assert (await authenticator.authenticate(presented("carol", SECRET.encode()))).user_name == "carol"
    for user, password in (
        ("carol", b"wrong"),
        ("nobody", SECRET.encode()),
        ("carol", b""),
        ("carol", None),
        ("", SECRET.encode()),
        ("carol", b"\xff"),
        ("carol,dc=example,dc=com", SECRET.encode()),
        ("x,uid=carol", SECRET.encode()),
        ("carol\0", SECRET.encode()),
        ("*", SECRET.encode()),
        ("u" * 60_000, SECRET.encode()),
    ):
        with pytest.raises(AuthenticationFailed) as error:
            await authenticator.authenticate(presented(user, password))
        assert SECRET not in str(error.value)


async def test_a_user_name_that_must_be_escaped(directory: Directory) -> None:
    """Special characters of distinguished names can be part of the user name (RFC 4514 section 2.4)."""
    login = await directory.authenticator().authenticate(presented('o,brien # ="\\', SECRET.encode()))
    assert login.user_name == 'o,brien # ="\\'


@pytest.mark.parametrize("user", ["CAROL", "Carol", " carol", "carol ", "\uff43\uff41\uff52\uff4f\uff4c", "\u24d2arol"])
async def test_the_user_name_has_the_notation_of_the_directory(directory: Directory, user: str) -> None:
    """Rules for carol apply to all notations of her name."""
    login = await directory.authenticator().authenticate(presented(user, SECRET.encode()))
    assert login.user_name == "carol"


@pytest.mark.parametrize(
    ("user", "is_accepted"),
    [
        ("carol", True),
        ("c\u00e4rol", True),
        ("CAROL", False),
        (" carol", False),
        ("a  b", False),
        ("\uff43arol", False),
    ],
)
@pytest.mark.parametrize("name", ["", "u:EXAMPLE\\carol", "dn:cn=carol,ou=elsewhere,dc=example,dc=com", "dn:", "dn:cn"])
async def test_a_directory_that_does_not_return_the_bound_name(
    directory: Directory, monkeypatch: pytest.MonkeyPatch, name: str, user: str, is_accepted: bool
) -> None:
    """Only a name with a single notation is accepted."""
    authenticator = directory.authenticator()
    monkeypatch.setattr(authenticator, "_bind", lambda user, password: name)
    if is_accepted:
        assert (await authenticator.authenticate(presented(user, b"x"))).user_name == user
    else:
        with pytest.raises(AuthenticationFailed, match="does not report the bound name"):
            await authenticator.authenticate(presented(user, b"x"))


@pytest.mark.parametrize("way", ["starttls", "ldaps"])
async def test_a_directory_with_another_identity(directory: Directory, way: str, tmp_path: Path) -> None:
    """Its certificate has an untrusted issuer, or another name: no password is sent."""
    other = Authority(tmp_path, "other")
    with pytest.raises(AuthenticatorUnavailable):
        await directory.authenticator(way, ca_file=other.file).authenticate(presented("carol", SECRET.encode()))
    port = directory.tls_port if way == "ldaps" else directory.port
    url = f"{'ldaps' if way == 'ldaps' else 'ldap'}://127.0.0.1:{port}"
    with pytest.raises(AuthenticatorUnavailable):
        await directory.authenticator(way, url=url).authenticate(presented("carol", SECRET.encode()))


async def test_a_directory_that_hangs_or_is_unreachable(directory: Directory) -> None:
    """The client is rejected temporarily, not as wrong, and can connect later."""
    authenticator = directory.authenticator(timeout=0.5)
    suspend(directory.process.pid)
    with pytest.raises(AuthenticatorUnavailable):
        await authenticator.authenticate(presented("carol", SECRET.encode()))
    directory.process.send_signal(signal.SIGCONT)
    directory.process.kill()
    directory.process.wait(PATIENCE)
    with pytest.raises(AuthenticatorUnavailable):
        await authenticator.authenticate(presented("carol", SECRET.encode()))
    directory.process = directory.start()
    patient = directory.authenticator()
    assert (await patient.authenticate(presented("carol", SECRET.encode()))).user_name == "carol"
