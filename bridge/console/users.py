"""Users of password files, and what users may publish."""

from __future__ import annotations

import msgspec

from bridge.administration import requests
from bridge.administration.answers import AccessDecision, ChannelStatus
from bridge.console.console import Routes, Visit

routes = Routes()

routes.show("/users", requests.ListUsers, "users.html")
routes.request("/users/password", requests.SetPassword)
routes.request("/users/delete", requests.DeleteUser, "Delete this user? Clients that are connected stay connected.")


class AccessQuery(msgspec.Struct):
    """A user, a channel and a topic. Without a topic, only the form is shown."""

    user: str = ""
    channel: str = ""
    topic: str = ""
    client_id: str = ""
    address: str = ""


class AccessPage(msgspec.Struct, kw_only=True):
    """Whether a user may publish to a topic."""

    channels: list[ChannelStatus]
    decision: AccessDecision | None = None


@routes.page("/users/access", "access.html")
async def access(visit: Visit, query: AccessQuery) -> AccessPage:
    """Return whether a user may publish to a topic via a channel, and the rules that decide."""
    page = AccessPage(channels=await visit.ask(requests.ListChannels()))
    if query.topic:
        page.decision = await visit.ask(
            requests.ExplainAccess(
                user=query.user,
                channel=query.channel,
                topic=query.topic,
                client_id=query.client_id,
                address=query.address,
            )
        )
    return page
