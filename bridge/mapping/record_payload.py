"""COBOL records as payloads of mappings: `payload: {type: record, copybook: FILE}`."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import msgspec

from bridge.config.mapping import TextPayload
from bridge.config.record import RecordConfig, RecordOptions
from bridge.mapping.json_document import ExactFloat, encoded, shown
from bridge.mapping.template import RecordLayoutError
from bridge.record.codec import RecordCodec, RecordError
from bridge.record.copybook import CopybookError
from bridge.record.field import CodecError
from bridge.record.layout import LayoutError
from bridge.telemetry.message import CCSID_UTF8, Unmappable
from bridge.wire import cmqc

_DECODER: Final = msgspec.json.Decoder(float_hook=Decimal)
#: Maximum number of cached codecs of a mapping. Messages determine the CCSID and Encoding.
_MAX_CODECS: Final = 16


class RecordPayload:
    """Converts records of one layout. Raises RecordLayoutError.

    `fraction` and `floating` convert the digits of numbers to values, as for RecordCodec.
    """

    def __init__(
        self,
        options: RecordOptions,
        fraction: Callable[[str], Any] = ExactFloat,
        floating: Callable[[str], Any] | None = None,
    ) -> None:
        try:
            self.layout = options.layout()
        except OSError as error:
            raise RecordLayoutError.at(("copybook",), f"{options.copybook} cannot be read: {error.strerror}") from error
        except CopybookError as error:
            raise RecordLayoutError.at(("copybook",), str(error)) from error
        except LayoutError as error:
            raise RecordLayoutError.at(error.option, error.sentence) from error
        self._options = options
        self._fraction, self._floating = fraction, floating
        self._codec = lru_cache(maxsize=_MAX_CODECS)(self._made)

    def check(self, ccsid: int, encoding: int) -> None:
        """Raise RecordLayoutError for a CCSID, an Encoding or options that the record cannot have."""
        try:
            self._codec(ccsid, encoding)
        except CodecError as error:
            raise RecordLayoutError.at(error.option, str(error)) from error

    def _made(self, ccsid: int, encoding: int) -> RecordCodec:
        return RecordCodec(self.layout, ccsid, encoding, self._options.codec_options, self._fraction, self._floating)

    def codec(self, ccsid: int, encoding: int) -> RecordCodec:
        """Return the codec for a CCSID and an Encoding. Raises Unmappable."""
        try:
            return self._codec(ccsid, encoding)
        except CodecError as error:
            reason = cmqc.MQRC_SOURCE_CCSID_ERROR if error.option == ("ccsid",) else cmqc.MQRC_FORMAT_ERROR
            raise Unmappable(reason, f"the record cannot be read: {error}") from error

    def document_of(self, record: bytes, ccsid: int, encoding: int) -> dict[str, Any]:
        """Return the document of a record. Raises Unmappable."""
        try:
            return self.codec(ccsid, encoding).decode(record)
        except RecordError as error:
            raise Unmappable(cmqc.MQRC_FORMAT_ERROR, f"the body is not a record of {self._title}: {error}") from error

    def json_of(self, record: bytes, ccsid: int, encoding: int) -> bytes:
        """Return a record as JSON. Raises Unmappable."""
        return encoded(self.document_of(record, ccsid, encoding))

    def record_of(self, payload: bytes, ccsid: int, encoding: int) -> bytes:
        """Return the record of a JSON payload. Raises Unmappable."""
        try:
            document = _DECODER.decode(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError, ArithmeticError) as error:
            why = f"the payload is not JSON ({error}): {shown(payload)}"
            raise Unmappable(cmqc.MQRC_FORMAT_ERROR, why) from error
        return self.encoded(document, ccsid, encoding)

    def encoded(self, document: Any, ccsid: int, encoding: int) -> bytes:
        """Return the record of a document. Raises Unmappable."""
        try:
            return self.codec(ccsid, encoding).encode(document)
        except RecordError as error:
            why = f"the payload does not fit the record of {self._title}: {error}"
            raise Unmappable(cmqc.MQRC_FORMAT_ERROR, why) from error

    @property
    def _title(self) -> str:
        assert self._options.copybook is not None
        return self._options.copybook.name


def checked_record(options: TextPayload | RecordConfig, *, writes: bool) -> RecordPayload:
    """Return the record of a mapping or pipeline. Raises RecordLayoutError, also for options that no record can have."""
    record = RecordPayload(options)
    if writes or options.ccsid is not None or options.encoding is not None:
        ccsid = options.ccsid or CCSID_UTF8
        record.check(ccsid, options.encoding_for(ccsid))
    return record
