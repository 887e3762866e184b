"""A database of the embedded queue manager with known messages, and ways to damage it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.embedded.mqsc.commands import prepare, run_script
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.mqi import MQOD
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

QUEUE = "KEPT"


BODIES = [b"message %d %s" % (number, bytes([number % 256]) * 900) for number in range(200)]


def started(directory: Path) -> QueueManager:
    manager = QueueManager("MQB1", directory)
    prepare(manager)
    run_script(manager, f"DEFINE QLOCAL({QUEUE}) REPLACE", "test")
    return manager


def put(manager: QueueManager, *bodies: bytes) -> None:
    connection = EmbeddedConnection(manager)
    handle = connection.open(MQOD(ObjectName=QUEUE), cmqc.MQOO_OUTPUT)
    for body in bodies:
        connection.put(handle, Message(MQMD(Persistence=cmqc.MQPER_PERSISTENT), body))
    connection.disconnect()


def bodies(manager: QueueManager) -> list[bytes]:
    return [stored.message.data for stored in manager.objects.queues[QUEUE].messages()]


#: Objects that a database of a queue manager must not contain, and their names in the message.
FOREIGN_SCHEMA = {
    "trigger": ("CREATE TRIGGER t AFTER INSERT ON fact BEGIN DELETE FROM batch; END", "unexpected trigger 't'"),
    "view": ("CREATE VIEW v AS SELECT 1", "unexpected view 'v'"),
    "index": ("CREATE INDEX i ON batch (checksum)", "unexpected index 'i'"),
    "table": ("CREATE TABLE other (x)", "unexpected table 'other'"),
    "virtual table": ("CREATE VIRTUAL TABLE f USING fts5(x)", "unexpected table 'f'"),
    "column": ("ALTER TABLE batch ADD COLUMN x", "table batch has an unexpected definition"),
    "generated column": (
        "ALTER TABLE object ADD COLUMN x GENERATED ALWAYS AS (zeroblob(1000000)) VIRTUAL",
        "table object has an unexpected definition",
    ),
    "check": (
        "ALTER TABLE fact RENAME TO old; CREATE TABLE fact (name TEXT PRIMARY KEY, value INTEGER NOT NULL CHECK (value > 0)) "
        "WITHOUT ROWID; INSERT INTO fact SELECT * FROM old; DROP TABLE old",
        "table fact has an unexpected definition",
    ),
    "missing table": ("DROP TABLE object", "table object is missing"),
    "endless view": (
        "ALTER TABLE fact RENAME TO hidden; CREATE VIEW fact AS WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value "
        "FROM n) SELECT 'schema' AS name, max(value) AS value FROM n",
        "unexpected view 'fact'",
    ),
    "endless log": (
        "ALTER TABLE batch RENAME TO hidden; CREATE VIEW batch AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id FROM "
        "n) SELECT id, x'' AS body, 0 AS checksum FROM n",
        "unexpected view 'batch'",
    ),
}


def tamper(database: Path, script: str) -> None:
    connection = sqlite3.connect(database)
    connection.executescript(script)
    connection.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with BODIES on its queue."""
    directory = tmp_path_factory.mktemp("written")
    manager = started(directory)
    put(manager, *BODIES)
    manager.close()
    return directory
