"""Model check of QoS 1 and 2 in both directions, with failures at any moment.

The real sessions, connections and telemetry service run between a client that conforms to MQTT 3.1 or 3.1.1 and a queue
manager that ends units of work late, in order, or not at all. Clients acknowledge at any time, disconnect, reconnect before
the bridge has noticed, lose bytes in both directions, or do not read. The queue manager rejects publications and fails to
commit. The bridge is killed and restarts from the committed state. Invariants are checked with each byte that the bridge
sends and each committed unit, and at the end everything is completed and counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.helpers.delivery_machine import AixDelivery, CleanDelivery, Delivery, LinuxDelivery, RenumberedDelivery
from tests.helpers.delivery_world import (
    LOW_NUMBERS,
)


def walk(machine: Delivery, random: Random, steps: int, log: list[str]) -> None:
    """A long run of the same machine. Hypothesis' own runs are short, which helps shrinking more than finding."""
    machine.begin(window=random.randint(1, 4), level=random.choice([3, 4, 5]))
    for _ in range(steps):
        link = machine.link
        traffic: list[tuple[int, Callable[..., None], tuple[Any, ...]]] = []
        rare: list[tuple[int, Callable[..., None], tuple[Any, ...]]] = [
            (1, machine.time_passes, ()),
            (1, machine.crash, ()),
            (3 if machine.manager.inhibited else 1, machine.inhibit, ()),
        ]
        if machine.manager.units:
            traffic.append((4, machine.commit, (random.randint(1, 4),)))
            rare.append((1, machine.commit_fails, ()))
        if machine.abandoned:
            traffic.append((1, machine.notice, ()))
        if link is None:
            traffic.append((3, machine.reconnect, (random.randint(1, 4),)))
        else:
            rare += [(1, machine.reconnect, ()), (2, machine.break_link, ())]
            if link.to_client:
                traffic.append((4, machine.client_reads, (random.randint(1, 6),)))
            if link.to_bridge and link.transport.reading:
                traffic.append((4, machine.bridge_reads, (random.randint(1, 6),)))
        if machine.online:
            rare.append((3 if link is not None and link.slow else 1, machine.slow, ()))
            if len(machine.outward) < 4:
                traffic.append((2, machine.client_publishes, (random.randint(1, 2),)))
        if machine.had_session if machine.durable else machine.online:
            batch = [
                (random.choice(LOW_NUMBERS), random.randint(0, 2), random.randint(0, 1))
                for _ in range(random.randint(1, 4))
            ]
            traffic.append((2, machine.application_publishes, (batch,)))
        choices = traffic if traffic and random.random() > 0.12 else rare
        _, action, arguments = random.choices(choices, [weight for weight, _, _ in choices])[0]
        log.append(f"{action.__name__}{arguments}")
        action(*arguments)
        machine.the_window_is_counted_right()
    machine.teardown()


# A part takes 2 CPU seconds.
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 5))])
@pytest.mark.parametrize("kind", [Delivery, CleanDelivery, RenumberedDelivery, LinuxDelivery, AixDelivery])
def test_long_runs(kind: type[Delivery], part: int) -> None:
    for seed in range(part * 80, part * 80 + 80):
        log: list[str] = []
        try:
            walk(object.__new__(kind), Random(seed), 120, log)
        except Exception as error:
            error.add_note(f"seed {seed}:\n" + "\n".join(log))
            raise


def test_the_record_of_an_uncommitted_connect_is_written_with_the_next() -> None:
    """A message id is forgotten on disk before PUBCOMP, even if the unit of work of a CONNECT should have done it
    and failed.
    """
    machine: Delivery = object.__new__(Delivery)
    machine.begin(window=1, level=4)
    machine.reconnect()
    machine.commit(1)
    machine.client_reads(1)
    machine.client_publishes(2)
    machine.bridge_reads(1)
    machine.commit(1)
    machine.client_reads(1)
    machine.bridge_reads(1)
    machine.commit_fails()  # the deletion that PUBREL requires
    machine.commit_fails()  # the record after the failure
    machine.reconnect()
    machine.commit_fails()
    assert machine.manager.received_ids() == [1]
    machine.teardown()


@pytest.fixture(autouse=True)
def quiet() -> Any:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


how = settings(
    max_examples=60,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

TestDurableSession = Delivery.TestCase
TestDurableSession.settings = how
TestCleanSession = CleanDelivery.TestCase
TestCleanSession.settings = how
TestRenumberedMessages = RenumberedDelivery.TestCase
TestRenumberedMessages.settings = how
