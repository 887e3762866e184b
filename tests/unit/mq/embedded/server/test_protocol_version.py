"""Programs of another release are rejected when they connect, because they encode requests differently."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from msgspec.inspect import StructType, type_info

from bridge.mq import remote as protocol
from bridge.mq.mqi import CommandResponse, Got, MQError, SubscriptionEntry
from bridge.mq.remote import RemoteConnection
from bridge.wire import cmqc
from tests.helpers.served_queue_manager import ServedQueueManager

#: The version of the protocol, and a digest of its structures.
VERSION = (9, "792cf0d702d1d692")


def test_changed_structures_have_a_new_version() -> None:
    """If this fails because structures have changed, increase PROTOCOL_VERSION, and update both values of VERSION."""
    types = (
        *get_args(protocol.Request),
        protocol.Reply,
        protocol.ConnectResult,
        Got,
        CommandResponse,
        SubscriptionEntry,
    )
    structures: dict[str, list[str]] = {}
    for struct in types:
        _describe(type_info(struct), structures)
    digest = hashlib.sha256(repr(sorted(structures.items())).encode()).hexdigest()[:16]
    assert (protocol.PROTOCOL_VERSION, digest) == VERSION


def _describe(kind: Any, structures: dict[str, list[str]]) -> str:
    """Return a description of a type, including the fields of its structures."""
    if not isinstance(kind, StructType):
        inner = (getattr(kind, name, ()) for name in ("item_type", "item_types", "key_type", "value_type", "types"))
        parts = [part for types in inner for part in (types if isinstance(types, tuple) else (types,))]
        return f"{type(kind).__name__}({', '.join(sorted(_describe(part, structures) for part in parts))})"
    name = kind.cls.__name__
    if name not in structures:
        fields = structures[name] = [f"{kind.tag} {kind.array_like}"]
        for field in kind.fields:
            default = field.default if isinstance(field.default, int | str | bytes | None) else ""
            fields.append(f"{field.encode_name} {_describe(field.type, structures)} {default!r}")
    return name


def test_a_program_of_another_release_cannot_connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ServedQueueManager(tmp_path) as served:
        frame = protocol.frame
        other = protocol.PROTOCOL_VERSION - 1

        def older(request: Any) -> bytearray:
            if isinstance(request, protocol.ConnectCall):
                request = msgspec.structs.replace(request, version=other)
            return frame(request)

        monkeypatch.setattr(protocol, "frame", older)
        with pytest.raises(MQError, match="the caller is another release") as error:
            RemoteConnection(served.directory)
        assert error.value.reason == cmqc.MQRC_ENVIRONMENT_ERROR
