"""What the bridge needs of its queue manager, as tables: objects, attributes, and the authorities to open them.

`bridge.mq.ibm.requirements_check` looks whether a queue manager has it all.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator

import msgspec

from bridge.config import Configuration, IbmQueueManagerConfig, ToMqMapping
from bridge.config.queues import DEFAULT_TRANSMISSION_QUEUE, MAPPING_STATE_QUEUE, STATE_QUEUE
from bridge.mapping.rules.template import Template
from bridge.mapping.telemetry.subscription import PUBLICATION_QUEUE
from bridge.mq.ibm.remover import REMOVALS
from bridge.mq.mqi import MQOD
from bridge.security.privileged import NOBODY
from bridge.wire import cmqc

#: A client identifier that no client has: what is sent to it shows whether clients can be reached.
PROBE_CLIENT = "mqbridge.check"
#: Handles of one connection: the cached topics of a publisher, or the subscriptions held by a subscriber, and a few more.
HANDLES = 256

_OUTPUT = cmqc.MQOO_OUTPUT | cmqc.MQOO_FAIL_IF_QUIESCING
_EXCLUSIVE = cmqc.MQOO_INPUT_EXCLUSIVE | cmqc.MQOO_FAIL_IF_QUIESCING
_SHARED = cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_FAIL_IF_QUIESCING
_BROWSE = cmqc.MQOO_BROWSE | cmqc.MQOO_FAIL_IF_QUIESCING


class MappingQueue(msgspec.Struct, frozen=True):
    """A queue of this queue manager that an enabled mapping names."""

    mapping: str
    name: str
    #: the mapping takes messages from it; else it puts them there
    taken_from: bool


class Requirements(msgspec.Struct, kw_only=True, frozen=True):
    """What one bridge needs, as its configuration has it."""

    transmission_queue: str = DEFAULT_TRANSMISSION_QUEUE
    #: where the bridge puts what it can deliver to nobody; blank where it leaves that to the queue manager
    dead_letter_queue: str = ""
    #: who the bridge is to the queue manager
    user: str = "mqbridge"
    #: who its clients act as; blank is the bridge itself
    identities: tuple[str, ...] = ()
    #: messages put and got in one unit of work
    uncommitted: int = 3 * REMOVALS
    #: a mapping is to move messages exactly once
    mapping_state: bool = False
    #: queues that mappings name, for a look at these too: a mapping whose queue is not there waits, and the bridge runs
    mapping_queues: tuple[MappingQueue, ...] = ()

    def queues(self, dead_letter_queue: str) -> list[QueueRequirement]:
        """Return the local queues that are needed, beside those of the command server.

        `dead_letter_queue` is the queue manager's own, blank for none.
        """
        transmission = MQOD(ObjectName=self.transmission_queue)
        found = [
            QueueRequirement(
                "transmission queue",
                self.transmission_queue,
                (_XMITQ, _PUT, _GET),
                (
                    Probe(transmission, _EXCLUSIVE, "GET"),
                    Probe(transmission, _BROWSE, "BROWSE"),
                    Probe(client_destination(), _OUTPUT, "PUT"),
                ),
            ),
            _state_queue("state queue", STATE_QUEUE),
        ]
        if self.mapping_state:
            found.append(_state_queue("state queue of exactly-once mappings", MAPPING_STATE_QUEUE))
        for name in dict.fromkeys(filter(None, (dead_letter_queue, self.dead_letter_queue))):
            put = Probe(MQOD(ObjectName=name), _OUTPUT, "PUT")
            found.append(QueueRequirement("dead-letter queue", name, (_NORMAL, _PUT), (put,)))
        return found


def client_destination(user: str = "") -> MQOD:
    """Return the destination that the publications of a client's subscription go to, opened as `user`."""
    return MQOD(ObjectName=PUBLICATION_QUEUE, ObjectQMgrName=PROBE_CLIENT, AlternateUserId=user)


def requirements_of(configuration: Configuration) -> Requirements:
    """Return the requirements of the bridge of a configuration."""
    settings = configuration.queue_manager
    mappings = configuration.mappings.values()
    exactly_once = any(one.enabled and one.guarantee == "exactly-once" for one in mappings)
    identities = tuple(channel.mcauser or "" for channel in configuration.channels if not channel.use_client_id)
    if not isinstance(settings, IbmQueueManagerConfig):
        # The embedded queue manager does not take a client that has no identity for the bridge.
        nobody = NOBODY if settings.authorities == "enforced" else ""
        return Requirements(
            transmission_queue=configuration.transmission_queue,
            identities=tuple(one or nobody for one in identities),
            user=_user(),
            mapping_state=exactly_once,
        )
    return Requirements(
        transmission_queue=configuration.transmission_queue,
        dead_letter_queue=settings.dead_letter_queue,
        user=settings.user or _user(),
        identities=identities,
        # Of each publication there may be a record, which takes the place of another. A mapping gets, puts, and saves one;
        # of requests there is what is kept, too.
        uncommitted=max(
            3 * max(REMOVALS, settings.batch.messages), *(3 * one.batch.messages + 2 for one in mappings), 0
        ),
        mapping_state=exactly_once,
    )


def mapping_queues_of(configuration: Configuration) -> Iterator[MappingQueue]:
    """Yield each queue whose name stands in a mapping; what a template makes shows with the message alone."""
    for name, mapping in configuration.mappings.items():
        if not mapping.enabled:
            continue
        if not isinstance(mapping, ToMqMapping):
            for queue in filter(None, (mapping.source.queue, mapping.source.requests_queue)):
                yield MappingQueue(name, queue, True)
            continue
        to = mapping.destination
        if to.requests_queue is not None:
            yield MappingQueue(name, to.requests_queue, False)
        if to.queue is not None and to.queue_manager is None and (literal := Template(to.queue).literal):
            yield MappingQueue(name, literal, False)


def _user() -> str:
    """Return the user of this process, by its number where it has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


class Missing(msgspec.Struct, frozen=True):
    """One thing that is missing. Its text is a sentence: what, and the MQSC that mends it."""

    what: str
    remedy: str = ""
    #: False: the bridge can do without, for clients that need it not
    needed: bool = True

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}" if self.remedy else self.what


class Attribute(msgspec.Struct, frozen=True):
    """An attribute of a queue that has to have one value, as numbers and as MQSC has them."""

    selector: int
    value: int
    mqsc: str


class Probe(msgspec.Struct, frozen=True):
    """An MQOPEN that the bridge does, and the authority that the queue manager asks for it."""

    od: MQOD
    options: int
    authority: str


class QueueRequirement(msgspec.Struct, frozen=True):
    """A local queue that the bridge needs."""

    purpose: str
    name: str
    attributes: tuple[Attribute, ...]
    probes: tuple[Probe, ...]

    @property
    def definition(self) -> str:
        """Return the MQSC that defines the queue."""
        words = [one.mqsc for one in self.attributes if not one.mqsc.endswith("(ENABLED)")]
        return " ".join([f"DEFINE QLOCAL('{self.name}')", *words, "MAXDEPTH(10000000) MAXMSGL(104857600)"])


def _state_queue(purpose: str, name: str) -> QueueRequirement:
    od = MQOD(ObjectName=name)
    return QueueRequirement(
        purpose,
        name,
        (_NORMAL, _SHARE, _PUT, _GET),
        (Probe(od, _SHARED, "GET"), Probe(od, _BROWSE, "BROWSE"), Probe(od, _OUTPUT, "PUT")),
    )


_XMITQ = Attribute(cmqc.MQIA_USAGE, cmqc.MQUS_TRANSMISSION, "USAGE(XMITQ)")
_NORMAL = Attribute(cmqc.MQIA_USAGE, cmqc.MQUS_NORMAL, "USAGE(NORMAL)")
_SHARE = Attribute(cmqc.MQIA_SHAREABILITY, cmqc.MQQA_SHAREABLE, "SHARE")
_PUT = Attribute(cmqc.MQIA_INHIBIT_PUT, cmqc.MQQA_PUT_ALLOWED, "PUT(ENABLED)")
_GET = Attribute(cmqc.MQIA_INHIBIT_GET, cmqc.MQQA_GET_ALLOWED, "GET(ENABLED)")
