"""Users of a bridge who attack it within their rights, until standard input ends.

python -m tests.helpers.attackers MQTT_PORT ADMIN_PORT
"""

from __future__ import annotations

import http.client
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterable

from bridge.mqtt.packets import Disconnect, Pingreq, Puback, Publish
from tests.helpers.raw_client import ConnectionClosed, RawClient

#: Seconds before an attacker tries again after it was rejected.
AGAIN = 1.0
#: Publications of one batch.
BATCH = 200
#: Seconds between PINGREQs of a client that does not read.
PING = 20.0
HTTP_CONNECTIONS = 8
#: Topics that each of them may publish and subscribe to.
READ, WRITE = "#", ("public", "orders")


def attacker(name: str, port: int, *, clean: bool = True) -> RawClient:
    return RawClient.connected(
        port, name, level=5, clean=clean, user_name=name, password=name.encode(), keep_alive=0 if clean else 60
    )


def subscribe_and_do_not_read(port: int) -> None:
    client = attacker("silent-read", port, clean=False)
    client.subscribe((READ, 1))
    while True:
        time.sleep(PING)
        client.send(Pingreq())


def subscribe_and_stay_away(port: int) -> None:
    client = attacker("silent-away", port, clean=False)
    client.subscribe((READ, 1))
    client.send(Disconnect())
    time.sleep(PING)


def subscribe_and_do_not_acknowledge(port: int) -> None:
    client = attacker("silent-ack", port, clean=False)
    client.subscribe((READ, 2))
    while not isinstance(client.receive(PING), Disconnect):
        client.send(Pingreq())


def publish_all(
    client: RawClient, publications: Iterable[tuple[str, bytes]], *, retain: bool = False, pause: float = 0.0
) -> None:
    """Publish without end, in batches, with a pause in seconds between them. Rejections are ignored."""
    publications = iter(publications)
    while True:
        batch = itertools.islice(publications, BATCH)
        client.send(
            *(Publish(topic, data, 1, retain, False, packet_id) for packet_id, (topic, data) in enumerate(batch, 1))
        )
        for _ in range(BATCH):
            client.wait_for(Puback)
        time.sleep(pause)


def flood(port: int) -> None:
    publish_all(attacker("floods", port), itertools.repeat(("public/flood", bytes(1_000))))


def flood_with_retained(port: int) -> None:
    topics = ((f"public/retained/{number}", bytes(10_000)) for number in itertools.count())
    publish_all(attacker("floods-kept", port), topics, retain=True)


def flood_with_dead_letters(port: int) -> None:
    """Publish messages that a mapping cannot process, at its rate, because the backlog of a mapping has no limit."""
    publish_all(attacker("floods-dead", port), itertools.repeat(("orders/nowhere", bytes(1_000))), pause=1.0)


def flood_with_requests(port: int) -> None:
    """Send anonymous requests, one after another on one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PING)
    for method, path in itertools.cycle((("GET", "/"), ("GET", "/metrics"), ("POST", "/login"))):
        connection.request(method, path, body=b"password=" + bytes(8_000) if method == "POST" else None)
        connection.getresponse().read()


def again_and_again(attack: Callable[[int], None], port: int) -> None:
    while True:
        try:
            attack(port)
        except (ConnectionClosed, AssertionError, OSError, http.client.HTTPException):
            time.sleep(AGAIN)


def main() -> None:
    mqtt, admin = map(int, sys.argv[1:])
    attacks = [
        (subscribe_and_do_not_read, mqtt),
        (subscribe_and_stay_away, mqtt),
        (subscribe_and_do_not_acknowledge, mqtt),
        (flood, mqtt),
        (flood_with_retained, mqtt),
        (flood_with_dead_letters, mqtt),
        *[(flood_with_requests, admin)] * HTTP_CONNECTIONS,
    ]
    for attack in attacks:
        threading.Thread(target=again_and_again, args=attack, daemon=True).start()
    sys.stdin.read()


#: The users that `main` needs. The password of a user is its name, at most 12 bytes, as for an MQ user.
USERS = (
    "silent-read",
    "silent-away",
    "silent-ack",
    "floods",
    "floods-kept",
    "floods-dead",
)

if __name__ == "__main__":
    main()
