"""Requests of an administrator, each to the function that answers it; what changes something is in the audit log."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from types import MappingProxyType
from typing import Any, Final

import msgspec

from bridge.administration import requests
from bridge.administration.requests import Answer, AnyRequest, Request
from bridge.security import audit_log
from bridge.service.administration.channels import list_channels, start_channel, stop_channel
from bridge.service.administration.clients import disconnect_client, list_clients, purge_clients, show_client
from bridge.service.administration.counters import show_counters
from bridge.service.administration.links import list_links, test_link
from bridge.service.administration.log import set_log_level
from bridge.service.administration.mappings import list_mappings, pause_mapping, resume_mapping
from bridge.service.administration.parts import Done, Parts, Refused
from bridge.service.administration.status import reload, show_status
from bridge.service.administration.topics import list_topics, show_topic

log = logging.getLogger(__name__)

#: Answers a request: by a value that becomes the answer's `result`, by Done, or by the whole answer. Raises Refused.
Handler = Callable[[Parts, Any], Awaitable[object]]

HANDLERS: Final = MappingProxyType[type[Request], Handler](
    {
        requests.Reload: reload,
        requests.ShowStatus: show_status,
        requests.ListChannels: list_channels,
        requests.StartChannel: start_channel,
        requests.StopChannel: stop_channel,
        requests.ListClients: list_clients,
        requests.ShowClient: show_client,
        requests.DisconnectClient: disconnect_client,
        requests.PurgeClients: purge_clients,
        requests.ShowCounters: show_counters,
        requests.SetLogLevel: set_log_level,
        requests.ListLinks: list_links,
        requests.TestLink: test_link,
        requests.ListTopics: list_topics,
        requests.ShowTopic: show_topic,
        requests.ListMappings: list_mappings,
        requests.PauseMapping: pause_mapping,
        requests.ResumeMapping: resume_mapping,
    }
)


class Administration:
    """Answers requests about one running bridge, on its event loop."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    async def answer(self, request: AnyRequest, user: str) -> Answer:
        """Do what a request asks for; `user` is who asks, for the audit log."""
        try:
            found = await HANDLERS[type(request)](self.parts, request)
        except Refused as error:
            answer = Answer(ok=False, lines=[str(error)])
        except Exception:
            # A fault of the administration is no fault of the messages.
            log.exception("MQB9001E a request of %s fails: %s", user, request)
            answer = Answer(ok=False, lines=["the bridge cannot answer that; its log says why"])
        else:
            if isinstance(found, Answer):
                answer = found
            elif isinstance(found, Done):
                answer = Answer(lines=found.lines)
            else:
                answer = Answer(result=msgspec.Raw(msgspec.json.encode(found)))
        if request.CHANGES:
            facts = msgspec.to_builtins(request)
            audit_log.note("administration", user=user, ok=answer.ok, lines=answer.lines[:20], **facts)
        return answer
