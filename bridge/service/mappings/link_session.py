"""A mapping's session at a broker: how it is named, opened, and ended."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from bridge.config import LinkConfig
from bridge.config.link import MAPPING_PLACE
from bridge.mqtt.link import LinkConnection, LinkState

log = logging.getLogger(__name__)

#: QoS on a link by a mapping's guarantee: of its subscription, and at least of what it publishes.
GUARANTEED_QOS = {"at-most-once": 0, "at-least-once": 1, "exactly-once": 2}
#: Seconds that the end of a session may take.
END_TIMEOUT = 5.0


class NoPassword(Exception):
    """The password of a link cannot be had; the message says why."""


def password_of(name: str, config: LinkConfig) -> str | None:
    """The password of a link, from its file or variable; None for a link without. Raises NoPassword."""
    if config.password_file is not None:
        try:
            with config.password_file.open(encoding="utf-8") as file:
                password = file.readline().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise NoPassword(f"link {name}: password_file {config.password_file}: {error}") from error
        if not password:
            raise NoPassword(f"link {name}: the first line of password_file {config.password_file} is empty")
        return password
    if config.password_variable is not None:
        from_environment = os.environ.get(config.password_variable)
        if not from_environment:
            raise NoPassword(f"link {name}: the environment variable {config.password_variable} is not set")
        return from_environment
    return None


def link_connection(
    mapping: str,
    name: str,
    config: LinkConfig,
    *,
    topic_filter: str | None = None,
    qos: int = 0,
    clean: bool | None = None,
    on_state: Callable[[LinkState], None] | None = None,
    on_session: Callable[[bool], None] | None = None,
) -> LinkConnection:
    """The connection of a mapping to the broker of a link, not yet started. Raises NoPassword."""
    return LinkConnection(
        name,
        config,
        config.client_id.replace(MAPPING_PLACE, mapping),
        topic_filter=topic_filter,
        qos=qos,
        password=password_of(name, config),
        clean=clean,
        on_state=on_state,
        on_session=on_session,
    )


def end_session(mapping: str, name: str, config: LinkConfig) -> None:
    """Have the broker forget the session of a mapping that is no more: connecting with a clean one does."""
    try:
        connection = link_connection(mapping, name, config, clean=True)
    except NoPassword as error:
        log.warning("the session of mapping %s is left at its broker: %s", mapping, error)
        return
    connection.start()
    if not connection.wait_connected(END_TIMEOUT):
        log.warning(
            "the session of mapping %s is left at the broker of link %s: %s", mapping, name, connection.state.error
        )
    connection.stop(END_TIMEOUT)
