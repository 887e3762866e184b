"""DISPLAY: selection of objects and attributes, their order, and the output format of runmqsc."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.mqi import MQOD, CommandResponse
from bridge.mq.mqsc import render
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

OBJECTS = """
DEFINE QLOCAL(APP.IN) MAXDEPTH(10) DESCR('input')
DEFINE QLOCAL(APP.OUT) MAXDEPTH(20) DESCR('output')
DEFINE QLOCAL(B) USAGE(XMITQ)
DEFINE QALIAS(APP.ALIAS) TARGET(APP.IN)
DEFINE QREMOTE(FAR) RNAME(X) RQMNAME(QM2) XMITQ(B)
DEFINE TOPIC(PRICES) TOPICSTR('prices') PUB(DISABLED) DEFPRTY(7)
DEFINE TOPIC(PRICES.FRUIT) TOPICSTR('prices/fruit') PUB(ENABLED)
DEFINE SUB('c1:prices/#') TOPICSTR('prices/#') DEST(APP.IN) USERDATA('1')
DEFINE SUB('c2:x') TOPICSTR('x') DEST(APP.OUT) SUBLEVEL(3)
"""


@pytest.fixture
def queue_manager(tmp_path: Path) -> Iterator[QueueManager]:
    queue_manager = QueueManager("MQB1", tmp_path)
    yield queue_manager
    queue_manager.close()


@pytest.fixture
def connection(queue_manager: QueueManager) -> EmbeddedConnection:
    connection = EmbeddedConnection(queue_manager)
    for response in connection.command(OBJECTS):
        assert response.ok, response.message
    return connection


def display(connection: EmbeddedConnection, command: str) -> list[dict[str, str | int]]:
    (response,) = connection.command(command)
    assert response.ok, response.message
    return response.objects


def refusal(connection: EmbeddedConnection, command: str) -> str:
    (response,) = connection.command(command)
    assert not response.ok and not response.objects
    return response.message


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("DISPLAY QUEUE(APP*)", ["APP.ALIAS", "APP.IN", "APP.OUT"]),
        ("DISPLAY QUEUE('APP.*')", ["APP.ALIAS", "APP.IN", "APP.OUT"]),
        ("DISPLAY QLOCAL(APP*)", ["APP.IN", "APP.OUT"]),
        ("DISPLAY QALIAS(*)", ["APP.ALIAS"]),
        ("DISPLAY QREMOTE(*)", ["FAR"]),
        ("DISPLAY QUEUE(APP.IN)", ["APP.IN"]),
        ("DISPLAY QUEUE(*) TYPE(QREMOTE)", ["FAR"]),
        ("DISPLAY QUEUE(APP*) TYPE(ALL)", ["APP.ALIAS", "APP.IN", "APP.OUT"]),
        ("DISPLAY QLOCAL(*) WHERE(MAXDEPTH EQ 10)", ["APP.IN"]),
        ("DISPLAY QLOCAL(APP*) WHERE(MAXDEPTH NE 10)", ["APP.OUT"]),
        ("DISPLAY QLOCAL(APP*) WHERE(MAXDEPTH GT 10)", ["APP.OUT"]),
        ("DISPLAY QLOCAL(APP*) WHERE(MAXDEPTH GE 10)", ["APP.IN", "APP.OUT"]),
        ("DISPLAY QLOCAL(APP*) WHERE(MAXDEPTH LT 20)", ["APP.IN"]),
        ("DISPLAY QLOCAL(APP*) WHERE(MAXDEPTH LE 20)", ["APP.IN", "APP.OUT"]),
        ("DISPLAY QLOCAL(APP*) WHERE(MAXDEPTH LT 9)", []),
        ("DISPLAY QLOCAL(*) WHERE(DESCR LK 'in*')", ["APP.IN"]),
        ("DISPLAY QLOCAL(APP*) WHERE(DESCR NL 'in*')", ["APP.OUT"]),
        ("DISPLAY QLOCAL(*) WHERE(QUEUE LK APP*)", ["APP.IN", "APP.OUT"]),
        ("DISPLAY QUEUE(*) WHERE(TARGET EQ APP.IN)", ["APP.ALIAS"]),
        ("DISPLAY QUEUE(*) WHERE(TARGET NE NOWHERE)", ["APP.ALIAS"]),
        ("DISPLAY QUEUE(*) WHERE(USAGE EQ XMITQ)", ["B"]),
        ("DISPLAY QSTATUS(APP*) TYPE(QUEUE)", ["APP.IN", "APP.OUT"]),
    ],
)
def test_queues_can_be_selected(connection: EmbeddedConnection, command: str, names: list[str]) -> None:
    if names:
        assert [row["QUEUE"] for row in display(connection, command)] == names
    else:
        assert refusal(connection, command).startswith("AMQ8147E")


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("DISPLAY SUB('c1:*')", ["c1:prices/#"]),
        ("DISPLAY SUB('c1:prices/#')", ["c1:prices/#"]),
        ("DISPLAY SUB(*)", ["c1:prices/#", "c2:x"]),
        ("DISPLAY SUB(*) DURABLE(YES) SUBTYPE(ADMIN)", ["c1:prices/#", "c2:x"]),
        ("DISPLAY SUB(*) SUBTYPE(USER) DURABLE(ALL)", ["c1:prices/#", "c2:x"]),
        ("DISPLAY SUB(*) SUBTYPE(API)", []),
        ("DISPLAY SUB(*) DURABLE(NO)", []),
        ("DISPLAY SUB(*) WHERE(SUBLEVEL GT 1)", ["c2:x"]),
        ("DISPLAY SUB(*) WHERE(DEST EQ APP.IN)", ["c1:prices/#"]),
        ("DISPLAY SUB(*) WHERE(EXPIRY LT 100)", []),
        ("DISPLAY SUB(*) WHERE(EXPIRY EQ UNLIMITED)", ["c1:prices/#", "c2:x"]),
        ("DISPLAY SBSTATUS('c2*')", ["c2:x"]),
    ],
)
def test_subscriptions_can_be_selected(connection: EmbeddedConnection, command: str, names: list[str]) -> None:
    if names:
        assert [row["SUB"] for row in display(connection, command)] == names
    else:
        assert refusal(connection, command).startswith("AMQ8147E")


@pytest.mark.parametrize(
    ("command", "pairs"),
    [
        ("DISPLAY QLOCAL(APP.IN) CURDEPTH MAXDEPTH", {"CURDEPTH": 0, "MAXDEPTH": 10}),
        ("DISPLAY QLOCAL(APP.IN) MAXDEPTH, CURDEPTH", {"MAXDEPTH": 10, "CURDEPTH": 0}),
        ("DISPLAY QLOCAL(APP.I*)", {}),
        ("DISPLAY QLOCAL(APP.I*) DESCR", {"DESCR": "input"}),
        ("DISPLAY QLOCAL(APP.I*) DESCRIPTION", {"DESCR": "input"}),
        ("DISPLAY QLOCAL(APP.I*) WHERE(MAXDEPTH EQ 10)", {"MAXDEPTH": 10}),
        ("DISPLAY QLOCAL(APP.I*) DESCR WHERE(MAXDEPTH EQ 10)", {"DESCR": "input", "MAXDEPTH": 10}),
        ("DISPLAY QLOCAL(APP.IN) DEFPRTY WHERE(QUEUE LK A*)", {"DEFPRTY": 0}),
        ("DISPLAY QUEUE(APP.IN) TARGET", {}),
    ],
)
def test_attributes_can_be_selected(connection: EmbeddedConnection, command: str, pairs: dict[str, str | int]) -> None:
    (row,) = display(connection, command)
    assert list(row.items()) == [("QUEUE", "APP.IN"), ("TYPE", "QLOCAL"), *pairs.items()]


@pytest.mark.parametrize(
    ("command", "first", "some"),
    [
        (
            "DISPLAY QLOCAL(APP.IN)",
            [("QUEUE", "APP.IN"), ("TYPE", "QLOCAL")],
            {"CURDEPTH": 0, "DESCR": "input", "MAXDEPTH": 10, "SHARE": "YES"},
        ),
        ("DISPLAY QLOCAL(APP.I*) ALL", [("QUEUE", "APP.IN"), ("TYPE", "QLOCAL")], {"DESCR": "input"}),
        ("DISPLAY QALIAS(APP.ALIAS)", [("QUEUE", "APP.ALIAS"), ("TYPE", "QALIAS")], {"TARGET": "APP.IN"}),
        ("DISPLAY QREMOTE(FAR)", [("QUEUE", "FAR"), ("TYPE", "QREMOTE")], {"RQMNAME": "QM2", "XMITQ": "B"}),
        ("DISPLAY TOPIC(PRICES)", [("TOPIC", "PRICES"), ("TYPE", "LOCAL")], {"TOPICSTR": "prices", "SUB": "ASPARENT"}),
        ("DISPLAY QMGR", [("QMNAME", "MQB1")], {"CCSID": 1208, "DEADQ": ""}),
        ("DISPLAY QMGR CMDLEVEL PLATFORM", [("QMNAME", "MQB1")], {"CMDLEVEL": 940, "PLATFORM": "UNIX"}),
        ("DISPLAY SBSTATUS('c2:x')", [("SUB", "c2:x"), ("DURABLE", "YES")], {"TOPICSTR": "x"}),
        (
            "DISPLAY QSTATUS(APP.I*)",
            [("QUEUE", "APP.IN"), ("TYPE", "QUEUE")],
            {"CURDEPTH": 0, "IPPROCS": 0, "MSGAGE": 0, "OPPROCS": 0, "UNCOM": "NO"},
        ),
        (
            "DISPLAY SUB('c1:prices/#')",
            [("SUB", "c1:prices/#")],
            {
                "DEST": "APP.IN", "DESTCLAS": "PROVIDED", "DESTCORL": "", "DESTQMGR": "", "DURABLE": "YES",
                "EXPIRY": "UNLIMITED", "SUBLEVEL": 1, "SUBTYPE": "ADMIN", "SUBUSER": "", "TOPICOBJ": "",
                "TOPICSTR": "prices/#", "USERDATA": "1", "WSCHEMA": "TOPIC",
            },
        ),
    ],
)  # fmt: skip
def test_attributes_of_whole_objects_are_sorted_after_the_name(
    connection: EmbeddedConnection, command: str, first: list[tuple[str, str]], some: dict[str, str | int]
) -> None:
    (row,) = display(connection, command)
    assert list(row.items())[: len(first)] == first
    rest = list(row)[len(first) :]
    assert rest == sorted(rest)
    assert row.items() >= some.items()


def test_subscription_status_shows_status_only(connection: EmbeddedConnection) -> None:
    (row,) = display(connection, "DISPLAY SBSTATUS('c2:x')")
    assert list(row) == ["SUB", "DURABLE", "SUBID", "SUBTYPE", "SUBUSER", "TOPICSTR"]


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("DISPLAY QLOCAL", "name in parentheses"),
        ("DISPLAY QMGR(MQB1)", "no name"),
        ("DISPLAY QLOCAL(*) BANANA", "BANANA"),
        ("DISPLAY QLOCAL(*) TARGET", "TARGET"),
        ("DISPLAY QLOCAL(*) MAXDEPTH(5)", "no value"),
        ("DISPLAY QLOCAL(*) TYPE(QALIAS)", "no value"),
        ("DISPLAY QUEUE(*) TYPE(BANANA)", "QLOCAL"),
        ("DISPLAY QSTATUS(*) TYPE(BANANA)", "QUEUE, HANDLE"),
        ("DISPLAY QSTATUS(*) TYPE(HANDLE) CURDEPTH", "CURDEPTH"),
        ("DISPLAY QSTATUS(*) APPLTAG", "APPLTAG"),
        ("DISPLAY QLOCAL(*) WHERE(BANANA EQ 1)", "BANANA"),
        ("DISPLAY QLOCAL(*) WHERE(MAXDEPTH IS 1)", "EQ, NE"),
        ("DISPLAY QLOCAL(*) WHERE(MAXDEPTH EQ)", "attribute operator value"),
        ("DISPLAY QLOCAL(*) WHERE", "attribute operator value"),
        ("DISPLAY QLOCAL(*) WHERE(DESCR LK in)", "generic"),
        ("DISPLAY LISTENER(*)", "DISPLAY LISTENER"),
    ],
)
def test_invalid_display_commands(connection: EmbeddedConnection, command: str, says: str) -> None:
    message = refusal(connection, command)
    assert message.startswith("AMQ8405I")
    assert says in message


def test_queue_status_reflects_the_queue(connection: EmbeddedConnection, queue_manager: QueueManager) -> None:
    od = MQOD(ObjectName="APP.IN")
    reading = connection.open(od, cmqc.MQOO_INPUT_SHARED)
    writing = [connection.open(od, cmqc.MQOO_OUTPUT) for _ in range(2)]
    connection.put(writing[0], Message(MQMD(Persistence=0), b"x"))
    next(queue_manager.objects.queues["APP.IN"].messages()).put_time = time.time() - 60
    connection.put(writing[0], Message(MQMD(Persistence=0, Priority=9), b"x"), cmqc.MQPMO_SYNCPOINT)
    (row,) = display(connection, "DISPLAY QSTATUS(APP.IN)")
    assert {keyword: row[keyword] for keyword in ("CURDEPTH", "IPPROCS", "OPPROCS", "UNCOM")} == {
        "CURDEPTH": 2,
        "IPPROCS": 1,
        "OPPROCS": 2,
        "UNCOM": "YES",
    }
    assert 60 <= int(row["MSGAGE"]) < 120
    connection.commit()
    assert display(connection, "DISPLAY QSTATUS(APP.IN) UNCOM")[0]["UNCOM"] == "NO"
    for handle in (reading, *writing):
        connection.close(handle)
    assert display(connection, "DISPLAY QLOCAL(APP.IN) CURDEPTH IPPROCS OPPROCS") == [
        {"QUEUE": "APP.IN", "TYPE": "QLOCAL", "CURDEPTH": 2, "IPPROCS": 0, "OPPROCS": 0}
    ]


def test_queue_status_lists_the_handles_that_have_a_queue_open(connection: EmbeddedConnection) -> None:
    """IBM MQ, "DISPLAY QSTATUS": TYPE(HANDLE) lists the open handles of a queue with their options."""
    assert refusal(connection, "DISPLAY QSTATUS(APP.IN) TYPE(HANDLE)").startswith("AMQ8147E")
    connection.open(MQOD(ObjectName="APP.IN"), cmqc.MQOO_INPUT_EXCLUSIVE | cmqc.MQOO_INQUIRE)
    connection.open(MQOD(ObjectName="APP.OUT"), cmqc.MQOO_OUTPUT)
    handles = display(connection, "DISPLAY QSTATUS(APP*) TYPE(HANDLE) ALL")
    assert [(handle["QUEUE"], handle["INPUT"], handle["OUTPUT"], handle["INQUIRE"]) for handle in handles] == [
        ("APP.IN", "EXCL", "NO", "YES"),
        ("APP.OUT", "NO", "YES", "NO"),
    ]
    assert {"APPLTAG", "CONNAME", "USERID"} < handles[0].keys()
    assert display(connection, "DISPLAY QSTATUS(APP*) TYPE(HANDLE) WHERE(INPUT NE NO)") == [
        {"QUEUE": "APP.IN", "TYPE": "HANDLE", "INPUT": "EXCL"}
    ]


def test_connections_and_their_handles_are_displayed(connection: EmbeddedConnection) -> None:
    """IBM MQ, "DISPLAY CONN": applications, and with TYPE(HANDLE) their open objects."""
    connection.open(MQOD(ObjectName="APP.IN"), cmqc.MQOO_INPUT_SHARED)
    connection.open(MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString="prices"), cmqc.MQOO_OUTPUT)
    (row,) = display(connection, "DISPLAY CONN(*) ALL")
    assert (row["TYPE"], row["APPLTAG"], row["APPLTYPE"], row["UOWSTATE"]) == ("CONN", "mqbridge", "SYSTEM", "NONE")
    assert len(str(row["CONN"])) == 16 and str(row["EXTCONN"]).startswith("414D51434D514231")
    assert [
        (each["OBJTYPE"], each["OBJNAME"], each["INPUT"], each["OUTPUT"])
        for each in display(connection, f"DISPLAY CONN({row['CONN']}) TYPE(HANDLE) ALL")
    ] == [("QUEUE", "APP.IN", "SHARED", "NO"), ("TOPIC", "prices", "NO", "YES")]
    assert "the bridge uses it" in refusal(connection, f"STOP CONN({row['CONN']})")
    assert refusal(connection, "STOP CONN(0000000000000000)").startswith("AMQ8147E")
    assert refusal(connection, "STOP CONN").startswith("AMQ8405I")
    assert refusal(connection, "DISPLAY CONN(0000000000000000)").startswith("AMQ8147E")


# Topic status


def retain(connection: EmbeddedConnection, topic: str) -> None:
    od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=topic)
    connection.put1(od, Message(MQMD(), b"x"), cmqc.MQPMO_RETAIN)


def test_topic_status_inherits_from_the_nearest_object_with_a_value(connection: EmbeddedConnection) -> None:
    (row,) = display(connection, "DISPLAY TPSTATUS('prices/fruit')")
    assert list(row.items()) == [
        ("TPSTATUS", "prices/fruit"),
        ("ADMIN", "PRICES.FRUIT"),
        ("DEFPRTY", 7),
        ("DEFPSIST", "NO"),
        ("DURSUB", "YES"),
        ("NPMSGDLV", "ALLAVAIL"),
        ("PMSGDLV", "ALLDUR"),
        ("PUB", "ENABLED"),
        ("RETAINED", "NO"),
        ("SUB", "ENABLED"),
        ("SUBCOUNT", 0),
        ("USEDLQ", "YES"),
    ]
    (row,) = display(connection, "DISPLAY TPSTATUS('prices')")
    assert (row["PUB"], row["DEFPRTY"], row["ADMIN"]) == ("DISABLED", 7, "PRICES")
    (row,) = display(connection, "DISPLAY TPSTATUS('x') PUB DEFPRTY ADMIN")
    assert (row["PUB"], row["DEFPRTY"], row["ADMIN"]) == ("ENABLED", 0, "")
    connection.command("ALTER TOPIC(SYSTEM.BASE.TOPIC) DEFPRTY(2)")
    (row,) = display(connection, "DISPLAY TPSTATUS('x') DEFPRTY")
    assert row["DEFPRTY"] == 2


def test_topic_status_counts_retained_publications_and_subscriptions(connection: EmbeddedConnection) -> None:
    retain(connection, "x")
    connection.command("DEFINE SUB('c3:x') TOPICSTR('x') DEST(APP.OUT)")
    (row,) = display(connection, "DISPLAY TPSTATUS('x') RETAINED SUBCOUNT")
    assert row == {"TPSTATUS": "x", "RETAINED": "YES", "SUBCOUNT": 2}
    (row,) = display(connection, "DISPLAY TPSTATUS('prices') RETAINED SUBCOUNT")
    assert row == {"TPSTATUS": "prices", "RETAINED": "NO", "SUBCOUNT": 0}


@pytest.mark.parametrize(
    ("topic_pattern", "strings"),
    [
        ("#", ["", "$SYS", "$SYS/broker", "a", "a/b", "a/b/c", "prices", "prices/#", "prices/fruit", "x"]),
        ("+", ["", "$SYS", "a", "prices", "x"]),
        ("a/#", ["a", "a/b", "a/b/c"]),
        ("a/+", ["a/b"]),
        ("+/b/#", ["a/b", "a/b/c"]),
        ("a/b/c", ["a/b/c"]),
        ("prices/#", ["prices", "prices/#", "prices/fruit"]),
    ],
)
def test_topic_status_accepts_wildcards(connection: EmbeddedConnection, topic_pattern: str, strings: list[str]) -> None:
    retain(connection, "a/b/c")
    retain(connection, "$SYS/broker")
    assert [row["TPSTATUS"] for row in display(connection, f"DISPLAY TPSTATUS('{topic_pattern}')")] == strings


def test_topic_status_lists_subscribers(connection: EmbeddedConnection) -> None:
    connection.command("DEFINE SUB('c3:x') TOPICSTR('fruit/x') DEST(APP.OUT)")
    (row,) = display(connection, "DISPLAY TPSTATUS('fruit/x') TYPE(SUB) DURABLE SUBTYPE")
    assert row == {"TPSTATUS": "fruit/x", "TYPE": "SUB", "DURABLE": "YES", "SUBTYPE": "ADMIN"}
    (row,) = display(connection, "DISPLAY TPSTATUS('fruit/+') TYPE(SUB)")
    assert row["SUBID"] == display(connection, "DISPLAY SUB('c3:x') SUBID")[0]["SUBID"]
    assert refusal(connection, "DISPLAY TPSTATUS('fruit') TYPE(SUB)").startswith("AMQ8147E")


def test_topic_status_lists_publishers(connection: EmbeddedConnection) -> None:
    handle = connection.open(MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString="fruit/y"), cmqc.MQOO_OUTPUT)
    (row,) = display(connection, "DISPLAY TPSTATUS('fruit/#') TYPE(PUB)")
    (application,) = display(connection, "DISPLAY CONN(*) ALL")
    assert row == {
        "TPSTATUS": "fruit/y",
        "TYPE": "PUB",
        "ACTCONN": f"{application['EXTCONN']}{application['CONN']}",
        **{keyword: application[keyword] for keyword in ("APPLTAG", "CONNAME", "USERID")},
    }
    connection.close(handle)
    assert refusal(connection, "DISPLAY TPSTATUS('fruit/y') TYPE(PUB)").startswith("AMQ8147E")


@pytest.mark.parametrize("kind", ["HANDLE", "ADMIN"])
def test_topic_status_has_three_types(connection: EmbeddedConnection, kind: str) -> None:
    assert "TYPE must be one of TOPIC, SUB, PUB" in refusal(connection, f"DISPLAY TPSTATUS('x') TYPE({kind})")


def test_topic_status_of_an_unknown_topic_string(connection: EmbeddedConnection) -> None:
    assert refusal(connection, "DISPLAY TPSTATUS('nowhere')").startswith("AMQ8147E")


@pytest.mark.parametrize(
    ("operator", "names"), [("GT", ["PRICES"]), ("LE", []), ("EQ", []), ("NE", ["PRICES", "PRICES.FRUIT"])]
)
def test_asparent_cannot_be_compared_with_numbers(
    connection: EmbeddedConnection, operator: str, names: list[str]
) -> None:
    command = f"DISPLAY TOPIC(PRICES*) WHERE(DEFPRTY {operator} 3)"
    if names:
        assert [row["TOPIC"] for row in display(connection, command)] == names
    else:
        assert refusal(connection, command).startswith("AMQ8147E")


# Output format of runmqsc


def test_output_has_two_columns() -> None:
    response = CommandResponse(
        command="DISPLAY QLOCAL(*)",
        message="AMQ8409I: Display queue details.",
        ok=True,
        objects=[
            {"QUEUE": "DEV.IN", "TYPE": "QLOCAL", "DESCR": "", "SHARE": "YES", "TRIGGER": "NO"},
            {"QUEUE": "A.QUEUE.WITH.A.VERY.LONG.NAME.INDEED", "TYPE": "QLOCAL", "CURDEPTH": 3},
        ],
    )
    assert render(response).split("\n") == [
        "AMQ8409I: Display queue details.",
        "   QUEUE(DEV.IN)                           TYPE(QLOCAL)",
        "   DESCR( )                                SHARE",
        "   NOTRIGGER",
        "AMQ8409I: Display queue details.",
        "   QUEUE(A.QUEUE.WITH.A.VERY.LONG.NAME.INDEED)",
        "   TYPE(QLOCAL)                            CURDEPTH(3)",
    ]


def test_unprintable_characters_become_dots() -> None:
    response = CommandResponse(command="", message="AMQ8096I: x", ok=True, objects=[{"SUB": "a\n\x1b[2Jé"}])
    assert render(response) == "AMQ8096I: x\n   SUB(a..[2Jé)"
    response = CommandResponse(command="", message="AMQ8147E: a\nb", ok=False)
    assert render(response) == "AMQ8147E: a.b"


def test_a_response_without_objects_is_one_line(connection: EmbeddedConnection) -> None:
    (response,) = connection.command("PING QMGR")
    assert render(response) == "AMQ8415I: Queue manager MQB1 is running."
