"""The authentication of a channel: methods, the resulting user, plug-ins as documented, and files."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bridge.cli.program import program
from bridge.config.channel import ChannelConfig
from bridge.config.operations import AdminConfig
from bridge.mqtt.topics import covers
from bridge.security.authenticator import (
    Authenticated,
    AuthenticationFailed,
    Authenticator,
    AuthenticatorUnavailable,
    Certificate,
    Presented,
    UnknownPlugin,
)
from bridge.security.authenticators import Authenticators, CertificateAuthenticator, ChannelAuthentication
from bridge.security.password_file import PasswordEntry, hash_of, write_password_file
from bridge.telemetry.identity import TopicAccess
from tests.helpers.certificate_authority import Authority

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "devices.md"


class Badges:
    """Check passwords: the password is the user, "no" is wrong, "away" is unavailable."""

    def __init__(self, expires: float | None = None) -> None:
        self.expires = expires

    def applies_to(self, presented: Presented) -> bool:
        return presented.password is not None

    async def authenticate(self, presented: Presented) -> Authenticated:
        assert presented.password is not None
        if presented.password == b"no":
            raise AuthenticationFailed("no")
        if presented.password == b"away":
            raise AuthenticatorUnavailable("away")
        return Authenticated(presented.password.decode(), expires=self.expires)


CERTIFICATE = Certificate("CN=pump-7,O=Example", "pump-7", ("pump-7.example.com",))
BY_NAME, BY_BADGE = CertificateAuthenticator("{CN}"), Badges(9.0)


@pytest.mark.parametrize(
    ("methods", "anonymous", "password", "certificate", "user"),
    [
        ([BY_BADGE], False, b"carol", None, "carol"),
        ([BY_BADGE], False, b"no", None, AuthenticationFailed),
        ([BY_BADGE], True, b"no", None, AuthenticationFailed),
        ([BY_BADGE], False, b"away", None, AuthenticatorUnavailable),
        ([BY_BADGE], False, None, None, AuthenticationFailed),
        ([BY_BADGE], True, None, None, ""),
        ([BY_BADGE], True, None, CERTIFICATE, ""),
        ([BY_NAME, BY_BADGE], False, b"carol", CERTIFICATE, "pump-7"),
        ([BY_BADGE, BY_NAME], False, b"carol", CERTIFICATE, "carol"),
        ([BY_NAME, BY_BADGE], True, b"no", CERTIFICATE, AuthenticationFailed),
        ([BY_NAME, BY_BADGE], False, None, CERTIFICATE, "pump-7"),
        ([], True, b"anything", None, ""),
    ],
)
async def test_all_presented_credentials_must_be_correct(
    methods: list[Authenticator],
    anonymous: bool,
    password: bytes | None,
    certificate: Certificate | None,
    user: str | type[Exception],
) -> None:
    authentication = ChannelAuthentication(True, methods, {}, anonymous)
    presented = Presented("c", None, password, certificate)
    if isinstance(user, str):
        login = await authentication.authenticate(presented)
        assert login.user_name == user
        assert login.expires == (9.0 if password == b"carol" else None)
    else:
        with pytest.raises(user):
            await authentication.authenticate(presented)


@pytest.mark.parametrize(
    ("name", "is_accepted"),
    [
        ("carol", True),
        ("CN=pump 7,O=Exämple", True),
        ("x" * 1024, True),
        ("x" * 1025, False),
        ("mqm\0", False),
        ("mqm\0x", False),
        ("mqm ", False),
        (" mqm", False),
        ("mqm\u3000", False),
        ("mqm\n", False),
        ("a\x1bb", False),
        ("a\x7fb", False),
        ("a\x85b", False),
        ("a\u200bb", False),
        ("a\u202eb", False),
        ("a\u2028b", False),
        ("a\ufeff", False),
        ("a\ud800", False),
    ],
)
@pytest.mark.parametrize("by", ["plug-in", "certificate", "shown", "CONNECT"])
async def test_user_names(name: str, is_accepted: bool, by: str) -> None:
    """No method can result in a user name that MQ, or a reader of the log, would confuse with another one."""

    class Names:
        def applies_to(self, presented: Presented) -> bool:
            return True

        async def authenticate(self, presented: Presented) -> Authenticated:
            return Authenticated(name if by == "plug-in" else None)

    presented = Presented("c", name if by == "CONNECT" else None, None, Certificate(f"CN={name}", name))
    methods: list[Authenticator] = [CertificateAuthenticator("{CN}") if by == "certificate" else Names()]
    login = Authenticated(name) if by == "shown" else None
    authentication = ChannelAuthentication(True, methods)
    if is_accepted:
        outcome = await authentication.authenticate(presented, login)
        assert outcome.user_name == (None if by == "CONNECT" else name)
    else:
        with pytest.raises(AuthenticationFailed, match="user name"):
            await authentication.authenticate(presented, login)


@pytest.mark.parametrize(
    ("template", "certificate", "user"),
    [
        ("{CN}", CERTIFICATE, "pump-7"),
        ("{DN}", CERTIFICATE, "CN=pump-7,O=Example"),
        ("x-{SAN}", CERTIFICATE, "x-pump-7.example.com"),
        ("{CN}", Certificate("O=Example"), None),
        ("{SAN}", Certificate("CN=a", "a"), None),
        ("{CN}", Certificate("CN={DN}", "{DN}"), "{DN}"),
    ],
)
async def test_users_by_certificate(template: str, certificate: Certificate, user: str | None) -> None:
    presented = Presented("c", certificate=certificate)
    if user is None:
        with pytest.raises(AuthenticationFailed, match="has no"):
            await CertificateAuthenticator(template).authenticate(presented)
    else:
        assert (await CertificateAuthenticator(template).authenticate(presented)).user_name == user


async def test_the_plug_in_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed as documented, its entry point is found, and it accepts users with a badge."""
    text = PAGE.read_text(encoding="utf-8")
    example = re.search(r"```python\n(from bridge\.security\.authenticator .*?)```", text, re.S)
    assert example and '[project.entry-points."mqbridge.authenticators"]' in text
    (tmp_path / "badges.py").write_text(example[1])
    info = tmp_path / "badges-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: badges\nVersion: 1.0\n")
    entries = "badge = badges:BadgeAuthenticator\nbroken = badges:Missing"
    (info / "entry_points.txt").write_text(f"[mqbridge.authenticators]\n{entries}\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def channel(name: str) -> ChannelConfig:
        plugin = {"method": "plugin", "name": name, "options": {"badges": {"4711": "carol"}}}
        return ChannelConfig.model_validate({"authentication": [plugin]})

    authentication = Authenticators(Badges).of_channel(channel("badge"))
    assert (await authentication.authenticate(Presented("c", None, b"4711"))).user_name == "carol"
    with pytest.raises(AuthenticationFailed, match="unknown badge"):
        await authentication.authenticate(Presented("c", None, b"0815"))
    for name, message in (("absent", "is not installed"), ("broken", "cannot be loaded: AttributeError")):
        with pytest.raises(UnknownPlugin, match=message):
            Authenticators(Badges).of_channel(channel(name))


async def test_passwords_of_channels_are_cached_on_disk_and_those_of_the_console_are_not(tmp_path: Path) -> None:
    cache, method = tmp_path / "cache", {"method": "password", "file": str(tmp_path / "clients")}
    write_password_file(tmp_path / "clients", {"carol": PasswordEntry(hash_of("correct horse 7"))})
    authenticators = Authenticators(Badges, cache)
    presented = Presented("c", "carol", b"correct horse 7")
    await authenticators.of_admin(AdminConfig.model_validate({"authentication": [method]})).authenticate(presented)
    assert sorted(os.listdir(tmp_path)) == ["clients"]
    await authenticators.of_channel(ChannelConfig.model_validate({"authentication": [method]})).authenticate(presented)
    authenticators.close()
    assert sorted(os.listdir(tmp_path)) == ["cache", "clients"]


def test_filters_that_cover_others(subtests: pytest.Subtests) -> None:
    for pattern, topic_filter, covered in [
        ("#", "a/b", True),
        ("#", "$SYS/a", False),
        ("a/#", "a", True),
        ("a/#", "a/+/#", True),
        ("a/#", "b/#", False),
        ("a/+", "a/+", True),
        ("a/+", "a/b", True),
        ("a/+", "a/#", False),
        ("a/+", "a", False),
        ("a/b", "a/+", False),
        ("+/b", "a/b", True),
        ("+/b", "+/b", True),
        ("+", "$SYS", False),
        ("a", "a/#", False),
        ("a/b/#", "a/#", False),
        ("$SYS/#", "$SYS/a", True),
    ]:
        with subtests.test(pattern=pattern, topic_filter=topic_filter, covered=covered):
            assert covers(pattern, topic_filter) is covered


def test_topics_to_publish_to(subtests: pytest.Subtests) -> None:
    for patterns, client_id, user, topic, allowed in [
        (None, "c", "u", "any/thing", True),
        ([], "c", "u", "a", False),
        (["d/%c/#"], "c", "u", "d/c/x", True),
        (["d/%c/#"], "c", "u", "d/u/x", False),
        (["%u/%c"], "c", "u", "u/c", True),
        (["x-%c-%u"], "c", "u", "x-c-u", True),
        (["d/%c"], "%u", "u", "d/u", False),
        (["d/%c"], "%u", "u", "d/%u", True),
        (["d/%c"], "+", "u", "d/x", False),
        (["d/%u"], "c", "", "d/", False),
        (["d/+"], "c", "u", "d/x", True),
        (["d/+"], "c", "u", "$MQ/reply/x", True),
    ]:
        with subtests.test(patterns=patterns, client_id=client_id, user=user, topic=topic, allowed=allowed):
            access = TopicAccess(patterns, None, client_id, user)
            assert [access.may_publish(topic), access.may_publish(topic)] == [allowed, allowed]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda authority: None, None),
        (lambda authority: authority.issue("server", begins=-3, ends=-1), "expired on"),
        (lambda authority: authority.issue("server", begins=1), "is not valid before"),
        (lambda authority: authority.issue("server", alternative="other.example.com"), "does not contain the"),
        (lambda authority: authority.issue("server", alternative="*.example.com"), None),
        (lambda authority: (authority.directory / "server.key").write_bytes(other_key(authority)), "key belongs to another"),
        (lambda authority: (authority.directory / "server.pem").unlink(), "cannot be used: No such file"),
        (lambda authority: (authority.directory / "server.pem").write_text("x"), "it contains no PEM data"),
    ],
)  # fmt: skip
def test_findings_of_check_about_certificates(tmp_path: Path, change: object, message: str | None) -> None:
    authority = Authority(tmp_path)
    authority.issue("server", alternative="mq.example.com", ends=24 * 60)
    change(authority)  # type: ignore[operator]
    config = tmp_path / "bridge.yaml"
    config.write_text(
        "channels: [{name: A, address: mq.example.com, authentication: [{method: anonymous}],"
        " tls: {certificate_file: server.pem, key_file: server.key}}]\n"
    )
    result = CliRunner().invoke(program, ["check", str(config)])
    assert result.exit_code == (1 if message else 0), result.output
    assert (message or "OK") in result.output


def other_key(authority: Authority) -> bytes:
    authority.issue("other")
    return (authority.directory / "other.key").read_bytes()


def test_check_reports_a_certificate_that_expires_soon(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.issue("server", ends=48)
    config = tmp_path / "bridge.yaml"
    config.write_text("channels: [{name: A, tls: {certificate_file: server.pem, key_file: server.key}}]\n")
    result = CliRunner().invoke(program, ["check", str(config)])
    assert (
        result.exit_code == 0
        and "note: channel A: tls.certificate_file" in result.output
        and "in 2 days" in result.output
    )


@pytest.mark.parametrize("where", ["file", "credential", "variable", None])
def test_sources_of_the_password_of_a_key(tmp_path: Path, where: str | None) -> None:
    Authority(tmp_path).issue("server", password="pa55")
    (tmp_path / "words").write_text("pa55\n")
    (tmp_path / "words").chmod(0o600)
    options = {"file": "key_password_file: words", "credential": "key_password_credential: words"}
    options["variable"] = "key_password_variable: KEY_PASSWORD"
    more = f", {options[where]}" if where else ""
    config = tmp_path / "bridge.yaml"
    config.write_text(f"channels: [{{name: A, tls: {{certificate_file: server.pem, key_file: server.key{more}}}}}]\n")
    environment = {**os.environ, "CREDENTIALS_DIRECTORY": str(tmp_path), "KEY_PASSWORD": "pa55"}
    result = CliRunner().invoke(program, ["check", str(config)], env=environment)
    assert result.exit_code == (0 if where else 1), result.output
    assert where or "has a password; set tls.key_password_file" in result.output
    assert "pa55" not in result.output
