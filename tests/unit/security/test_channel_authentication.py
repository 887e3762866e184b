"""Channel authentication records: matches, precedence, and results for clients."""

from __future__ import annotations

import contextlib
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bridge.config.authentication import ChannelAuthenticationConfig, address_pattern, matches_name
from bridge.security.channel_authentication import (
    ChannelAuthenticationRecords,
    Connecting,
    matches_channel,
)

PUMP = "CN=pump-7,OU=plant,OU=west,O=Example\\, Inc,C=DE"


def record(type: str, **values: object) -> ChannelAuthenticationConfig:
    return ChannelAuthenticationConfig.model_validate({"type": type, **values})


@pytest.mark.parametrize(
    ("profile", "channel", "matches"),
    [
        ("*", "ANY", True),
        ("PLAIN.*", "PLAIN.MQTT", True),
        ("PLAIN.*", "PLAIN", False),
        ("A", "A", True),
        ("A", "AB", False),
    ],
)
def test_profiles_match_channels(profile: str, channel: str, matches: bool) -> None:
    assert matches_channel(profile, channel) is matches


address, user, peer = (partial(record, kind) for kind in ("ADDRESSMAP", "USERMAP", "SSLPEERMAP"))
NO_ACCESS = address(channel="*", address="*", user_source="NOACCESS")
CAROL = Connecting("PLAIN.MQTT", "10.1.2.3", "carol")


def test_accepted_clients_and_their_users(subtests: pytest.Subtests) -> None:
    """None: rejected."""
    for records, client, outcome in [
        ([], CAROL, "carol"),
        ([NO_ACCESS], CAROL, None),
        ([NO_ACCESS, address(channel="PLAIN.*", address="*", user_source="CHANNEL")], CAROL, "carol"),
        ([NO_ACCESS, address(address="10.1.*", mcauser="plant")], CAROL, "plant"),
        ([NO_ACCESS, address(address="10.9.*", mcauser="plant")], CAROL, None),
        ([address(address="10.1.2.3", mcauser="a"), address(address="10.1.*", mcauser="b")], CAROL, "a"),
        ([address(address="10.1.2.3", mcauser="a"), user(client_user="carol", mcauser="b")], CAROL, "b"),
        (
            [user(client_user="carol", mcauser="a"), user(client_user="carol", address="10.1.*", mcauser="b")],
            CAROL,
            "b",
        ),
        (
            [user(client_user="carol", mcauser="a"), peer(ssl_peer="CN=pump*", mcauser="b")],
            Connecting("PLAIN.MQTT", "10.1.2.3", "carol", PUMP),
            "b",
        ),
        (
            [peer(ssl_peer="CN=pump*", mcauser="a"), peer(ssl_peer="CN=pump-7,OU=plant", mcauser="b")],
            Connecting("PLAIN.MQTT", "10.1.2.3", "carol", PUMP),
            "b",
        ),
        (
            [peer(ssl_peer="CN=pump*", ssl_cert_issuer="CN=CA", mcauser="a")],
            Connecting("PLAIN.MQTT", "10.1.2.3", "carol", PUMP, "CN=CA"),
            "a",
        ),
        (
            [peer(ssl_peer="CN=pump*", ssl_cert_issuer="CN=CA", mcauser="a")],
            Connecting("PLAIN.MQTT", "10.1.2.3", "carol", PUMP, "CN=other"),
            "carol",
        ),
        ([peer(ssl_peer="CN=*", mcauser="a")], CAROL, "carol"),
        (
            [address(channel="PLAIN.MQTT", address="*", mcauser="a"), user(client_user="carol", mcauser="b")],
            CAROL,
            "a",
        ),
        ([record("BLOCKUSER", user_list=["carol"])], CAROL, None),
        ([record("BLOCKUSER", user_list=["administrator"])], Connecting("A", "10.1.2.3", "administrator"), None),
        ([record("BLOCKUSER", user_list=["administrato"])], Connecting("A", "10.1.2.3", "administrator"), None),
        ([record("BLOCKUSER", user_list=["carol"])], Connecting("A", "10.1.2.3", "carol "), None),
        ([record("BLOCKUSER", user_list=["carolina"])], CAROL, "carol"),
        ([user(client_user="carol", user_source="NOACCESS")], Connecting("A", "10.1.2.3", "carol "), None),
        ([address(address="10.1.2.1-200", mcauser="a"), address(address="10.1.2.1-5", mcauser="b")], CAROL, "b"),
        ([address(address="10.1.2.1-9", mcauser="a"), address(address="10.1.2.1-200", mcauser="b")], CAROL, "a"),
        ([address(address="10.1.*", mcauser="a"), address(address="10.*.2.3", mcauser="b")], CAROL, "a"),
        ([address(address="*.1.2.3", mcauser="a"), address(address="10.0-1.*", mcauser="b")], CAROL, "b"),
        ([NO_ACCESS], Connecting("A", "", "carol"), None),
        ([address(address="*.*.*.3", user_source="NOACCESS")], Connecting("A", "", "carol"), "carol"),
        ([record("BLOCKADDR", address_list=["*"])], Connecting("A", "", "carol"), None),
        ([record("BLOCKADDR", address_list=["10.*", "::1"])], Connecting("A", "", "carol"), "carol"),
        ([user(client_user="carol", address="10.1.2.3", mcauser="a")], Connecting("A", "", "carol"), "carol"),
        ([user(client_user="carol", mcauser="a")], Connecting("A", "", "carol"), "a"),
        ([peer(ssl_peer="CN=*", mcauser="a")], Connecting("A", "", "carol", PUMP), "a"),
        ([record("BLOCKUSER", channel="OTHER", user_list=["carol"])], CAROL, "carol"),
        (
            [record("BLOCKUSER", user_list=["carol"]), record("BLOCKUSER", channel="PLAIN.*", user_list=["dave"])],
            CAROL,
            "carol",
        ),
        ([record("BLOCKUSER", user_list=["plant"]), address(address="*", mcauser="plant")], CAROL, None),
        ([record("BLOCKADDR", address_list=["10.1.*"]), user(client_user="carol", mcauser="a")], CAROL, None),
        ([record("BLOCKADDR", address_list=["10.2.*"])], CAROL, "carol"),
        ([], Connecting("A", "10.1.2.3", "mqm"), None),
        ([record("BLOCKUSER", user_list=["guest"])], Connecting("A", "10.1.2.3", "mqm"), None),
        ([record("BLOCKUSER", user_list=["*MQADMIN"], warn=True)], Connecting("A", "10.1.2.3", "mqm"), None),
        ([user(client_user="carol", mcauser="mqm")], CAROL, "mqm"),
        ([user(client_user="mqm", mcauser="guest")], Connecting("A", "10.1.2.3", "mqm"), "guest"),
        ([address(address="*", user_source="CHANNEL")], Connecting("A", "10.1.2.3", "mqm"), None),
        ([address(channel="*", address="*", user_source="NOACCESS", warn=True)], CAROL, "carol"),
        ([record("BLOCKUSER", user_list=["carol"], warn=True)], CAROL, "carol"),
        ([record("BLOCKADDR", address_list=["*"], warn=True)], CAROL, "carol"),
    ]:
        with subtests.test(records=records, client=client, outcome=outcome):
            admission = ChannelAuthenticationRecords(records, {"mqm"}.__contains__)
            verdict = admission.verdict(client, client.user)
            assert (None if verdict.refusal else verdict.mcauser or client.user) == outcome
            # The check before CONNECT rejects no address that the complete check accepts.
            assert outcome is None or admission.blocked_address(client.address) == ""
            assert bool(verdict.warnings) == any(rule.warn for rule in records)


def test_invalid_records_are_rejected(subtests: pytest.Subtests) -> None:
    for values, message in [
        ({"type": "ADDRESSMAP"}, "expected address in a record of type ADDRESSMAP"),
        ({"type": "ADDRESSMAP", "address": "host.example"}, "no host name"),
        ({"type": "ADDRESSMAP", "address": "*"}, "expected mcauser, which user_source MAP needs"),
        (
            {"type": "ADDRESSMAP", "address": "*", "user_source": "CHANNEL", "mcauser": "a"},
            "user_source MAP with mcauser",
        ),
        ({"type": "USERMAP", "mcauser": "a"}, "expected client_user"),
        (
            {"type": "USERMAP", "client_user": "a", "mcauser": "a", "ssl_peer": "CN=a"},
            "no ssl_peer in a record of type USER",
        ),
        ({"type": "BLOCKUSER"}, "expected user_list"),
        ({"type": "BLOCKADDR", "address_list": ["*"], "channel": "A"}, "expected channel"),
        ({"type": "QMGRMAP"}, "expected ADDRESSMAP, USERMAP, SSLPEERMAP, BLOCKUSER or BLOCKADDR"),
        ({"type": "BLOCKUSER", "user_list": ["a"], "channel": "A*B"}, "expected a channel name"),
    ]:
        with subtests.test(values=values, told=message):
            with pytest.raises(ValidationError) as error:
                ChannelAuthenticationConfig.model_validate(values)
            assert message in str(error.value)


@given(st.text('*.,=a1-:\\"', max_size=40), st.text('*.,=a1-:\\"', max_size=200))
def test_no_input_raises_an_error(pattern: str, text: str) -> None:
    with contextlib.suppress(ValueError):
        address_pattern(pattern).matches(text)
    matches_name(pattern, text)
