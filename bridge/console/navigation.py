"""The pages of the console: the groups of the navigation, and the pages of the objects that a search finds."""

from __future__ import annotations

from typing import Final, NamedTuple

from bridge.administration.search import SearchKind, SearchMatch
from bridge.console.forms import anchor, link


class Page(NamedTuple):
    """A page of the navigation."""

    path: str
    title: str

    def contains(self, path: str) -> bool:
        """Return whether a path is that of this page, or of a page below it."""
        return path == self.path or path.startswith(f"{self.path}/")


class PageGroup(NamedTuple):
    """A group of pages."""

    title: str
    pages: tuple[Page, ...]

    def page(self, path: str) -> Page | None:
        """Return the page of this group that contains a path, or None."""
        return next((page for page in self.pages if page.contains(path)), None)


GROUPS: Final = (
    PageGroup(
        "Messages",
        (
            Page("/topics", "Topics"),
            Page("/queues", "Queues"),
            Page("/objects", "Objects"),
            Page("/dead-letters", "Dead letters"),
        ),
    ),
    PageGroup(
        "Clients",
        (
            Page("/clients", "Clients"),
            Page("/subscriptions", "Subscriptions"),
            Page("/channels", "Channels"),
            Page("/users", "Users"),
        ),
    ),
    PageGroup("Flows", (Page("/mappings", "Mappings"), Page("/links", "Links"), Page("/pipelines", "Pipelines"))),
    PageGroup(
        "System",
        (
            Page("/health", "Health"),
            Page("/archive", "Archive"),
            Page("/log", "Log"),
            Page("/audit", "Audit"),
            Page("/configuration", "Configuration"),
        ),
    ),
)

#: Kind of a match -> its page, and the field of the page's query that contains the name. Without one, the page shows all
#: objects of the kind, and the fragment of its address is the anchor of the name.
_MATCH_PAGES: Final[dict[SearchKind, tuple[str, str]]] = {
    "problem": ("/", ""),
    "client": ("/clients/show", "id"),
    "topic": ("/topics/show", "filter"),
    "queue": ("/queues/show", "name"),
    "mapping": ("/mappings/try", "name"),
    "link": ("/links", ""),
    "pipeline": ("/pipelines", ""),
    "channel": ("/channels", ""),
    "setting": ("/configuration", ""),
}


def match_page(match: SearchMatch) -> str:
    """Return the address of the page of an object that a search has found."""
    path, field = _MATCH_PAGES[match.kind]
    if match.kind == "setting":
        return link(path, show="all", search=match.name)
    return link(path, **{field: match.name}) if field else f"{path}#{anchor(match.name)}"
