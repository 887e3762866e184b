"""Changes of a mapping, or of its broker, during an unfinished exchange of QoS 2, with their results.

`docs/explanation/delivery-guarantees.md` contains this table. A test compares both, another one enumerates the cells.
"""

from __future__ import annotations

from typing import Final

#: Progress of the exchange of a message, for each direction.
STATES: Final = {
    "to the broker": {
        "nothing in flight": ("", ""),
        "sent, not received": ("publish_exactly", "before"),
        "PUBREC lost": ("publish_exactly", "after"),
        "PUBREL not sent": ("release", "before"),
        "PUBCOMP lost": ("release", "after"),
    },
    "from the broker": {
        "nothing in flight": ("", ""),
        "received, not put": ("take", "after"),
        "put, PUBREC not sent": ("acknowledge", "before"),
        "PUBREC sent, PUBREL lost": ("acknowledge", "after"),
        "PUBREL received, PUBCOMP not sent": ("complete", "before"),
    },
}

ONCE, THERE, STAYS, TWICE, ENDED = (
    "once",
    "once, at the old broker",
    "stays at the old broker",
    "twice",
    "ends with the session",
)
#: Change -> direction -> results, in the order of the states. One result applies to all states.
CHANGES: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "address of the link": {
        "to the broker": (ONCE, THERE, THERE, THERE, THERE),
        "from the broker": (ONCE, STAYS, ONCE, ONCE, ONCE),
    },
    "address, and back": {"to the broker": (ONCE,), "from the broker": (ONCE,)},
    "`client_id`": {
        "to the broker": (ONCE,),
        "from the broker": (ONCE, STAYS, ONCE, ONCE, ONCE),
    },
    "`client_id`, and back": {"to the broker": (ONCE,), "from the broker": (ONCE,)},
    "`guarantee`": {"to the broker": (ONCE,), "from the broker": (ONCE,)},
    "`from`": {"to the broker": (ONCE,), "from the broker": (ONCE,)},
    "`from` of another kind": {"to the broker": (ONCE,), "from the broker": (ONCE, ENDED, ONCE, ONCE, ONCE)},
    "`filter`": {"to the broker": (ONCE,), "from the broker": (ONCE, "new filter", ONCE, ONCE, ONCE)},
    "name of the mapping": {"to the broker": (ONCE,), "from the broker": (ONCE, ENDED, ONCE, ONCE, ONCE)},
    "mapping removed, and added again": {
        "to the broker": (ONCE,),
        "from the broker": (ONCE, ENDED, ONCE, ONCE, ONCE),
    },
    "another address of `failover`": {
        "to the broker": (ONCE, THERE, THERE, THERE, THERE),
        "from the broker": (ONCE, STAYS, ONCE, ONCE, ONCE),
    },
    "the broker loses the session": {
        "to the broker": (ONCE, ONCE, ONCE, ONCE, TWICE),
        "from the broker": (ONCE, ENDED, ONCE, ONCE, ONCE),
    },
}


def results(change: str, direction: str) -> tuple[str, ...]:
    """Return one result for each state."""
    outcomes = CHANGES[change][direction]
    return outcomes * len(STATES[direction]) if len(outcomes) == 1 else outcomes


def markdown() -> str:
    """Return the tables, as in the documentation."""
    tables = []
    for direction, states in STATES.items():
        rows = [["change", *states], ["---"] * (len(states) + 1)]
        rows += [[change, *results(change, direction)] for change in CHANGES]
        tables.append(f"**{direction.capitalize()}**\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows))
    return "\n".join(tables)
