"""Open files: a connected client is one, and the shell that starts the bridge allows few."""

from __future__ import annotations

import logging
import resource

log = logging.getLogger(__name__)

#: Files that the bridge has open beside its clients: databases, sockets, links, the archive's process.
RESERVE = 256


def room_for(clients: int) -> int:
    """Raise the limit of open files to what so many clients need, as far as may be; return how many there is room for.

    uvloop closes a connection for which there is no descriptor left without a word, so the channels have to know.
    """
    wanted = clients + RESERVE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return clients
    room = max(1, soft - RESERVE)
    log.warning(
        "MQB0005W the limit of open files is %d: there is room for %d clients, and max_clients asks for %d in all; "
        "raise the hard "
        "limit (LimitNOFILE= of the systemd unit, ulimit -Hn of the shell)",
        soft,
        room,
        clients,
    )
    return room
