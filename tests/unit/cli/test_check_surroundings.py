"""Findings of `mqbridge check` about files: certificates, revocation lists, keys, tokens, and clients without a name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from bridge.config import models  # noqa: F401 - defines all sections
from bridge.config.values import Section, is_secret
from bridge.security import secret_file
from tests.helpers.certificate_authority import Authority

TLS = (
    "tls: {{certificate_file: {0}/server.pem, key_file: {0}/server.key, ca_file: {0}/ca.pem, crl_file: {0}/crl.pem,"
    " client_certificates: optional}}"
)
CHANNEL = f"channels: [{{{{name: A, {TLS}}}}}]\n"
LISTENER = f"queue_manager: {{{{listener: {{{{{TLS}}}}}}}}}\n"
ADMIN = f"admin: {{{{port: 0, {TLS}}}}}\n"
TOKENS = "admin: {{port: 0, token_file: {0}/tokens}}\n"
IBM = (
    "queue_manager: {{type: ibm, name: QM1, channel: C, connections: 'a(1)',"
    " tls: {{key_repository: {0}/key, cipher_spec: ANY}}}}\n"
)
TOKEN = "queue_manager: {{type: ibm, name: QM1, channel: C, connections: 'a(1)', token_file: {0}/token}}\n"
JWKS = "channels: [{{name: A, authentication: [{{method: jwt, jwks_file: {0}/keys.json}}]}}]\n"

Spoil = Callable[[Authority], object]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """A directory with all files of the configurations in these tests."""
    authority = Authority(tmp_path)
    authority.issue("server")
    authority.revoke()
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    (tmp_path / "keys.json").write_text(f'{{"keys": [{ECAlgorithm.to_jwk(key)}]}}')
    (tmp_path / "tokens").touch(0o600)
    for name in ("key.kdb", "key.sth", "token"):
        (tmp_path / name).touch(0o600)
    return authority


def checked(invoke: Any, authority: Authority, config: str) -> Any:
    path = authority.directory / "bridge.yaml"
    path.write_text(config.format(authority.directory))
    return invoke("check", path)


@pytest.mark.parametrize("config", [CHANNEL, LISTENER, ADMIN, TOKENS, JWKS, IBM, TOKEN])
def test_a_configuration_whose_files_exist_has_no_findings(invoke: Any, authority: Authority, config: str) -> None:
    result = checked(invoke, authority, config)
    assert (result.exit_code, result.stderr) == (0, "")


def too_short(authority: Authority) -> None:
    key = rsa.generate_private_key(65537, 1024).public_key()
    (authority.directory / "keys.json").write_text(f'{{"keys": [{RSAAlgorithm.to_jwk(key)}]}}')


@pytest.mark.parametrize(
    ("config", "spoil", "message"),
    [
        (CHANNEL, lambda pki: pki.revoke(next_update=-1), "channel A: tls.crl_file {0}/crl.pem: a list in it expired"),
        (LISTENER, lambda pki: pki.revoke(next_update=-1), "queue_manager.listener: tls.crl_file {0}/crl.pem: a list in it"),
        (ADMIN, lambda pki: pki.revoke(next_update=-1), "admin: tls.crl_file {0}/crl.pem: a list in it expired"),
        (LISTENER, lambda pki: pki.issue("server", ends=-0.5), "queue_manager.listener: tls.certificate_file {0}/"),
        (IBM, lambda pki: (pki.directory / "key.kdb").unlink(), "queue_manager.tls.key_repository: {0}/key.kdb cannot be"),
        (IBM, lambda pki: (pki.directory / "key.sth").unlink(), "key_repository_password_file: {0}/key.sth cannot be read"),
        (TOKEN, lambda pki: (pki.directory / "token").unlink(), "queue_manager.token_file: {0}/token cannot be read"),
        (JWKS, lambda pki: (pki.directory / "keys.json").unlink(), "{0}/keys.json: No such file"),
        (JWKS, lambda pki: (pki.directory / "keys.json").write_text("{}"), "{0}/keys.json: "),
        (JWKS, too_short, "an RSA key of 1024 bits is too short"),
    ],
)  # fmt: skip
def test_an_invalid_file_is_reported(
    invoke: Any, authority: Authority, config: str, spoil: Spoil, message: str
) -> None:
    spoil(authority)
    result = checked(invoke, authority, config)
    assert result.exit_code == 1
    assert message.format(authority.directory) in result.stderr


@pytest.mark.parametrize(
    ("admin", "message"),
    [
        ("", "admin.applications: no application can connect without admin.port"),
        ("port: 0, token_file: {0}/lines, ", "admin.applications.app: {0}/lines has no line `app:application:TOKEN`"),
        (
            "port: 0, token_file: {0}/missing, ",
            "admin.applications.app: {0}/missing has no line `app:application:TOKEN`",
        ),
    ],
)
def test_applications_that_cannot_connect_are_reported(
    invoke: Any, authority: Authority, admin: str, message: str
) -> None:
    lines = authority.directory / "lines"
    lines.write_text("app:change:sixteen-characters\nother:application:sixteen-characters\n")
    lines.chmod(0o600)
    config = f"admin: {{{{{admin}applications: {{{{app: {{{{mq_user: app}}}}}}}}}}}}\n"
    result = checked(invoke, authority, config)
    assert result.exit_code == 1
    assert message.format(authority.directory) in result.stderr


@pytest.mark.parametrize(
    ("channel", "noted"),
    [
        ("address: 0.0.0.0, authentication: [{{method: anonymous}}]", True),
        ("authentication: [{{method: certificate}}, {{method: anonymous}}]", True),
        ("address: 0.0.0.0, allow_anonymous_remote: true", True),
        ("address: 0.0.0.0, authentication: [{{method: anonymous}}], mcauser: plant", False),
        ("address: 0.0.0.0, authentication: [{{method: anonymous}}], use_client_id: true", False),
        ("address: 0.0.0.0, authentication: [{{method: jwt, jwks_file: {0}/keys.json}}]", False),
        ("port: 1884", False),
    ],
)
def test_clients_without_an_identity_are_noted(invoke: Any, authority: Authority, channel: str, noted: bool) -> None:
    config = f"channels: [{{{{name: A, {channel}, {TLS}}}}}]\n"
    result = checked(invoke, authority, config)
    assert (result.exit_code, result.stderr) == (0, "")
    notes = [line for line in result.stdout.splitlines() if line.startswith("note: ")]
    assert ("note: channel A: clients without a user act as user nobody" in "\n".join(notes)) is noted


@pytest.mark.parametrize(
    ("more", "noted"), [("", ["user name"]), (", mcauser: plant", []), (", use_client_id: true", ["client identifier"])]
)
def test_check_notes_that_clients_with_long_names_are_rejected(
    invoke: Any, authority: Authority, more: str, noted: list[str]
) -> None:
    config = f"channels: [{{{{name: A, authentication: [{{{{method: certificate}}}}]{more}, {TLS}}}}}]\n"
    result = checked(invoke, authority, config)
    assert result.exit_code == 0
    assert re.findall("clients with a (.*) longer than 12 bytes, the length of an MQ user, are", result.stdout) == noted


@pytest.mark.parametrize(("more", "noted"), [("", True), (", mcauser: plant", False)])
def test_check_notes_the_users_of_a_password_file_that_are_too_long_for_mq(
    invoke: Any, authority: Authority, more: str, noted: bool
) -> None:
    passwords = authority.directory / "users"
    passwords.write_text("".join(f"{user}:$argon2id$x\n" for user in ("twelve-bytes", "temperature-1")))
    passwords.chmod(0o600)
    config = f"channels: [{{{{name: A, authentication: [{{{{method: password, file: {passwords}}}}}]{more}}}}}]\n"
    result = checked(invoke, authority, config)
    assert result.exit_code == 0, result.stderr
    assert ("are rejected: temperature-1;" in result.stdout) is noted


def test_check_notes_that_a_file_is_empty(invoke: Any, authority: Authority) -> None:
    result = checked(invoke, authority, "# nothing yet\n")
    assert result.exit_code == 0
    assert "bridge.yaml is empty: every setting has its default" in result.stdout


@pytest.mark.parametrize(("script", "noted"), [("DEFINE QLOCAL(OTHER)", True), ("def ql(orders) maxdepth(5)", False)])
def test_check_notes_a_queue_that_no_script_defines(
    invoke: Any, authority: Authority, script: str, noted: bool
) -> None:
    (authority.directory / "objects.mqsc").write_text(script)
    config = (
        "queue_manager: {{scripts: [objects.mqsc]}}\nmappings: {{m: {{from: {{mqtt: a}}, to: {{queue: ORDERS}}}}}}\n"
    )
    result = checked(invoke, authority, config)
    assert result.exit_code == 0
    assert ("no script in queue_manager.scripts defines queue ORDERS" in result.stdout) is noted


ALL_SECRETS = """
admin: {{port: 0, token_file: s, tls: {{certificate_file: s}}, authentication: [{{method: password, file: s}}]}}
traces: {{endpoint: "http://127.0.0.1:4318", headers_file: s}}
channels:
- {{name: A, authentication: [{{method: scram, file: s}}], tls: {{certificate_file: p, key_file: s, key_password_file: s}}}}
links: {{cloud: {{host: c, user: u, password_file: s, tls: {{ca_file: p, certificate_file: s}}}}}}
password_cache: {{file: s}}
spark: {{listener: "h(1414)", user: u, password_file: s, tls: {{certificate_file: p, key_file: s}}}}
pipelines:
  p: {{checkpoint: c, from: {{mq: {{queue: Q}}}}, to: {{format: jdbc, options: {{dbtable: t}}, secrets: {{password: s}}}}}}
queue_manager:
"""
EMBEDDED = "  listener: {{password_file: s, tls: {{certificate_file: p, key_file: s}}}}\n"
WITH_IBM = (
    "  {{type: ibm, name: Q, channel: C, connections: 'a(1)', user: u, password_file: s,"
    " tls: {{key_repository: s.p12, key_repository_password_file: s, cipher_spec: ANY}}}}\n"
)
BOTH = {
    "admin.token_file",
    "admin.tls.certificate_file",
    "admin.authentication[0].file",
    "traces.headers_file",
    "channels[0].authentication[0].file",
    "channels[0].tls.key_file",
    "channels[0].tls.key_password_file",
    "links.cloud.password_file",
    "links.cloud.tls.certificate_file",
    "password_cache.file",
    "spark.password_file",
    "spark.tls.key_file",
    "pipelines.p.to.secrets.password",
}


@pytest.mark.parametrize(
    ("queue_manager", "options"),
    [
        (EMBEDDED, {"listener.password_file", "listener.tls.key_file"}),
        (WITH_IBM, {"password_file", "tls.key_repository", "tls.key_repository_password_file"}),
    ],
)
def test_files_with_secrets_that_every_user_can_read_are_reported(
    invoke: Any, authority: Authority, queue_manager: str, options: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("s", "s.p12", "p"):
        (authority.directory / name).touch(0o644)
    result = checked(invoke, authority, ALL_SECRETS + queue_manager)
    reported = re.findall(r"(\S+): \S+ contains secrets and can be read by every user of this machine", result.stderr)
    assert set(reported) == BOTH | {f"queue_manager.{name}" for name in options}, result.stderr
    with monkeypatch.context() as container:
        container.setattr(secret_file, "CONTAINER_SECRETS", authority.directory)
        assert "can be read by every user" not in checked(invoke, authority, ALL_SECRETS + queue_manager).stderr
    for name in ("s", "s.p12"):
        (authority.directory / name).chmod(0o640)
    assert "can be read by every user" not in checked(invoke, authority, ALL_SECRETS + queue_manager).stderr


def test_options_that_name_a_file_with_secrets_have_that_type() -> None:
    """`jwt` verifies with public keys."""
    sections = subclasses(Section)
    secret = re.compile("password|token|key|secret|headers|credential")
    assert {
        f"{section.__name__}.{name}"
        for section in sections
        for name, option in section.model_fields.items()
        if secret.search(name) and "Path" in str(option.annotation) and not is_secret(option)
    } == {"JwtAuthenticationConfig.key_file"}


def subclasses(section: type[Section]) -> Iterator[type[Section]]:
    for subclass in section.__subclasses__():
        yield subclass
        yield from subclasses(subclass)


def test_a_file_with_secrets_whose_mode_cannot_be_read_is_not_reported(invoke: Any, authority: Authority) -> None:
    """Path.exists raises some errors of stat: EACCES for an ordinary user, and ENAMETOOLONG for root, too."""
    config = f"links: {{{{cloud: {{{{host: c, user: u, password_file: {'x' * 300}}}}}}}}}\n"
    result = checked(invoke, authority, config)
    assert (result.exit_code, result.stderr) == (0, "")
