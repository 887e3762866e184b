"""The messages of a queue keep the order of their puts, in whatever order they are committed, got and backed out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.mq.embedded.attributes import defaults
from bridge.mq.embedded.queue import Queue, StoredMessage
from bridge.telemetry.message import Message
from bridge.wire.mq import MQMD

NUMBERS = 40


@given(st.permutations(range(NUMBERS)), st.lists(st.integers(0, NUMBERS - 1)))
def test_messages_have_the_order_of_their_numbers(committed: list[int], touched: list[int]) -> None:
    queue = Queue("Q", defaults("QLOCAL"))
    messages = [
        StoredMessage(
            queue=queue, msg_number=number, message=Message(MQMD(), b""), persistent=False, priority=0, put_time=0.0
        )
        for number in range(NUMBERS)
    ]
    steps = iter(touched)
    expected: set[int] = set()
    # Units of work of four messages, each in the order of its puts. Between them, a message is got or restored.
    for start in range(0, NUMBERS, 4):
        for position in sorted(committed[start : start + 4]):
            queue.append(messages[position])
            expected.add(position)
        number = next(steps, None)
        if number is not None and number in expected:
            queue.take(messages[number])
            expected.remove(number)
        elif number is not None and number in committed[: start + 4]:
            queue.restore(messages[number])
            expected.add(number)
        assert [stored.msg_number for stored in queue.messages()] == sorted(expected)
