"""`limits.will_grace`: a stopping bridge records the wills of the clients that it disconnects."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bridge.mqtt.packets import Publish, Will
from bridge.service.lifecycle import Bridge
from tests.helpers.raw_client import RawClient
from tests.unit.service.test_problems import configuration, running


def port_of(bridge: Bridge) -> int:
    channel = bridge.parts.channels.get("A")
    assert channel is not None and channel.endpoint is not None
    return channel.endpoint[1]


async def wills_after_a_restart(tmp_path: Path, grace: str, *, returns: bool, starts: int = 1) -> list[bytes]:
    """Return the wills that a subscriber receives after the bridge was stopped with a connected client and restarted."""

    def before(port: int) -> RawClient:
        with RawClient.connected(port, "watch", clean=False) as watch:
            watch.subscribe(("will/#", 1))
            watch.disconnect()
        return RawClient.connected(port, "sensor", will=Will("will/sensor", b"lost", 1))

    def after(port: int) -> list[bytes]:
        if returns:
            sensor = RawClient.connected(port, "sensor")
        with RawClient.connected(port, "watch", clean=False) as watch:
            wills = []
            try:
                while True:
                    wills.append(watch.expect(Publish, timeout=1.5).payload)
            except TimeoutError:
                pass
            watch.disconnect()
        if returns:
            sensor.disconnect()
        return [bytes(will) for will in wills]

    settings = configuration(tmp_path, limits={"will_grace": grace})
    async with running(settings) as bridge:
        client = await asyncio.to_thread(before, port_of(bridge))
    client.socket.close()
    for _ in range(starts - 1):
        async with running(settings):
            pass
    async with running(settings) as bridge:
        return await asyncio.to_thread(after, port_of(bridge))


@pytest.mark.parametrize(
    ("grace", "returns", "starts", "wills"),
    [
        pytest.param("0 s", True, 1, [b"lost"], id="without a grace period, the will is published at the stop"),
        pytest.param("60 s", True, 1, [], id="the client returns in time"),
        pytest.param("60 s", False, 1, [], id="the client may still return"),
        pytest.param("0.2 s", False, 1, [b"lost"], id="the client does not return"),
        pytest.param("60 s", True, 3, [], id="the client returns after several restarts"),
    ],
)
async def test_wills_of_clients_that_do_not_return_are_published_after_a_restart(
    tmp_path: Path, grace: str, returns: bool, starts: int, wills: list[bytes]
) -> None:
    assert await wills_after_a_restart(tmp_path, grace, returns=returns, starts=starts) == wills


async def test_a_will_is_published_once_although_its_record_survives_a_stop(tmp_path: Path) -> None:
    assert await wills_after_a_restart(tmp_path, "0.2 s", returns=False) == [b"lost"]
    async with running(configuration(tmp_path, limits={"will_grace": "0.2 s"})) as bridge:
        await asyncio.sleep(0.5)
        assert bridge.parts.service.wills._recorded == set()
