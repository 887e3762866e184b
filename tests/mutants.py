"""Plant defects in a copy of the sources, one at a time, and check that the tests find them.

usage: python tests/mutants.py [--jobs N] [NUMBER...]
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
#: Seconds for the tests of one mutant. A mutant that makes them hang counts as killed.
TIMEOUT = 240
UNIT = "tests/unit/"
VERBS = "tests/contract/mqi/verbs"
CONTRACT = "tests/contract/backend/"
LINK = UNIT + "mqtt/link/test_publication.py " + UNIT + "mqtt/link/test_sending.py"
IBM = UNIT + "mq/ibm " + CONTRACT + "test_backend_transmissions.py " + CONTRACT + "test_backend_units.py"
SESSION = " ".join(f"tests/unit/mqtt/test_{name}.py" for name in ("protocol", "session", "outbox", "flow", "backlog"))


class Mutant(NamedTuple):
    file: str
    old: str
    new: str
    tests: str


MUTANTS = (
    Mutant("mqtt/connection.py", "KEEP_ALIVE_GRACE: Final = 1.5", "KEEP_ALIVE_GRACE: Final = 2.5", SESSION),
    Mutant("mqtt/topics.py", "if hashes > 1 or", "if hashes > 2 or", UNIT + "mapping/test_topic.py"),
    Mutant("mqtt/topics.py", 'in ("+", levels[position])', "in (levels[position],)", UNIT + "mapping/test_topic.py"),
    Mutant(
        "mqtt/topics.py",
        "> MQ_TOPIC_STR_LENGTH",
        ">= MQ_TOPIC_STR_LENGTH",
        UNIT + "mapping/test_topic.py " + VERBS,
    ),
    Mutant("mqtt/reader.py", "if size > self._stop - self._position:", "if size > self._stop + 1:", UNIT + "wire/mqtt"),
    Mutant(
        "mqtt/reader.py",
        "if level > LEVEL_MQTT_3_1 and flags:",
        "if level > LEVEL_MQTT_5 and flags:",
        UNIT + "wire/mqtt",
    ),
    Mutant(
        "mqtt/writer.py",
        "if length > MAX_REMAINING_LENGTH:",
        "if length > MAX_REMAINING_LENGTH + 9:",
        UNIT + "wire/mqtt",
    ),
    Mutant(
        "mqtt/writer.py", "MAX_FIELD_LENGTH: Final = 65_535", "MAX_FIELD_LENGTH: Final = 65_536", UNIT + "wire/mqtt"
    ),
    Mutant("telemetry/session.py", "(_PUBACK if message.qos == 1", "(_PUBACK if message.qos != 0", SESSION),
    Mutant(
        "telemetry/conversion.py",
        "cmqc.MQPER_PERSISTENT if persistent else cmqc.MQPER_NOT_PERSISTENT",
        "cmqc.MQPER_NOT_PERSISTENT",
        UNIT + "mapping/telemetry",
    ),
    Mutant("telemetry/outbox.py", "if self._room <= 0:", "if False:", SESSION),
    Mutant(
        "telemetry/backlog.py", "if own > self.owner_bytes * part:", "if own > 2 * self.owner_bytes * part:", SESSION
    ),
    Mutant(
        "mqtt/topics.py",
        'if topic_filter.startswith("$") and',
        "if False and",
        UNIT + "security/test_authenticators.py",
    ),
    Mutant(
        "telemetry/subscription.py",
        "    return topic_filter.startswith(SHARE)",
        "    return False",
        UNIT + "mapping/telemetry",
    ),
    Mutant(
        "mq/embedded/queue.py",
        "if self.depth >= self.max_depth:",
        "if self.depth > self.max_depth:",
        VERBS,
    ),
    Mutant(
        "mq/embedded/queue.py",
        "if length > self.max_length:",
        "if length >= self.max_length:",
        CONTRACT + "test_queue_limits.py",
    ),
    Mutant("mq/embedded/queue.py", "if not self.put_enabled:", "if False:", UNIT + "mq/embedded/test_local_queues.py"),
    Mutant(
        "mq/embedded/selector.py",
        "    if left is None or right is None:\n        return None",
        "    if left is None or right is None:\n        return False",
        UNIT + "mq/embedded/selector",
    ),
    Mutant("mq/embedded/verbs/hconn.py", "if md.Expiry == 0 or", "if md.Expiry == -7 or", VERBS),
    Mutant("mq/embedded/verbs/get.py", "if room is None or message.DataLength <= room:", "if True:", VERBS),
    Mutant("mq/embedded/verbs/put.py", "if md.Priority > MAX_PRIORITY:", "if md.Priority > 99:", VERBS),
    Mutant(
        "mq/embedded/verbs/sub.py",
        "if not 0 <= sd.SubLevel <= MAX_LEVEL",
        "if not 0 <= sd.SubLevel <= 10",
        VERBS,
    ),
    Mutant(
        "mq/dead_letter.py", "if text.isascii() and text.isdecimal():", "if text.isdecimal() and False:", UNIT + "mq"
    ),
    Mutant(
        "mq/ibm/persistent_state.py",
        "other[1].sequence > record.sequence",
        "other[1].sequence < record.sequence",
        UNIT + "mq/ibm " + CONTRACT + "test_backend_records.py",
    ),
    Mutant(
        "mq/ibm/persistent_state.py",
        "if status.PutFailureCount:",
        "if False:",
        CONTRACT + "test_backend_units.py " + UNIT + "mq/ibm",
    ),
    Mutant(
        "service/telemetry.py",
        ">= limits.sessions_per_user:",
        "> limits.sessions_per_user:",
        UNIT + "service/test_quotas.py",
    ),
    Mutant(
        "service/telemetry.py",
        "if len(self._counted) >= limits.sessions:",
        "if False:",
        UNIT + "service/test_quotas.py",
    ),
    Mutant(
        "service/shares.py",
        "transmission.user_data = member.user_data",
        "pass",
        UNIT + "service/test_sharing.py " + UNIT + "service/test_shares_model.py",
    ),
    Mutant(
        "security/channel_authentication.py",
        "and not record.warn and",
        "and",
        UNIT + "security/test_channel_authentication.py",
    ),
    Mutant(
        "security/channel_authentication.py",
        "key=_specificity, reverse=True\n",
        "key=_specificity\n",
        UNIT + "security/test_channel_authentication.py",
    ),
    Mutant(
        "security/authenticators.py", '"require": ["exp", ', '"require": [', UNIT + "security/test_json_web_token.py"
    ),
    Mutant("console/access.py", "if len(keys) >= limit:", "if len(keys) > limit + 1:", UNIT + "console/test_access.py"),
    Mutant("console/access.py", "if self._has_ended(login, now):", "if False:", UNIT + "console/test_access.py"),
    Mutant(
        "wire/mq/pcf.py", "tuple(element.ljust(width) for element in listed)", "listed", UNIT + "wire/mq/test_pcf.py"
    ),
    Mutant("wire/mq/pcf.py", "if depth > MAX_DEPTH:", "if False:", UNIT + "wire/mq/test_pcf.py"),
    Mutant("config/values.py", "and low <= value <= high:", "and low <= value:", UNIT + "config/test_values.py"),
    Mutant("mapping/rendered.py", "if len(encoded) > _IDENTIFIER_LENGTH:", "if False:", UNIT + "mapping/rules"),
    Mutant(
        "mapping/topic_pattern.py",
        "mine = destination[at] if at < ends[0] else None",
        "mine = None",
        UNIT + "mapping/rules",
    ),
    Mutant("link/outbox.py", "if qos > limits.maximum_qos:", "if False:", UNIT + "mqtt/link"),
    Mutant("archive/writer.py", "if give_up():", "if False:", UNIT + "archive"),
    Mutant(
        "log_messages/printable.py",
        "if len(text) > LINE_LENGTH:",
        "if False:",
        UNIT + "log_messages " + UNIT + "service/test_log.py",
    ),
    # Links.
    Mutant("link/outbox.py", "if retain and not limits.retain_available:", "if False:", LINK),
    Mutant("link/outbox.py", "if len(packet) > limits.maximum_packet_size:", "if False:", LINK),
    Mutant("link/outbox.py", "if answer.reason_code >= FAILURE:", "if False:", LINK),
    Mutant("link/outbox.py", "if not session_present:", "if False:", LINK),
    Mutant("link/outbox.py", "PUBREC if answer.reason_code < FAILURE else FAILED_PUBREC", "PUBREC", LINK),
    # Limits.
    Mutant(
        "service/telemetry.py",
        ">= limits.sessions_per_network:",
        "> limits.sessions_per_network:",
        UNIT + "service/test_quotas.py",
    ),
    Mutant(
        "service/subscriptions.py",
        "self._filters >= limits.subscribe_filters:",
        "self._filters > limits.subscribe_filters:",
        UNIT + "service/test_turns.py",
    ),
    Mutant(
        "service/subscriptions.py",
        "most = LEVELS_PER_SUBSCRIPTION * limits.subscriptions",
        "most = 10**9",
        UNIT + "service/test_quotas.py",
    ),
    # The IBM back end.
    Mutant("mq/ibm/browser.py", "if message.md.MsgId in self._known:", "if False:", IBM),
    Mutant("mq/ibm/transmission.py", "if queued.md.Format != cmqc.MQFMT_XMIT_Q_HEADER:", "if False:", IBM),
    Mutant(
        "mq/ibm/persistent_state.py",
        "former.prefix == prefix or former.predecessor",
        "former.predecessor",
        IBM,
    ),
    Mutant(
        "mq/ibm/publisher.py",
        "if reason and part.unit.dead_letters_publication(index, reason) and",
        "if False and",
        IBM,
    ),
    # The store.
    Mutant(
        "mq/embedded/storage/recovery_log.py",
        "if stored.durable and not stored.superseded:",
        "if stored.durable:",
        UNIT + "mq/embedded/storage",
    ),
    Mutant(
        "mq/embedded/storage/recovery_log.py",
        "if not row.live and not row.tombstones:",
        "if not row.live:",
        UNIT + "mq/embedded/storage",
    ),
    Mutant(
        "mq/embedded/storage/store.py",
        "if checksum != batch_checksum(row_id, body):",
        "if False:",
        UNIT + "mq/embedded/storage/test_damage.py",
    ),
    # Spark.
    Mutant(
        "spark/spool.py",
        "if zlib.crc32(content) != segment.checksum:",
        "if False:",
        "tests/spark/test_spool.py",
    ),
    Mutant("spark/spool.py", "if missing and complete:", "if False:", "tests/spark/test_spool.py"),
    Mutant(
        "spark/options.py", "not 0 < int(match[2]) < 65_536", "not 0 < int(match[2])", "tests/spark/test_options.py"
    ),
    Mutant("spark/schema.py", "if field.name not in ignored:", "if False:", "tests/spark/test_schema.py"),
    Mutant(
        "spark/mq/envelope.py",
        "if len(digits) != 16 or not digits.isdigit():",
        "if len(digits) != 16:",
        "tests/spark/mq/test_envelope.py",
    ),
)


def result_of(mutant: Mutant) -> str:
    """Return "killed", "survived", or why the mutant cannot be planted."""
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name) / "mqbridge"
        ignored = shutil.ignore_patterns(
            ".git", ".venv*", "build", "__pycache__", ".*_cache", ".hypothesis", "compiled"
        )
        shutil.copytree(ROOT, copy, ignore=ignored)
        (copy / "build").symlink_to(ROOT / "build")
        file = copy / "bridge" / mutant.file
        source = file.read_text(encoding="utf-8") if file.exists() else ""
        if mutant.old not in source:
            return "not planted"
        file.write_text(source.replace(mutant.old, mutant.new), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-n", "0", "-p", "no:cacheprovider", *mutant.tests.split()]
        environment = os.environ | {"PYTHONPATH": str(copy)}
        with subprocess.Popen(
            command, cwd=copy, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as run:
            try:
                status = run.wait(TIMEOUT)
            except subprocess.TimeoutExpired:
                run.terminate()
                return "timeout"
        return {0: "survived", 1: "killed", 2: "killed"}.get(status, f"pytest exits with {status}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("numbers", type=int, nargs="*", help="the mutants to plant; default: all")
    arguments = parser.parse_args()
    numbers = arguments.numbers or range(1, len(MUTANTS) + 1)
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as threads:
        results = threads.map(result_of, [MUTANTS[number - 1] for number in numbers])
        outcomes = []
        for number, result in zip(numbers, results, strict=True):
            mutant = MUTANTS[number - 1]
            print(f"{number:2} {result:12} {mutant.file}: {mutant.old.strip().splitlines()[0]}", flush=True)
            outcomes.append(result)
    print(f"{outcomes.count('killed')} of {len(outcomes)} killed")
    return int("survived" in outcomes)


if __name__ == "__main__":
    sys.exit(main())
