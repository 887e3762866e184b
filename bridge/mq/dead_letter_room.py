"""The space on the dead-letter queue for messages of this bridge, by owner (`limits.dead_letter_bytes`, `dead_letter_total`).

An owner is a client, a shared subscription, a mapping or a pipeline. Messages of other applications do not count. Only
administrators remove messages from the queue, so the bridge browses it at the start and when its depth has decreased.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection
from typing import Final, Literal

from bridge.config.models import LimitsConfig
from bridge.mq.dead_letter import HEADER_LENGTH, characters, header_of, put_application, read_letter
from bridge.mq.memory import in_bytes
from bridge.mq.mqi import MQOD, Connection, GetOptions, MQError, get_or_none
from bridge.mq.worker import raise_if_lost
from bridge.telemetry.identity import ClientNames
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

#: Overhead of a dead letter in bytes, including its MQDLH and a usual RFH2, in addition to its data: 1,580 to 1,680 on the
#: embedded queue manager, in pure Python, measured with 20,000 messages of 100 bytes.
OVERHEAD: Final = 1600
#: The length of an RFH2 in bytes that OVERHEAD includes.
_USUAL_RFH2: Final = 512
#: Bytes to browse for the headers of a message.
_HEADERS: Final = 4096
_BROWSE: Final = cmqc.MQOO_BROWSE | cmqc.MQOO_FAIL_IF_QUIESCING
_NEXT: Final = (
    cmqc.MQGMO_BROWSE_NEXT
    | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
    | cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2
    | cmqc.MQGMO_FAIL_IF_QUIESCING
)

#: The end of the field StrucLength of an MQRFH2.
_RFH2_LENGTH_END: Final = 12

#: Kinds of owners. A shared subscription counts as a client.
CLIENT: Final = "client"
MAPPING: Final = "mapping"
PIPELINE: Final = "pipeline"

#: Kind and name. The name of a mapping or pipeline is cut to the length of PutApplName.
Owner = tuple[str, str]


def owner_of_mapping(name: str) -> Owner:
    """Return the owner of the dead letters of a mapping."""
    return MAPPING, put_application(name)


def application_of_pipeline(name: str) -> str:
    """Return the MQDLH.PutApplName of a pipeline. No mapping has a name with a blank."""
    return put_application(f"{PIPELINE} {name}")


def owner_of_pipeline(name: str) -> Owner:
    """Return the owner of the dead letters of a pipeline."""
    return PIPELINE, application_of_pipeline(name)


log = logging.getLogger(__name__)


class DeadLetterRoom:
    """Counts the bytes on the dead-letter queue by owner. Methods may be called on any thread."""

    def __init__(self, limits: LimitsConfig) -> None:
        #: called, on any thread, with the option that an owner has reached
        self.on_full: Callable[[str, Owner], None] = lambda _limit, _owner: None
        self._lock = threading.Lock()
        self._used: Counter[Owner] = Counter()
        self._total = 0
        #: bytes added by owner during a scan of the queue, or None
        self._during: Counter[Owner] | None = None
        #: whether the queue must be browsed
        self.stale = True
        #: whether the log contains the reason why the queue cannot be browsed
        self._unreadable = False
        self.use_limits(limits)

    def use_limits(self, limits: LimitsConfig) -> None:
        """Apply limits to the messages that follow."""
        self.owner_bytes = limits.dead_letter_bytes
        self.total_bytes = in_bytes(limits.dead_letter_total)

    @property
    def total(self) -> int:
        """The bytes of all owners."""
        return self._total

    def used_by(self, owner: Owner) -> int:
        """Return the bytes of an owner."""
        return self._used[owner]

    def take(self, owner: Owner, length: int) -> bool:
        """Count a message of an owner, with `length` bytes of data. Return False if a limit would be exceeded."""
        size = length + OVERHEAD
        with self._lock:
            if self._used[owner] + size > self.owner_bytes:
                full = "dead_letter_bytes"
            elif self._total + size > self.total_bytes:
                full = "dead_letter_total"
            else:
                self._add(owner, size)
                return True
        self.on_full(full, owner)
        return False

    def reached(self, owner: Owner) -> str:
        """Return the option whose value an owner has reached, or ""."""
        with self._lock:
            if self._used[owner] >= self.owner_bytes:
                return "dead_letter_bytes"
            return "dead_letter_total" if self._total >= self.total_bytes else ""

    def add(self, owner: Owner, messages: int, length: int) -> None:
        """Count messages of an owner, with `length` bytes of data together."""
        with self._lock:
            self._add(owner, length + messages * OVERHEAD)

    def give_back(self, owner: Owner, length: int) -> None:
        """Stop counting a message that did not reach the queue."""
        with self._lock:
            self._add(owner, -length - OVERHEAD)

    def _add(self, owner: Owner, size: int) -> None:
        self._used[owner] += size
        self._total += size
        if self._during is not None:
            self._during[owner] += size

    def try_scan(self, scan: Callable[[], None]) -> bool:
        """Count the messages on the queue with `scan`. Return whether it succeeded. Log only the first of several failures.

        Raises MQError if the connection is lost.
        """
        try:
            scan()
        except MQError as error:
            raise_if_lost(error)
            if not self._unreadable:
                log.warning(
                    "MQB9104W messages on the dead-letter queue are not counted, so its limits apply to later ones only: %s",
                    error,
                )
            self._unreadable = True
            return False
        self._unreadable = False
        return True

    def scan(
        self, connection: Connection, queue: str, application: str, mappings: Collection[str], names: ClientNames
    ) -> None:
        """Count the messages on the queue again. Raises MQError.

        `application` is the name with which this bridge puts messages.
        """
        with self._lock:
            self._during = Counter()
        used: Counter[Owner] = Counter()
        applications = {put_application(name) for name in mappings}
        complete = False
        try:
            handle = connection.open(MQOD(ObjectName=queue), _BROWSE)
            try:
                options = GetOptions(Options=_NEXT, MaxLength=_HEADERS)
                while (message := get_or_none(connection, handle, options)) is not None:
                    owner = _owner_of(message.md, message.data, application, applications, names)
                    if owner is not None:
                        header = header_of(message.md, message.data)
                        assert header is not None
                        length = payload_length(
                            header.Format,
                            header.Encoding,
                            message.data[HEADER_LENGTH:],
                            message.DataLength - HEADER_LENGTH,
                        )
                        used[owner] += length + OVERHEAD
                complete = True
            finally:
                connection.close(handle)
        finally:
            with self._lock:
                during, self._during = self._during, None
                if complete:
                    # The scan may have counted some of the messages that were added meanwhile, so it must be repeated.
                    self.stale = bool(during)
                    self._used = used + during
                    self._total = self._used.total()


def _owner_of(md: MQMD, data: bytes, application: str, mappings: Collection[str], names: ClientNames) -> Owner | None:
    """Return the owner of a message on the dead-letter queue, or None if this bridge has not put it there."""
    header = header_of(md, data)
    if header is None:
        return None
    put_by, manager = characters(header.PutApplName), characters(header.DestQMgrName)
    # DestQMgrName is blank only for a client's rejected publication.
    if put_by in mappings and put_by != application and manager:
        return MAPPING, put_by
    if put_by.startswith(f"{PIPELINE} ") and manager:
        return PIPELINE, put_by
    if characters(md.PutApplName) != application:
        return None
    letter = read_letter(md, data, len(data))
    if letter.topic and letter.destination and letter.topic.startswith(letter.destination):
        return CLIENT, letter.client_id  # a rejected publication
    return CLIENT, names.client_of(manager)


def payload_length(format_: bytes, encoding: int, data: bytes, length: int) -> int:
    """Return the length of the data of a message, without an RFH2 of usual length.

    `data` may be truncated to the headers.
    """
    if format_.rstrip(b" \0") != cmqc.MQFMT_RF_HEADER_2.rstrip() or len(data) < _RFH2_LENGTH_END:
        return length
    order: Literal["little", "big"] = (
        "little" if encoding & cmqc.MQENC_INTEGER_MASK == cmqc.MQENC_INTEGER_REVERSED else "big"
    )
    header = int.from_bytes(data[_RFH2_LENGTH_END - 4 : _RFH2_LENGTH_END], order)
    return max(length - min(header, _USUAL_RFH2), 0)
