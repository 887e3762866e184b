"""The end of a session at a broker that no query goes on with: the broker keeps nothing for it any more."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bridge.files import Locked, lock
from bridge.spark.mqtt.broker import Broker
from bridge.spark.spool import LOCK, SessionAtBroker, forget_session

#: Seconds that connecting, and saying goodbye, may take.
WAIT: Final = 10.0


class SessionNotEnded(Exception):
    """A session is still at its broker; the text is for people."""


def end_session(broker: Broker, session: SessionAtBroker, spool: Path) -> None:
    """Have the broker forget a session that has filled the spool in a directory, and then the spool forget it.

    What waits at the broker is gone; what is in the spool stays. Raises SessionNotEnded: the broker is not reached, or a
    query has the spool; and OSError, OptionError.
    """
    try:
        held = lock(spool / LOCK)
    except Locked as locked:
        raise SessionNotEnded(f"process {locked.process} reads {spool}: end its query first") from locked
    with held:
        named = Broker(link=broker.link.model_copy(update={"client_id": session.client_id}))
        connection = named.connection("", clean=True)
        connection.start()
        connected = connection.wait_connected(WAIT)
        error = connection.state.error
        connection.stop(WAIT)
        if not connected:
            raise SessionNotEnded(f"no connection to {session.broker} within {WAIT:g} s: {error}")
        forget_session(spool, session)
