"""A mapping's session at a broker: its client identifier, connection and end."""

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

#: Seconds to wait for the end of a session.
END_TIMEOUT = 5.0


def password_of(name: str, config: LinkConfig) -> str | None:
    """Return the password of a link, or None. Raises NoPassword."""
    if config.password_file is None and config.password_variable is None:
        return None
    return read_password(f"link {name}", config.password_file, config.password_variable, os.environ)


def chosen_client_id(connection: Connection, mapping: str, config: LinkConfig, bridge: str, *, unfinished: bool) -> str:
    """Return the client identifier of a mapping at the broker of its link. Raises MQError.

    A session created by an older bridge keeps its client identifier, without `{bridge}`, so that its messages are not lost.
    So does a session with `unfinished` messages of QoS 2.
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
    """Return the connection of a mapping to a link's broker, not yet started. It reads the password itself.

    A blank `client_id` must be replaced with `identify` before the start.
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
    """End the broker session of a removed mapping by connecting with a clean session. Return whether it succeeded."""
    connection = link_connection(mapping, name, config, client_id=client_id, clean=True)
    connection.start()
    ended = connection.wait_connected(END_TIMEOUT)
    if not ended:
        log.warning(
            "MQB5208W ending the session of mapping %s at the broker of link %s failed: %s",
            mapping,
            name,
            connection.state.error,
        )
    connection.stop(END_TIMEOUT)
    return ended
