"""CPU time of an idle bridge, and of its queue manager, while messages wait for an absent client.

The real ibmmq (or pymqi) package runs on the stand-in for IBM's client library, as in `tests.benchmarks.remote`. So the
CPU time of the queue manager includes the stand-in and the embedded queue manager. Compare it with the row without
messages, not with IBM MQ.

    python -m tests.benchmarks.waiting [--messages 0,15000] [--seconds 60] [--against COMMIT]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bridge.mq.mqi import MQOD
from bridge.mq.remote import RemoteConnection
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.benchmarks.channel import Channel
from tests.benchmarks.remote import Running, bridge, checkouts, numbers

#: Messages per unit of work.
UNIT = 500
#: Seconds after the last message. After 10 s without work, the browser of the bridge is idle.
SETTLE = 20.0


def fill(running: Running, messages: int, payload: int) -> None:
    """Put messages for an absent client with a durable subscription."""
    channel = Channel(running.port, "absent", clean=False)
    channel.subscribe("waiting", 1)
    channel.socket.close()
    connection = RemoteConnection(running.directory / "data")
    topic = connection.open(MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString="waiting"), cmqc.MQOO_OUTPUT)
    message = Message(MQMD(Persistence=cmqc.MQPER_PERSISTENT), b"x" * payload)
    for count in range(1, messages + 1):
        connection.put(topic, message, cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_NEW_MSG_ID)
        if count % UNIT == 0 or count == messages:
            connection.commit()
    queue = connection.open(MQOD(ObjectName="SYSTEM.MQTT.TRANSMIT.QUEUE"), cmqc.MQOO_INQUIRE)
    (depth,) = connection.inquire(queue, (cmqc.MQIA_CURRENT_Q_DEPTH,))[0]
    connection.disconnect()
    if depth != messages:
        raise RuntimeError(f"{depth} of {messages} messages wait")


def idle(options: argparse.Namespace, messages: int, code: Path) -> tuple[float, float]:
    """Return the CPU time of bridge and queue manager in milliseconds per second."""
    with bridge(options, code, "batched", 0, 32) as running:
        fill(running, messages, options.payload)
        time.sleep(SETTLE)
        before, start = (running.cpu(), running.queue_manager_cpu()), time.perf_counter()
        time.sleep(options.seconds)
        after, seconds = (running.cpu(), running.queue_manager_cpu()), time.perf_counter() - start
    of_bridge, of_queue_manager = ((end - start) / seconds * 1000 for start, end in zip(before, after, strict=True))
    return of_bridge, of_queue_manager


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="COMMIT", help="also run the bridge of this commit, in turn")
    parser.add_argument("--messages", type=numbers, default=[0, 15_000])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--payload", type=int, default=100)
    parser.add_argument("--library", choices=("ibmmq", "pymqi"), default="ibmmq")
    options = parser.parse_args()
    table = Table(title=f"idle for {options.seconds:g} s, {options.library} on the stand-in")
    for heading in ("code", "messages that wait", "bridge, ms/s", "queue manager, ms/s"):
        table.add_column(heading, justify="right")
    with checkouts(options.against) as codes:
        for messages in options.messages:
            for name, code in codes.items():
                row = (name, f"{messages:,}", *(f"{cpu:.1f}" for cpu in idle(options, messages, code)))
                print(*row, flush=True)
                table.add_row(*row)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
