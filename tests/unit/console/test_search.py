"""The navigation of the console, and the kinds of objects that a search finds."""

from __future__ import annotations

from typing import get_args

from bridge.administration.search import SearchKind
from bridge.cli.administration import SearchKinds
from bridge.console.app import ENDPOINTS
from bridge.console.navigation import GROUPS
from bridge.service.administration.search import SOURCES


def test_the_navigation_leads_to_each_page_without_a_query() -> None:
    listed = {page.path for group in GROUPS for page in group.pages}
    # Other pages show one object, or need a query.
    pages = {endpoint.path for endpoint in ENDPOINTS if endpoint.template and endpoint.path.count("/") == 1}
    assert pages - listed == {"/", "/search"}
    assert listed <= pages


def test_all_lists_of_kinds_are_equal() -> None:
    assert tuple(SOURCES) == tuple(SearchKinds) == get_args(SearchKind)
