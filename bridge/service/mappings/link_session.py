"""A mapping's session at a broker: how it is named, opened, and ended."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from bridge.config import LinkConfig
from bridge.config.link import DEFAULT_CLIENT_ID, client_id_of
from bridge.config.queue_manager import read_password
from bridge.link.connection import LinkConnection
from bridge.link.state import LinkState
from bridge.mq.mqi import Connection
from bridge.mq.state import LinkSessions

log = logging.getLogger(__name__)

#: Seconds that the end of a session may take.
END_TIMEOUT = 5.0


def password_of(name: str, config: LinkConfig) -> str | None:
    """Return the password of a link; None for a link without. Raises NoPassword."""
    if config.password_file is None and config.password_variable is None:
        return None
    return read_password(f"link {name}", config.password_file, config.password_variable, os.environ)


def chosen_client_id(connection: Connection, mapping: str, config: LinkConfig, bridge: str, *, unfinished: bool) -> str:
    """Return the client identifier of a mapping at the broker of its link. Raises MQError.

    A session that an older bridge made keeps its client identifier, without `{bridge}`, so that its messages are not lost.
    So does one with `unfinished` messages of QoS 2.
    """
    chosen = client_id_of(config.client_id, mapping, bridge)
    if config.client_id != DEFAULT_CLIENT_ID:
        return chosen
    former = client_id_of(DEFAULT_CLIENT_ID, mapping, "")
    recorded = LinkSessions(connection).load(mapping)
    used = unfinished if recorded is None else recorded.client_id == former
    if used:
        log.info(
            "MQB5210I mapping %s: keeps its session %r at %s:%d, whose client identifier may be the same on another bridge",
            mapping, former, config.host, config.broker_port,
        )  # fmt: skip
    return former if used else chosen


def link_connection(
    mapping: str,
    name: str,
    config: LinkConfig,
    *,
    client_id: str = "",
    topic_filter: str | None = None,
    qos: int = 0,
    clean: bool | None = None,
    on_state: Callable[[LinkState], None] | None = None,
    on_session: Callable[[bool], None] | None = None,
) -> LinkConnection:
    """Return the connection of a mapping to the broker of a link, not yet started; it reads the password by itself.

    A blank `client_id` is to be replaced before the start, by `identify`.
    """
    return LinkConnection(
        name,
        config,
        client_id or client_id_of(config.client_id, mapping, ""),
        topic_filter=topic_filter,
        qos=qos,
        password=lambda: password_of(name, config),
        clean=clean,
        on_state=on_state,
        on_session=on_session,
    )


def end_session(mapping: str, name: str, config: LinkConfig, client_id: str) -> bool:
    """Have the broker forget the session of a mapping that is no more, by connecting with a clean one; whether it has."""
    connection = link_connection(mapping, name, config, client_id=client_id, clean=True)
    connection.start()
    ended = connection.wait_connected(END_TIMEOUT)
    if not ended:
        log.warning(
            "MQB5208W the session of mapping %s is left at the broker of link %s: %s",
            mapping,
            name,
            connection.state.error,
        )
    connection.stop(END_TIMEOUT)
    return ended
