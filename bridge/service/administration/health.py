"""The health of a running bridge: its resources, certificates, connections, rates and problems."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Final

import msgspec

from bridge.administration.answers import Problem, ProblemKind
from bridge.administration.health import (
    CertificateStatus,
    Gauge,
    HealthReport,
    ProblemGroup,
    RatePage,
    RemediableProblem,
    Remedy,
)
from bridge.administration.mapping_status import RunnerState
from bridge.administration.requests import ShowHealth
from bridge.mq.memory import in_bytes
from bridge.security.tls import certificates_in_use
from bridge.service.administration.parts import Parts
from bridge.service.process_problems import open_files

#: Maximum number of series of each kind, and of connections and certificates, in one answer.
MAX_SERIES: Final = 100
MAX_ROWS: Final = 1_000
_NO_RATES: Final = "the bridge keeps rates only if it has an admin port (admin.port)"


async def show_health(parts: Parts, request: ShowHealth) -> HealthReport:
    """Return the health of the bridge. Only the rates depend on the request."""
    problems = await parts.problems()
    certificates = await asyncio.to_thread(_certificates, parts)
    if parts.rates is None:
        rates = RatePage(times=[], series=[], left_out=0, problem=_NO_RATES)
    else:
        search = request.search.casefold()
        rows = min(max(request.rows, 0), MAX_SERIES)
        rates = parts.rates.rates(request.seconds, rows, time.time(), lambda name: search in name.casefold())
    return HealthReport(
        problems=_groups(parts, problems),
        gauges=list(_gauges(parts)),
        certificates=certificates[:MAX_ROWS],
        connections=parts.host.connections()[:MAX_ROWS],
        rates=rates,
    )


def _groups(parts: Parts, problems: list[Problem]) -> list[ProblemGroup]:
    """Return the problems by cause, in their order."""
    groups: dict[ProblemKind, list[RemediableProblem]] = {}
    for problem in problems:
        remediable = RemediableProblem(**msgspec.structs.asdict(problem), remedies=list(_remedies(parts, problem)))
        groups.setdefault(problem.kind, []).append(remediable)
    return [ProblemGroup(cause, members) for cause, members in groups.items()]


def _remedies(parts: Parts, problem: Problem) -> Iterator[Remedy]:
    match problem.kind:
        case ProblemKind.MAPPING:
            if any(
                status.name == problem.subject and status.state is RunnerState.PAUSED
                for status in parts.mappings.statuses()
            ):
                yield Remedy("mapping resume", problem.subject)
        case ProblemKind.LINK:
            yield Remedy("link test", problem.subject)
            yield Remedy("link connect", problem.subject)
        case ProblemKind.CHANNEL:
            if problem.subject and parts.channels.get(problem.subject) is None:
                yield Remedy("channel start", problem.subject)
        case ProblemKind.RELOAD | ProblemKind.LOGIN:
            yield Remedy("reload")


def _gauges(parts: Parts) -> Iterator[Gauge]:
    used, limit = open_files()
    yield Gauge("open files", used, limit, "", "LimitNOFILE of the systemd unit")
    memory = parts.host.memory
    yield Gauge("memory", memory.used, memory.watermark, "bytes", "limits.memory_watermark")
    status, limits = parts.queue_manager_watch.latest, parts.service.limits
    if status is not None and status.disk_free is not None and status.disk_size is not None:
        yield Gauge("disk", status.disk_size - status.disk_free, status.disk_size, "bytes", "size of the file system")
    quotas = parts.service.quotas
    yield Gauge("sessions", quotas.sessions, limits.sessions, "", "limits.sessions")
    yield Gauge("subscriptions", quotas.subscriptions, limits.subscriptions_total, "", "limits.subscriptions_total")
    backlogs, room = parts.service.delivery.backlog_limits, parts.host.dead_letter_room
    yield Gauge("waiting messages", backlogs.bytes, backlogs.total_bytes, "bytes", "limits.waiting_total")
    yield Gauge("dead letters", room.total, room.total_bytes, "bytes", "limits.dead_letter_total")
    if status is not None and status.retained_bytes is not None:
        total = in_bytes(limits.retained_total)
        yield Gauge("retained publications", status.retained_bytes, total, "bytes", "limits.retained_total")
    queue = parts.configuration.transmission_queue
    for queue_status in () if status is None else status.queues:
        if queue_status.name == queue:
            yield Gauge("transmission queue", queue_status.depth, queue_status.max_depth, "", f"MAXDEPTH of {queue}")


def _certificates(parts: Parts) -> list[CertificateStatus]:
    """Return the certificates of the bridge and of the brokers. Reads files."""
    certificates = [
        CertificateStatus(certificate.owner, str(certificate.file), certificate.expiry)
        for certificate in certificates_in_use(parts.configuration)
    ]
    brokers = {link.name: link.certificate_expiry for _, link in parts.mappings.links()}
    certificates += [
        CertificateStatus(f"broker of link {name}", "", expiry)
        for name, expiry in brokers.items()
        if expiry is not None
    ]
    return sorted(certificates, key=lambda certificate: certificate.expires_at)
