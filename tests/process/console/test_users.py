"""Users of the console with passwords, and a console that shows no payloads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bridge.cli.program import program
from bridge.mqtt.packets import Publish
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.console import Console, LiveView
from tests.helpers.known_secrets import register
from tests.helpers.raw_client import RawClient
from tests.process.console.test_access import PAGES

CONFIG = """
channels:
  - {{name: PLAIN.MQTT, port: 0}}
  - {{name: DEVICES, port: 0, authentication: [{{method: password, file: {directory}/devices}}]}}
audit_log: {{file: {directory}/audit.jsonl}}
admin:
  port: 0
  authentication:
    - {{method: password, file: {directory}/users}}
  administrators: [anna, dora]
  payloads: false
  open_metrics: false
"""
PASSWORDS = {user: f"{user}'s password" for user in ("anna", "bert", "dora", "emil")}
register(*PASSWORDS.values())


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    """A bridge whose console has users and shows no payloads. anna and dora are administrators."""
    directory = tmp_path_factory.mktemp("users")
    for user, password in PASSWORDS.items():
        invocation = CliRunner().invoke(
            program,
            ["passwd", str(directory / "users"), user, "--stdin", "--scram-iterations", "4096"],
            input=f"{password}\n",
        )
        assert invocation.exit_code == 0, invocation.output
    with at_work(BridgeProcess(directory / "data", config=CONFIG.format(directory=directory))) as process:
        yield process


def logged_in(bridge: BridgeProcess, user: str) -> Console:
    console = Console(bridge)
    assert console.post("/login", user=user, password=PASSWORDS[user]).status == 303
    return console.learn()


def test_an_administrator_can_make_changes(bridge: BridgeProcess) -> None:
    console = logged_in(bridge, "anna")
    assert "user anna (change)" in console.get("/").text
    assert "published 1 byte" in console.change("/topics/publish", topic="by/anna", payload="x").text
    entries = [json.loads(line) for line in (bridge.data_directory.parent / "audit.jsonl").read_text().splitlines()]
    assert any(entry.get("command") == "publish" and entry["user"] == "user anna" for entry in entries)


def test_other_users_can_only_read(bridge: BridgeProcess) -> None:
    console = logged_in(bridge, "bert")
    for path in PAGES:
        if "orders" not in path and "ORDERS" not in path:
            assert console.get(path).status == 200, path
    assert console.change("/topics/publish", topic="by/bert", payload="x").status == 403


@pytest.mark.parametrize(
    ("user", "password"),
    [
        ("anna", "bert's password"), ("anna", ""), ("nobody", "xyzzy"), ("", ""), ("anna\0", "xyzzy"),
        ("a" * 5_000, "b" * 5_000),
    ],
)  # fmt: skip
def test_a_wrong_password_is_rejected(bridge: BridgeProcess, user: str, password: str) -> None:
    console = Console(bridge)
    page = console.post("/login", user=user, password=password)
    assert page.status in (400, 403)
    assert not console.cookies
    assert password not in bridge.log or not password


def test_no_payload_is_shown(bridge: BridgeProcess) -> None:
    console = logged_in(bridge, "anna")
    with RawClient.connected(bridge.port, "discreet", clean=False) as client:
        client.subscribe(("discreet/#", 1))
        client.publish("discreet/1", b"CONFIDENTIAL", 1, retain=True)
        client.wait_for(Publish)
        bridge.mq("put", "news", "CONFIDENTIAL", "--to", "nobody")
        for path in (
            "/topics/show?filter=discreet/1", "/queues/show?name=SYSTEM.MQTT.TRANSMIT.QUEUE", "/dead-letters",
            "/queues/show?name=SYSTEM.DEAD.LETTER.QUEUE", "/clients/show?id=discreet",
        ):  # fmt: skip
            page = console.get(path)
            assert page.status == 200
            assert "CONFIDENTIAL" not in page.html, path
        for path in console.links("/queues/show?name=SYSTEM.DEAD.LETTER.QUEUE", "/queues/message"):
            assert "CONFIDENTIAL" not in console.get(path).html
        for path in console.links("/dead-letters", "/dead-letters/show"):
            page = console.get(path)
            assert "MQDLH" in page.text
            assert "CONFIDENTIAL" not in page.html
    assert console.get("/dead-letters/export").status == 403


def test_metrics_need_a_token(bridge: BridgeProcess) -> None:
    console = Console(bridge)
    assert console.get("/metrics").status == 401
    page = console.request("GET", "/metrics", headers={"Authorization": f"Bearer {console.token}"})
    assert page.status == 200
    assert "mqbridge_build_info" in page.html
    assert console.request("GET", "/metrics", headers={"Authorization": "Bearer no"}).status == 401


def test_repeated_failures_delay_a_login(bridge: BridgeProcess) -> None:
    console = Console(bridge)
    for _ in range(7):
        assert console.post("/login", user="anna", password="guess").status == 403
    assert "delayed a login from 127.0.0.1 by 1 s" in bridge.log
    assert "delayed a login from 127.0.0.1 by 2 s" in bridge.log
    assert logged_in(bridge, "anna").get("/").status == 200


def test_a_reload_applies_changed_users_and_rights(bridge: BridgeProcess) -> None:
    administrator = Administrator(bridge)
    # No other test fails to log in as these users, so their logins are not delayed.
    dora, emil = logged_in(bridge, "dora"), logged_in(bridge, "emil")
    holder = Console(bridge).log_in()
    assert bridge.config is not None
    before = bridge.config.read_text()
    users = bridge.data_directory.parent / "users"
    passwords = users.read_text()
    with LiveView(emil, "reload/#") as view:
        users.write_text("".join(line for line in passwords.splitlines(keepends=True) if not line.startswith("dora:")))
        bridge.config.write_text(before.replace("[anna, dora]", "[emil]").replace("payloads: false", "payloads: true"))
        try:
            output = administrator.does("reload")
            assert "admin: authentication, applications and displays changed" in output
            bridge.mq("pub", "reload/1", "SECRET")
            assert view.event("end")["text"] == "The view ends: the login has ended"
            assert dora.get("/").status == emil.get("/").status == 303
            assert Console(bridge).post("/login", user="dora", password=PASSWORDS["dora"]).status == 403
            published = logged_in(bridge, "emil").change("/topics/publish", topic="by/emil", payload="x")
            assert "published 1 byte" in published.text
            assert holder.get("/").status == 200
            assert holder.get("/dead-letters/export").status == 200
        finally:
            users.write_text(passwords)
            bridge.config.write_text(before)
            administrator.does("reload")
    assert logged_in(bridge, "dora").get("/").status == 200


def test_a_missing_data_directory_is_created_with_a_token_file(tmp_path: Path) -> None:
    process = BridgeProcess(tmp_path / "new" / "data", config=None)
    process.data_directory.parent.mkdir()
    config = tmp_path / "bridge.yaml"
    config.write_text("admin: {port: 0}\n")
    process.config = config
    process.start()
    try:
        assert Console(process).log_in().get("/").status == 200
    finally:
        assert process.stop() == 0, process.log


# Users of password files ---------------------------------------------------------------------------------------------

NEW_PASSWORDS = ("first password of a device", "second password of a device")
register(*NEW_PASSWORDS)


def port_of_devices(bridge: BridgeProcess) -> int:
    (line,) = [line for line in bridge.announced if "channel DEVICES listens" in line]
    return int(line.rpartition(":")[2])


def connects(bridge: BridgeProcess, user: str, password: str) -> bool:
    client = RawClient(port_of_devices(bridge), "device", user_name=user, password=password.encode())
    try:
        return client.connect().return_code == 0
    finally:
        client.vanish()


def test_users_of_devices_are_added_changed_and_deleted(bridge: BridgeProcess, tmp_path: Path) -> None:
    directory = bridge.data_directory.parent
    file = str(directory / "devices")
    console = logged_in(bridge, "anna")
    page = console.get("/users")
    for text in (file, "channel DEVICES", str(directory / "users"), "console", "anna", "dora", "No such file"):
        assert text in page.text, text
    first, second = NEW_PASSWORDS
    added = console.change("/users/password", file=file, user_name="pump", password=first)
    assert f"{file}: added user pump" in added.text
    assert connects(bridge, "pump", first)
    changed = console.change("/users/password", file=file, user_name="pump", password=second)
    assert "set the password of user pump" in changed.text and "stay connected" in changed.text
    assert (connects(bridge, "pump", first), connects(bridge, "pump", second)) == (False, True)
    question = console.change("/users/delete", file=file, user_name="pump")
    assert "Delete this user?" in question.text and "pump" in question.text
    assert "deleted user pump" in console.change("/users/delete", file=file, user_name="pump", confirm="1").text
    assert not connects(bridge, "pump", second)
    assert "has no user" in console.change("/users/delete", file=file, user_name="pump", confirm="1").text
    # Neither the file nor the logs contain the passwords.
    content = (directory / "devices").read_text() + (directory / "audit.jsonl").read_text() + bridge.log
    assert not any(password in content for password in NEW_PASSWORDS)
    entries = [entry for entry in console.json("/audit")["entries"] if entry.get("command", "").startswith("user ")]
    assert len(entries) == 4
    facts = {name: entries[-1][name] for name in ("command", "user", "user_name", "file", "password", "ok")}
    assert facts == {
        "command": "user set-password", "user": "user anna", "user_name": "pump", "file": file, "password": "(hidden)",
        "ok": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"file": "/etc/passwd", "user_name": "x", "password": "y"}, "is not a password file of the configuration"),
        ({"user_name": "x", "password": "y"}, "name a password file of the configuration"),
        ({"user_name": "a:b", "password": "y"}, "expected a user name without colons"),
        ({"user_name": "x", "password": "a\x01b"}, "the password is not valid: control characters forbidden"),
        ({"user_name": "x", "password": "y" * 1_001}, "The request is not valid"),
        ({"user_name": "", "password": "y"}, "The request is not valid"),
    ],
)
def test_invalid_users_are_not_added(bridge: BridgeProcess, fields: dict[str, str], why: str) -> None:
    console = logged_in(bridge, "anna")
    fields = {"file": str(bridge.data_directory.parent / "devices")} | fields if "name a" not in why else fields
    assert why in console.change("/users/password", **fields).text


def test_only_administrators_change_users(bridge: BridgeProcess) -> None:
    console = logged_in(bridge, "bert")
    assert "Add a user" not in console.get("/users").text
    file = str(bridge.data_directory.parent / "users")
    assert console.change("/users/password", file=file, user_name="bert", password="y").status == 403
    assert console.change("/users/delete", file=file, user_name="anna", confirm="1").status == 403


def test_a_user_of_the_console_gets_a_password(bridge: BridgeProcess) -> None:
    console = logged_in(bridge, "anna")
    file = str(bridge.data_directory.parent / "users")
    register("a new password of the console")
    added = console.change("/users/password", file=file, user_name="fred", password="a new password of the console")
    assert "added user fred" in added.text
    assert Console(bridge).post("/login", user="fred", password="a new password of the console").status == 303
    console.change("/users/delete", file=file, user_name="fred", confirm="1")
    assert Console(bridge).post("/login", user="fred", password="a new password of the console").status == 403


def test_commands_manage_users(bridge: BridgeProcess) -> None:
    administrator = Administrator(bridge)
    file = str(bridge.data_directory.parent / "devices")
    words = ("user", "set-password", "made", "--file", file, "--stdin")
    options = administrator.options
    invocation = CliRunner().invoke(program, [*words, *options], input=f"{NEW_PASSWORDS[0]}\n")
    assert (invocation.exit_code, invocation.stdout) == (0, f"{file}: added user made\n")
    files = {user["file"]: user for user in administrator.json("user", "list")}
    assert (files[file]["users"], files[file]["used_by"]) == (["made"], ["channel DEVICES"])
    assert "made" in administrator.does("user", "list")
    assert administrator.does("user", "delete", "made", "--file", file).startswith(f"{file}: deleted user made")
    assert "has no user 'made'" in administrator.refused("user", "delete", "made", "--file", file, status=3)
    assert "name a password file" in administrator.refused("user", "delete", "made", status=2)


def test_the_page_shows_whether_a_user_may_publish(bridge: BridgeProcess) -> None:
    console = logged_in(bridge, "bert")
    assert "May a user publish?" in console.get("/users/access").text
    page = console.get("/users/access", user="mqm", channel="DEVICES", topic="plant/1")
    assert "no" in page.text and "channel authentication rejects" in page.text
    decision = console.json("/users/access", user="pump", channel="DEVICES", topic="plant/1")["decision"]
    assert (decision["permitted"], decision["mq_user"]) == (True, "pump")
    assert console.get("/users/access", channel="NONE", topic="x").status == 404
