"""Which thread runs a mapping."""

from __future__ import annotations

from bridge.config import LinkConfig
from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.service.mappings.exact_outlet import ExactOutletRunner
from bridge.service.mappings.link_intake import LinkIntakeRunner
from bridge.service.mappings.link_outlet import LinkOutletRunner
from bridge.service.mappings.runner import Runner
from bridge.service.mappings.site import Site
from bridge.service.mappings.status import Status
from bridge.service.mappings.transfer import TransferRunner


def runner_of(
    name: str, config: ToMqMapping | ToMqttMapping, link: LinkConfig | None, site: Site, status: Status
) -> Runner:
    """Make the thread of a mapping, not yet started; `link` is None for the bridge's own clients."""
    if link is None:
        return TransferRunner(name, config, site, status)
    if isinstance(config, ToMqMapping):
        return LinkIntakeRunner(name, config, link, site, status)
    if config.guarantee == "exactly-once":
        return ExactOutletRunner(name, config, link, site, status)
    return LinkOutletRunner(name, config, link, site, status)
