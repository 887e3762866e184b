"""The problems of limits: one for each limit that was reached in the last minute, and one for the sessions that end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from shlex import quote
from typing import Final, Literal

import msgspec

from bridge.administration.answers import Problem, ProblemKind, counted
from bridge.config.channel import ChannelConfig
from bridge.config.models import LimitsConfig
from bridge.mq.memory import MIB, in_bytes
from bridge.service.administration.parts import Parts
from bridge.service.limit_hits import Hit
from bridge.telemetry.session import Session

#: The commands that list clients with the largest backlogs first, and log lines about rejections.
LARGEST_BACKLOGS: Final = "mqbridge client list --sort waiting"
_LOG: Final = "journalctl -u mqbridge -p warning"
_CHANNELS: Final = "mqbridge channel list"

_RAISE: Final = "or raise the limit and run `mqbridge reload`."
_BACKLOGS: Final = (
    "Connect the client, or correct its program if it does not acknowledge. Remove the session of a client that will not"
    f" return with `mqbridge client purge CLIENT`, {_RAISE}"
)
_DEAD_LETTERS: Final = (
    "Connect the client or remove its session (`mqbridge client purge CLIENT`), or fix the mapping (`mqbridge dlq show ID`)."
    " Then run `mqbridge dlq retry --all` or `mqbridge dlq delete --all`."
)
_RETAINED: Final = f"Clear retained publications that are not needed with `mqbridge mq pub TOPIC '' --retain`, {_RAISE}"
_SESSIONS: Final = (
    "Remove the sessions of clients that will not return, for example with `mqbridge client purge --away 90d`,"
    f" {_RAISE}"
)
_SUBSCRIPTIONS: Final = f"Subscribe to fewer filters, with wildcards, {_RAISE}"
_CONNECTIONS: Final = (
    "List the clients with `mqbridge client list`, and block or correct those that connect too often, or raise the option and"
    " run `mqbridge reload`."
)
_PACKETS: Final = "Correct the program, or raise the option of its channel and run `mqbridge reload`."


class Limit(msgspec.Struct, frozen=True):
    """How the list of problems describes a limit."""

    #: what happened; `{}` is the client, user or other subject that has reached the limit
    what: str
    command: str
    remedy: str
    #: the rejected unit, in the singular
    rejects: str = "message"
    severity: Literal["error", "warning"] = "warning"


#: Limits that are reported as a problem of kind `limit`, by option. `open_files` has its own problem.
DESCRIPTIONS: Final = {
    "waiting_bytes": Limit("messages wait for {}", LARGEST_BACKLOGS, _BACKLOGS, severity="error"),
    "waiting_total": Limit(
        "too many messages wait, most of them for {}", LARGEST_BACKLOGS, _BACKLOGS, severity="error"
    ),
    "MAXDEPTH": Limit(
        "the transmission queue is filled to 80 % of MAXDEPTH, most of it for {}",
        LARGEST_BACKLOGS,
        _BACKLOGS.replace(_RAISE, "or raise MAXDEPTH of the queue (ALTER QLOCAL)."),
        severity="error",
    ),
    "mapping_backlog": Limit(
        "publications are rejected, because too many wait for mapping {} (limits.waiting_bytes, waiting_total)",
        "mqbridge mapping list",
        "Find out what delays the mapping (`mqbridge mapping show NAME`) or who publishes too fast (`mqbridge top`), set"
        f" `publish_rate` of the channel, {_RAISE}",
        "publication",
        severity="error",
    ),
    "dead_letter_bytes": Limit("too many dead letters of {}", "mqbridge dlq list", _DEAD_LETTERS, severity="error"),
    "dead_letter_total": Limit(
        "too many dead letters, the last of {}", "mqbridge dlq list", _DEAD_LETTERS, severity="error"
    ),
    "max_keys": Limit(
        "mapping {} forgets keys of limit or changes (max_keys), and their next messages pass",
        "mqbridge mapping list",
        "Correct the template `per` if each message has a key of its own, or the client that sends so many keys, or raise"
        " max_keys of the mapping and run `mqbridge reload`.",
        "key",
    ),
    "retained_bytes": Limit(
        "too many retained publications of {}", "mqbridge topic show '#'", _RETAINED, severity="error"
    ),
    "retained_total": Limit(
        "too many retained publications, the last of {}", "mqbridge topic show '#'", _RETAINED, severity="error"
    ),
    "pending_bytes": Limit(
        "messages with QoS 0 are dropped, because {} reads too slowly",
        "mqbridge client list --sort waiting",
        f"Correct the program, which must read faster or subscribe with QoS 1, {_RAISE}",
    ),
    "request_bytes": Limit(
        "requests are forgotten before their answers arrive, the last of {}",
        "mqbridge dlq list",
        f"Answer requests sooner in the applications of the queue manager, {_RAISE}",
        "request",
    ),
    "unreleased": Limit(
        "{} was disconnected, because it does not release its publications with QoS 2",
        _LOG,
        "Correct the program: it must send PUBREL after PUBREC.",
        "publication",
    ),
    "sessions": Limit(
        "there are too many sessions, the last one rejected is of {}", LARGEST_BACKLOGS, _SESSIONS, "client"
    ),
    "sessions_per_user": Limit("user {} has too many sessions", LARGEST_BACKLOGS, _SESSIONS, "client"),
    "sessions_per_network": Limit("network {} has too many sessions", LARGEST_BACKLOGS, _SESSIONS, "client"),
    "subscribe_filters": Limit(
        "a SUBSCRIBE of {} has too many topic filters",
        _LOG,
        f"Send several SUBSCRIBE packets, {_RAISE}",
        "subscription",
    ),
    "subscriptions": Limit("{} has too many subscriptions", _LOG, _SUBSCRIPTIONS, "subscription"),
    "subscriptions_per_user": Limit("user {} has too many subscriptions", _LOG, _SUBSCRIPTIONS, "subscription"),
    "subscriptions_total": Limit(
        "there are too many subscriptions, the last one rejected is of {}", _LOG, _SUBSCRIPTIONS, "subscription"
    ),
    "max_clients": Limit("channel {} has as many clients as it accepts", _CHANNELS, _CONNECTIONS, "connection"),
    "max_clients_per_address": Limit("too many clients connect from {}", _CHANNELS, _CONNECTIONS, "connection"),
    "connect_rate": Limit("connections from {} follow each other too fast", _CHANNELS, _CONNECTIONS, "connection"),
    "max_connect_size": Limit("a CONNECT packet from {} is too large", _LOG, _PACKETS, "packet"),
    "max_packet_size": Limit("a packet of {} is too large", _LOG, _PACKETS, "packet"),
    "shard": Limit(
        "client {} connects to the wrong shard (queue_manager.shard)",
        _LOG,
        "Correct the rule of the load balancer, or give the client the address of its shard: `mqbridge group shard CLIENT`.",
        "connection",
    ),
    "application_requests": Limit(
        "application {} has too many requests in progress (requests of admin.applications)",
        "mqbridge client list --channel HTTP.APPLICATIONS",
        "Check whether the devices that it calls answer, send fewer requests at a time, or raise `requests` of the"
        " application and run `mqbridge reload`.",
        "request",
    ),
    "application_rate": Limit(
        "application {} sends requests too fast (publish_rate of admin.applications)",
        "mqbridge client list --channel HTTP.APPLICATIONS",
        "Correct the application, which must wait for the seconds in Retry-After, or raise `publish_rate` of the"
        " application and run `mqbridge reload`.",
        "request",
    ),
    "proxies": Limit(
        "{} is not a proxy of its channel",
        _LOG,
        "Add the address of the proxy to the option and run `mqbridge reload`, or block the address.",
        "connection",
    ),
}


#: The limits that the backlog of one client reaches one after the other, the last one first. Then its session ends.
STAGES: Final = ("dead_letter_total", "dead_letter_bytes", "MAXDEPTH", "waiting_total", "waiting_bytes")


def limit_problems(parts: Parts, hits: Mapping[str, Hit]) -> Iterator[Problem]:
    """Yield one problem for each limit that was reached in the last minute, and one for the sessions that end.

    The backlog of one client may reach several limits. Only the problem of the last one in STAGES names the client.
    """
    named_subjects = {session.client_id for session in parts.service.endings.sessions}
    for limit in (*STAGES, *(hits.keys() - set(STAGES))):
        hit = hits.get(limit)
        if hit is None or limit not in DESCRIPTIONS:
            continue
        description = DESCRIPTIONS[limit]
        subjects = [
            limit_name for limit_name in hit.subjects if limit not in STAGES or limit_name not in named_subjects
        ]
        if not subjects:
            continue
        if limit in STAGES:
            named_subjects.update(subjects)
        *earlier, latest = subjects
        who = f"{latest!r}{f' and {len(earlier):,} more' if earlier else ''}"
        beyond = f"{counted(hit.number, description.rejects)} beyond it"
        text = f"{description.what.format(who)}{_value(parts, limit, hit)}: {beyond}"
        yield Problem(
            description.severity, ProblemKind.LIMIT, limit, text, description.command, hit.since, description.remedy
        )
    yield from _of_ending_sessions(parts, hits)


def _of_ending_sessions(parts: Parts, hits: Mapping[str, Hit]) -> Iterator[Problem]:
    ending = parts.service.endings.sessions
    if ending:
        shares = parts.service.delivery.shares

        def waiting(session: Session) -> int:
            count = len(session.outbox.backlog) + len(session.outbox.in_flight.deliveries)
            return count + sum(len(share.waiting) for share in shares.of(session))

        session = max(ending, key=waiting)
        others = f" and {len(ending) - 1:,} more" if len(ending) > 1 else ""
        reached = [stage for stage in reversed(STAGES) if stage in hits and session.client_id in hits[stage].subjects]
        limits = " and ".join(
            f"limits.{stage} ({_shown(stage, getattr(parts.service.limits, stage))})"
            if stage != "MAXDEPTH"
            else "80 % of MAXDEPTH"
            for stage in reached
        )
        text = (
            f"the session of client {session.client_id!r}{others} ends, because its backlog exceeded "
            f"{limits or 'the limits'}: {counted(waiting(session), 'message')} to be received before that"
        )
        command = f"mqbridge client show {quote(session.client_id)}"
        remedy = (
            "Connect the client, which must acknowledge its messages, or remove them with its session: `mqbridge client purge"
            f" {quote(session.client_id)}`."
        )
        yield Problem("error", ProblemKind.LIMIT, "waiting_full", text, command, 0.0, remedy)


def _value(parts: Parts, limit: str, hit: Hit) -> str:
    """Return the value of a limit in words, or "" if it is not an option of the configuration."""
    if limit in LimitsConfig.model_fields:
        return f", limits.{limit} is {_shown(limit, getattr(parts.service.limits, limit))}"
    channel = next((candidate for candidate in parts.channels.configs if candidate.name == hit.channel), None)
    if limit not in ChannelConfig.model_fields or channel is None:
        return ""
    return f", {limit} of channel {channel.name} is {_shown(limit, getattr(channel, limit))}"


def _shown(limit: str, value: object) -> str:
    if (
        limit.endswith(("_bytes", "_total", "_size"))
        and limit != "subscriptions_total"
        and isinstance(value, int | str)
    ):
        size = in_bytes(value)
        return f"{size / MIB:,.1f} MiB" if size >= MIB // 10 else f"{size:,} bytes"
    return f"{value:,}" if isinstance(value, int) else ", ".join(value) if isinstance(value, list) else f"{value}"
