"""Attributes of IBM MQ without effect: scripts that set them run, and responses name them."""

from __future__ import annotations

import pytest

from bridge.mq.embedded.unit import Unit
from tests.helpers.embedded_manager import Manager


@pytest.mark.parametrize(
    ("command", "ignored"),
    [
        (
            "DEFINE QLOCAL(Q) MAXDEPTH(7) TRIGGER TRIGTYPE(EVERY) PROCESS(P) MONQ(LOW)",
            "TRIGGER, TRIGTYPE, PROCESS, MONQ",
        ),
        ("DEFINE QALIAS(A) TARGET(Q) PROPCTL(ALL) CLUSTER(C)", "PROPCTL, CLUSTER"),
        ("DEFINE TOPIC(T) TOPICSTR('t') PUBSCOPE(QMGR) MDURMDL(M)", "PUBSCOPE, MDURMDL"),
        ("ALTER QMGR STATQ(ON) SCMDSERV(QMGR)", "STATQ, SCMDSERV"),
        ("DISPLAY QMGR DEADQ STATQ", "STATQ"),
    ],
)
def test_the_response_names_ignored_attributes(manager: Manager, command: str, ignored: str) -> None:
    response = manager.ok(command)
    assert response.message.endswith(f" Ignored, because it has no effect here: {ignored}.")
    assert response.ignored == ignored.split(", ")


def test_display_does_not_show_them(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(Q) NOTRIGGER QDEPTHHI(5) MAXDEPTH(7)")
    (row,) = manager.ok("DISPLAY QLOCAL(Q) ALL").objects
    assert row["MAXDEPTH"] == 7
    assert not {"TRIGGER", "QDEPTHHI", "PROPCTL", "MONQ"} & row.keys()


def test_a_keyword_that_ibm_mq_does_not_have_is_an_error(manager: Manager) -> None:
    assert "MAXDEPHT" in manager.refused("DEFINE QLOCAL(Q) MAXDEPHT(7)", "AMQ8405I")


def test_ignored_attributes_that_an_older_release_stored_are_removed(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(Q) MAXDEPTH(7)")
    stored = manager.itself.objects.queues["Q"].attributes | {"TRIGGER": "YES", "PROCESS": "P"}
    assert not manager.itself.recovery_log.commit(Unit().define("QLOCAL", "Q", stored))
    manager.restart()
    assert manager.itself.objects.queues["Q"].attributes["MAXDEPTH"] == 7
    assert not {"TRIGGER", "PROCESS"} & manager.itself.objects.queues["Q"].attributes.keys()
