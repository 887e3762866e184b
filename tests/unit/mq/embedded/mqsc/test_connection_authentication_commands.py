"""ALTER and DISPLAY AUTHINFO, and CONNAUTH of the queue manager: which users must authenticate."""

from __future__ import annotations

import pytest

from tests.helpers.embedded_manager import Manager

NAME = "SYSTEM.DEFAULT.AUTHINFO.IDPWOS"


def test_alter_and_display_change_and_show_the_setting(manager: Manager) -> None:
    """The setting survives a restart. Without a listener with authentication it has no effect, and the responses say so."""
    assert manager.attribute("QMGR", "CONNAUTH") == NAME
    assert manager.attribute(f"AUTHINFO({NAME})", "CHCKCLNT") == "NONE"
    assert "It has no effect" in manager.ok(f"ALTER AUTHINFO({NAME}) AUTHTYPE(IDPWOS) CHCKCLNT(REQDADM)").message
    manager.itself.objects.connection_authentication.asks = True
    assert manager.attribute("AUTHINFO(SYSTEM*)", "CHCKCLNT") == "REQDADM"
    answer = manager.ok(f"ALTER AUTHINFO({NAME}) CHCKCLNT(OPTIONAL) DESCR('who asks')")
    assert answer.message == "AMQ8567I: IBM MQ authentication information changed."
    manager.restart()
    manager.itself.objects.connection_authentication.asks = True
    assert manager.ok("DISPLAY AUTHINFO(*)").objects == [
        {
            "AUTHINFO": NAME,
            "AUTHTYPE": "IDPWOS",
            "DESCR": "who asks",
            "CHCKCLNT": "OPTIONAL",
            "CHCKLOCL": "NONE",
            "ADOPTCTX": "YES",
        }
    ]


@pytest.mark.parametrize(
    ("command", "number"),
    [
        ("ALTER AUTHINFO(OTHER) CHCKCLNT(OPTIONAL)", "AMQ8147E"),
        ("DISPLAY AUTHINFO(OTHER)", "AMQ8147E"),
        (f"ALTER AUTHINFO({NAME}) CHCKCLNT(PERHAPS)", "AMQ8405I"),
        (f"ALTER AUTHINFO({NAME}) AUTHTYPE(OCSP) CHCKCLNT(OPTIONAL)", "AMQ8405I"),
        (f"ALTER AUTHINFO({NAME}) CHCKLOCL(REQUIRED)", "AMQ8405I"),
        (f"DISPLAY AUTHINFO({NAME}) BANANA", "AMQ8405I"),
    ],
)
def test_invalid_commands_are_rejected(manager: Manager, command: str, number: str) -> None:
    """They change nothing."""
    manager.refused(command, number)
    assert manager.itself.objects.connection_authentication.check_clients == "REQUIRED"
