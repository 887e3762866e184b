"""The overview, and the pages for channels, the log, the audit log and the configuration."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Final, Literal

import msgspec

from bridge.administration import answers, requests
from bridge.administration.answers import Problem
from bridge.administration.configuration import CheckedConfiguration, SettingPage
from bridge.administration.health import HealthReport, RateSeries
from bridge.charts import Chart, line_chart
from bridge.console.bridge_access import NotRunning
from bridge.console.console import Nothing, Routes, Visit
from bridge.console.forms import RequestProblem, link

routes = Routes()

#: The ranges of the charts in seconds.
RANGES: Final = {"10min": 600, "1h": 3_600, "6h": 21_600, "24h": 86_400}
#: Maximum time to wait for the depths of queues, in seconds.
QUEUES_TIMEOUT: Final = 1.0


#: The pages of other kinds of problems.
_PAGES: Final = {
    answers.ProblemKind.CHANNEL: ("channels", "/channels"),
    answers.ProblemKind.DESCRIPTORS: ("resources", "/health"),
    answers.ProblemKind.MAPPING: ("mappings", "/mappings"),
    answers.ProblemKind.SESSION: ("mappings", "/mappings"),
    answers.ProblemKind.LINK: ("links", "/links"),
    answers.ProblemKind.PIPELINE: ("pipelines", "/pipelines"),
    answers.ProblemKind.DEAD_LETTERS: ("dead letters", "/dead-letters"),
    answers.ProblemKind.ARCHIVE: ("the archive", "/archive"),
    answers.ProblemKind.ARCHIVE_FILES: ("the archive", "/archive"),
}


class OverviewQuery(msgspec.Struct):
    """The range of the charts."""

    range: Literal["10min", "1h", "6h", "24h"] = "10min"


class Overview(msgspec.Struct, kw_only=True):
    """The state of the bridge, its problems and its history."""

    status: answers.BridgeStatus
    channels: list[answers.ChannelStatus]
    #: the queues with messages for clients and dead letters. Empty if the queue manager does not answer
    queues: list[answers.QueueRow]
    #: None if the bridge stands by
    history: answers.History | None
    seconds: int

    def details(self, problem: Problem) -> tuple[str, str]:
        """Return the name and the address of the page that shows the details of a problem."""
        match problem.kind:
            case answers.ProblemKind.BACKLOG | answers.ProblemKind.MEMORY | answers.ProblemKind.DISK:
                return "clients with the largest backlogs", link("/clients", sort="waiting", descending="1")
            case answers.ProblemKind.CLIENT | answers.ProblemKind.REMOVALS:
                return "clients with messages in flight", link("/clients", sort="in_flight", descending="1")
            case answers.ProblemKind.PUBLISH_RATE:
                return "the client", link("/clients/show", id=problem.subject)
            case answers.ProblemKind.QUEUE:
                return "the queue", link("/queues/show", name=problem.subject)
            case answers.ProblemKind.REJECTIONS | answers.ProblemKind.PAYLOADS:
                return "its log lines", link("/log", search=problem.subject)
            case (
                answers.ProblemKind.COMMITS
                | answers.ProblemKind.RELOAD
                | answers.ProblemKind.TABLE
                | answers.ProblemKind.QUEUE_MANAGER
                | answers.ProblemKind.LOGIN
                | answers.ProblemKind.CLOCK
                | answers.ProblemKind.CLIENT_IDENTIFIER
                | answers.ProblemKind.CLIENT_HISTORY
            ):
                return "warnings and errors of the log", link("/log", level="warning")
            case answers.ProblemKind.LIMIT if problem.subject.startswith("dead_letter"):
                return "dead letters", "/dead-letters"
            case answers.ProblemKind.LIMIT if problem.subject.startswith("retained"):
                return "topics", "/topics"
            case answers.ProblemKind.LIMIT:
                return "clients with the largest backlogs", link("/clients", sort="waiting", descending="1")
            case answers.ProblemKind.CERTIFICATE:
                return "the certificates", "/health"
        return _PAGES[problem.kind]

    def queue(self, role: str) -> answers.QueueRow | None:
        """Return the queue with a role."""
        return next((queue for queue in self.queues if queue.role == role), None)

    def charts(self) -> list[Chart]:
        """Return the charts of the page."""
        if self.history is None:
            return []
        history, now = self.history, time.time()
        groups = {
            "Messages per second": [("published", history.published), ("delivered", history.delivered)],
            "Messages waiting for clients": [("waiting", history.backlog)],
            "Clients": [("connected", history.clients), ("sessions", history.sessions)],
            "Dead letters": [("dead letters", history.dead_letters)],
        }
        return [line_chart(title, history.times, series, now - self.seconds, now) for title, series in groups.items()]


@routes.page("/", "overview.html")
async def overview(visit: Visit, query: OverviewQuery) -> Overview:
    """Return the state of the bridge, its problems and its history."""
    seconds = RANGES[query.range]
    status = await visit.ask(requests.ShowStatus())
    page = Overview(status=status, channels=[], queues=[], history=None, seconds=seconds)
    try:
        page.channels = await visit.ask(requests.ListChannels())
        page.history = await visit.ask(requests.ShowHistory(seconds=seconds))
        async with asyncio.timeout(QUEUES_TIMEOUT):
            page.queues = await visit.ask(requests.ListQueues(roles=True))
    except (NotRunning, RequestProblem, TimeoutError):
        pass  # a standby bridge answers only the first request, and a queue manager may be unavailable
    return page


# Health --------------------------------------------------------------------------------------------------------------

#: Queues, mappings and links whose rates the page shows, of each kind.
SERIES: Final = 12
_RATE_NAMES: Final = {"queue": ("put", "got"), "mapping": ("taken", "moved"), "link": ("received", "sent")}


class HealthQuery(OverviewQuery):
    """The range of the rates, and which of them."""

    #: a part of the name of a queue, mapping or link
    search: Annotated[str, msgspec.Meta(max_length=200)] = ""


class HealthPage(HealthReport):
    """The health of a bridge, and the range of its rates."""

    seconds: int

    def charts(self, series: list[RateSeries]) -> list[Chart]:
        """Return the charts of the rates, or of the depth if the queue manager reports no rates of a queue.

        Idle objects have none.
        """
        now = time.time()
        charts = []
        for rates in series:
            if not any((*rates.incoming, *rates.outgoing, *rates.depth)):
                continue  # nothing has happened
            lines = list(zip(_RATE_NAMES[rates.kind], (rates.incoming, rates.outgoing), strict=True))
            if all(value is None for value in rates.incoming):
                lines = [("messages on the queue", rates.depth)]
            title = rates.name if len(rates.name) <= 60 else f"{rates.name[:59]}…"
            charts.append(line_chart(title, self.rates.times, lines, now - self.seconds, now))
        return charts


@routes.page("/health", "health.html")
async def health(visit: Visit, query: HealthQuery) -> HealthPage:
    """Return resources and their limits, certificates, connections, rates, and problems with the actions against them."""
    seconds = RANGES[query.range]
    report = await visit.ask(requests.ShowHealth(seconds=seconds, search=query.search, rows=SERIES))
    return HealthPage(**msgspec.structs.asdict(report), seconds=seconds)


routes.request("/reload", requests.Reload, "Reload the configuration file?")


# Search --------------------------------------------------------------------------------------------------------------


routes.show("/search", requests.Search, "search.html")


# Channels ------------------------------------------------------------------------------------------------------------


routes.show("/channels", requests.ListChannels, "channels.html")
routes.request("/channels/start", requests.StartChannel)
routes.request("/channels/stop", requests.StopChannel, "Stop this channel and disconnect its clients?")


# Log -----------------------------------------------------------------------------------------------------------------


class LogPage(msgspec.Struct, kw_only=True):
    """The last lines of the log."""

    #: the current log level
    level: str
    #: the newest first
    lines: list[answers.LogLine]


@routes.page("/log", "log.html")
async def log(visit: Visit, query: requests.ShowLog) -> LogPage:
    """List the last lines of the log."""
    lines = await visit.ask(query)
    status = await visit.ask(requests.ShowStatus())
    return LogPage(level=status.log_level, lines=lines)


routes.request("/log/level", requests.SetLogLevel)


# Audit log and configuration -----------------------------------------------------------------------------------------


routes.show("/audit", requests.ShowAuditLog, "audit.html")


#: Settings of a page.
SETTINGS: Final = 200


class ConfigurationQuery(msgspec.Struct):
    """Which settings to show."""

    section: Annotated[str, msgspec.Meta(max_length=100)] = ""
    #: those that differ from their defaults, or all
    show: Literal["changed", "all"] = "changed"
    #: a part of the path or the value
    search: Annotated[str, msgspec.Meta(max_length=200)] = ""
    page: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1


@routes.page("/configuration", "configuration.html")
async def configuration(visit: Visit, query: ConfigurationQuery) -> SettingPage:
    """Return one page of settings with their values, defaults and sources. Secrets are hidden."""
    return await visit.ask(
        requests.ListSettings(
            section=query.section,
            changed=query.show == "changed",
            search=query.search,
            skip=(query.page - 1) * SETTINGS,
            rows=SETTINGS,
        )
    )


routes.show("/configuration/effective", requests.ShowConfiguration, "effective.html")


class CopyForm(msgspec.Struct):
    """An edited copy of the configuration file."""

    text: str = ""


class CopyPage(msgspec.Struct, kw_only=True):
    """An edited copy of the configuration file, and the result of its check."""

    text: str
    outcome: CheckedConfiguration | None = None


@routes.page("/configuration/check", "check.html")
async def copy(visit: Visit, query: Nothing) -> CopyPage:
    """Return the effective configuration as the beginning of an edited copy. Secrets are hidden."""
    return CopyPage(text=await visit.ask(requests.ShowConfiguration()))


@routes.form("/configuration/check", "check.html")
async def check_copy(visit: Visit, form: CopyForm) -> CopyPage:
    """Check an edited copy of the configuration file. Nothing is saved or applied."""
    if not visit.principal.may_change:
        raise RequestProblem(403, f"{visit.principal.name} may not check a copy", ["This needs the right `change`."])
    return CopyPage(text=form.text, outcome=await visit.ask(requests.CheckConfiguration(text=form.text)))
