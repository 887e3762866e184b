"""Read ahead: one round trip for many browsed messages ("MQGET options and read ahead")."""

from __future__ import annotations

import pytest

from tests.helpers.client_programs import Manager

#: `browse` returns the reason of a browse, or the data if there is none.
PROGRAM = """
FIRST, NEXT = CMQC.MQGMO_BROWSE_FIRST, CMQC.MQGMO_BROWSE_NEXT
def opened(options=CMQC.MQOO_BROWSE | CMQC.MQOO_READ_AHEAD):
    return mq.Queue(qmgr, queue, options)
def browse(handle, options=NEXT, room=1000, wait=0, **md):
    try:
        return handle.get(room, mq.MD(**md), mq.GMO(Options=options, WaitInterval=wait)).decode()
    except mq.MQMIError as error:
        return error.reason
def put(*messages):
    with_output = mq.Queue(qmgr, queue, CMQC.MQOO_OUTPUT)
    for message in messages:
        with_output.put(message)
    with_output.close()
"""


@pytest.fixture
def program(queue: str) -> str:
    return f"queue = {queue!r}\n{PROGRAM}"


@pytest.mark.smoke
def test_messages_in_the_buffer_need_no_round_trip(manager: Manager, package: str, program: str) -> None:
    """They are returned even if they are no longer on the queue."""
    results = manager.run(
        package,
        program
        + """
put(b'one', b'two', b'three')
handle = opened()
results['first'] = browse(handle)
taken = mq.Queue(qmgr, queue, CMQC.MQOO_INPUT_SHARED)
results['taken'] = [taken.get().decode() for _ in range(3)]
results['rest'] = [browse(handle) for _ in range(3)]
""",
    )
    assert results == {"first": "one", "taken": ["one", "two", "three"], "rest": ["two", "three", 2033]}


@pytest.mark.parametrize("how", ["not asked for", "SHARECNV(0)", "DEFREADA(DISABLED)", "bindings"])
def test_no_read_ahead(manager: Manager, package: str, program: str, queue: str, how: str) -> None:
    """A removed message is not browsed."""
    options = "0" if how == "not asked for" else "CMQC.MQOO_READ_AHEAD"
    if how == "DEFREADA(DISABLED)":
        manager.command(f"ALTER QLOCAL({queue}) {how}")
    manager.command("DEFINE CHANNEL(ALONE) CHLTYPE(SVRCONN) SHARECNV(0) REPLACE")
    connect = {
        "SHARECNV(0)": "qmgr.disconnect(); qmgr = mq.connect('MQB1', 'ALONE', 'localhost(1414)')",
        "bindings": "qmgr.disconnect(); qmgr = mq.connect('MQB1')",
    }
    results = manager.run(
        package,
        f"{connect.get(how, '')}\n{program}"
        + f"""
put(b'one', b'two')
handle = opened(CMQC.MQOO_BROWSE | {options})
results['first'] = browse(handle)
taken = mq.Queue(qmgr, queue, CMQC.MQOO_INPUT_SHARED)
taken.get(), taken.get()
results['second'] = browse(handle)
""",
    )
    assert results == {"first": "one", "second": 2033}


@pytest.mark.smoke
def test_defreada_of_the_queue_enables_read_ahead(manager: Manager, package: str, program: str, queue: str) -> None:
    manager.command(f"ALTER QLOCAL({queue}) DEFREADA(YES)")
    results = manager.run(
        package,
        program
        + """
def stale(options):
    put(b'one', b'two')
    handle = opened(CMQC.MQOO_BROWSE | options)
    browse(handle)
    taken = mq.Queue(qmgr, queue, CMQC.MQOO_INPUT_SHARED | CMQC.MQOO_NO_READ_AHEAD)
    taken.get(), taken.get()
    return browse(handle)
results['default'] = stale(0)
results['no'] = stale(CMQC.MQOO_NO_READ_AHEAD)
""",
    )
    assert results == {"default": "two", "no": 2033}


def test_browse_first_discards_the_buffer(manager: Manager, package: str, program: str) -> None:
    results = manager.run(
        package,
        program
        + """
put(b'one', b'two', b'three')
handle = opened()
results['before'] = browse(handle), browse(handle)
taken = mq.Queue(qmgr, queue, CMQC.MQOO_INPUT_SHARED)
taken.get()
put(b'four')
results['after'] = [browse(handle, FIRST), browse(handle), browse(handle), browse(handle)]
results['under cursor'] = browse(handle, CMQC.MQGMO_BROWSE_MSG_UNDER_CURSOR)
""",
    )
    assert results == {"before": ["one", "two"], "after": ["two", "three", "four", 2033], "under cursor": "four"}


def test_options_of_mqget_with_read_ahead(manager: Manager, package: str, program: str) -> None:
    """2457: an option was changed that must not change. 2046: an option is not allowed. After that, valid options work."""
    results = manager.run(
        package,
        program
        + """
put(b'one', b'two', b'three', b'four', b'five', b'six')
both = CMQC.MQOO_BROWSE | CMQC.MQOO_INPUT_SHARED | CMQC.MQOO_READ_AHEAD
handle = opened(both)
WITH = CMQC.MQGMO_NO_SYNCPOINT | CMQC.MQGMO_UNMARKED_BROWSE_MSG | CMQC.MQGMO_MARK_BROWSE_HANDLE
results['first'] = browse(handle, NEXT | WITH)
results['changed'] = [
    browse(handle, NEXT | WITH | option)
    for option in (CMQC.MQGMO_ACCEPT_TRUNCATED_MSG, CMQC.MQGMO_CONVERT, CMQC.MQGMO_COMPLETE_MSG,
                   CMQC.MQGMO_PROPERTIES_FORCE_MQRFH2, CMQC.MQGMO_NO_PROPERTIES)
] + [browse(handle, NEXT), browse(handle, CMQC.MQGMO_NO_SYNCPOINT)]
results['forbidden'] = [browse(handle, NEXT | WITH | CMQC.MQGMO_LOCK),
                      browse(handle, WITH | CMQC.MQGMO_MSG_UNDER_CURSOR)]
results['permitted'] = [browse(handle, NEXT | WITH | option)
                      for option in (0, CMQC.MQGMO_WAIT, CMQC.MQGMO_FAIL_IF_QUIESCING)]
other = opened(both)
results['disabled by its first'] = [browse(other, NEXT | CMQC.MQGMO_LOCK), browse(other, NEXT)]
got = opened(both)
results['gets only'] = [browse(got, CMQC.MQGMO_NO_SYNCPOINT), browse(got, NEXT | CMQC.MQGMO_NO_SYNCPOINT)]
""",
    )
    assert results == {
        "first": "one",
        "changed": [2457] * 7,
        "forbidden": [2046, 2046],
        "permitted": ["two", "three", "four"],
        "disabled by its first": ["one", "two"],
        "gets only": ["one", 2457],
    }


def test_a_message_too_long_for_the_given_buffer_stays_first(manager: Manager, package: str, program: str) -> None:
    results = manager.run(
        package,
        program
        + """
put(b'one', b'x' * 500, b'three', b'y' * 200000, b'five')
handle = opened()
results['browsed'] = [browse(handle), browse(handle, room=10), browse(handle)[:3], browse(handle),
                    browse(handle, room=10), browse(handle, room=300000)[:3], browse(handle), browse(handle)]
handle = opened()
accept = NEXT | CMQC.MQGMO_ACCEPT_TRUNCATED_MSG
results['accepted'] = [browse(handle, accept), browse(handle, accept, room=10), browse(handle, accept)]
""",
    )
    assert results == {
        "browsed": ["one", 2080, "xxx", "three", 2080, "yyy", "five", 2033],
        "accepted": ["one", 2079, "three"],
    }


def test_a_browse_with_read_ahead_waits(manager: Manager, package: str, program: str, queue: str) -> None:
    with manager.signal(queue):
        results = manager.run(
            package,
            program
            + """
def late():
    other = mq.connect('MQB1', 'SYSTEM.DEF.SVRCONN', 'localhost(1414)')
    wait = mq.GMO(Options=CMQC.MQGMO_WAIT, WaitInterval=-1)
    mq.Queue(other, queue + '.GO', CMQC.MQOO_INPUT_SHARED).get(None, mq.MD(), wait)
    mq.Queue(other, queue).put(b'late')
    other.disconnect()
thread = threading.Thread(target=late)
thread.start()
results['late'] = browse(opened(), NEXT | CMQC.MQGMO_WAIT, wait=-1)
thread.join()
""",
        )
    assert results == {"late": "late"}


def test_messages_are_selected_from_the_buffer(manager: Manager, package: str, program: str) -> None:
    """Messages with another CorrelId stay in the buffer."""
    results = manager.run(
        package,
        program
        + """
with_output = mq.Queue(qmgr, queue, CMQC.MQOO_OUTPUT)
for correlation in (b'a', b'b', b'a', b'b'):
    with_output.put(b'for ' + correlation, mq.MD(CorrelId=correlation.ljust(24, b'.')))
handle = opened()
results['any'] = browse(handle)
results['b'] = [browse(handle, CorrelId=b'b'.ljust(24, b'.')) for _ in range(3)]
results['left'] = [browse(handle), browse(handle)]
""",
    )
    assert results == {"any": "for a", "b": ["for b", "for b", 2033], "left": ["for a", 2033]}


def test_mqco_quiesce_leaves_the_queue_open_until_the_buffer_is_empty(
    manager: Manager, package: str, program: str
) -> None:
    """2458 until the whole buffer is browsed, then 2518 (MQRC_READ_AHEAD_MSGS, MQRC_HOBJ_QUIESCED_NO_MSGS)."""
    results = manager.run(
        package,
        program
        + """
put(b'one', b'two')
handle = opened()
browse(handle)
results['closed'] = reason(handle.close, CMQC.MQCO_QUIESCE)
put(b'three')
results['rest'] = [browse(handle), browse(handle)]
results['closed then'] = reason(handle.close, CMQC.MQCO_QUIESCE)
""",
    )
    assert results == {"closed": 2458, "rest": ["two", 2518], "closed then": 0}
