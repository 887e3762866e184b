"""The control socket: its permissions, and its answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bridge.administration.control_server import REQUEST_LENGTH, ControlServer
from bridge.administration.control_socket import NoBridge, ask
from bridge.administration.protocol import Answer, Request
from bridge.administration.requests import Reload, ShowTopic


async def test_only_its_user_and_group_can_use_the_control_socket(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"

    async def handler(request: Request[Any], user: str) -> Answer:
        return Answer(ok=isinstance(request, Reload | ShowTopic), lines=["reloaded"])

    path.write_text("left by a bridge that was killed")
    server = ControlServer(path, handler)
    await server.start()
    assert path.stat().st_mode & 0o777 == 0o660
    answer = await asyncio.to_thread(ask, path, Reload())
    assert (answer.ok, answer.lines) == (True, ["reloaded"])
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b'{"command": "format"}\n')
    assert b'"ok":false' in await reader.readline()
    writer.close()
    # A topic can have this length with any characters. A longer request is reported.
    assert (await asyncio.to_thread(ask, path, ShowTopic(topic_filter="\x01" * 10_240))).ok
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b"x" * (REQUEST_LENGTH + 1) + b"\n")
    assert b"a request has at most 131072 bytes" in await reader.readline()
    writer.close()
    path.rename(path.with_name("ours"))
    other = ControlServer(path, handler)
    await other.start()
    await server.stop()
    assert (await asyncio.to_thread(ask, path, Reload())).ok, "the socket of the bridge that has taken over"
    await other.stop()
    assert not path.exists()
    with pytest.raises(NoBridge, match="no bridge answers"):
        await asyncio.to_thread(ask, path, Reload())
