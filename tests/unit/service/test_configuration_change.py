"""Applying a configuration: options of the command line stay, and temporary settings do not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.config.channel import ChannelConfig
from bridge.config.models import Configuration
from bridge.config.operations import LogConfig
from bridge.mq.telemetry_channels import Definition, TelemetryChannelRegister
from bridge.security.authenticators import Authenticators
from bridge.service import reload
from bridge.service.client_history import ClientEventHistory
from bridge.service.payload_schemas import PayloadSchemas
from bridge.service.reload import ConfigurationChange, ReloadRefused, with_command_line
from bridge.service.table_files import TableFiles

#: A section as it runs, its old and new value in the file, and the result.
LOGS = [
    ({"level": "warning"}, {"level": "info"}, {"level": "info"}, {"level": "warning"}),
    ({"level": "warning"}, {"level": "info"}, {"level": "debug"}, {"level": "debug"}),
    ({"level": "warning"}, {"level": "info"}, {"format": "json"}, {"level": "warning", "format": "json"}),
    ({"level": "info"}, {"level": "info"}, {"level": "error"}, {"level": "error"}),
    ({"level": "error"}, {"level": "error"}, {}, {"level": "info"}),
]


@pytest.mark.parametrize(("running", "before", "after", "expected"), LOGS)
def test_command_line_options_apply_while_the_file_is_unchanged(
    running: dict[str, Any], before: dict[str, Any], after: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert with_command_line(LogConfig(**running), LogConfig(**before), LogConfig(**after)) == LogConfig(**expected)


class Applied:
    """Channels, mappings and a host that record the applied settings."""

    def __init__(self, configuration: Configuration) -> None:
        self.register = TelemetryChannelRegister()
        self.noted: list[str] = []
        host = SimpleNamespace(
            telemetry_channels=self.register,
            channel_authentication=SimpleNamespace(use_file=lambda *_: self.noted.append("records")),
            use_limits=lambda _: self.noted.append("limits"),
            read_credentials=lambda: self.noted.append("credentials"),
        )
        journal = SimpleNamespace(trace_to_log=lambda *_: None, history=None)
        service = SimpleNamespace(
            authentication={}, limits=configuration.limits, journal=journal, payload_schemas=PayloadSchemas()
        )
        self.parts: Any = SimpleNamespace(
            configuration=configuration,
            host=host,
            service=service,
            channels=self,
            mappings=self,
            table_files=TableFiles({}),
        )
        self.change = ConfigurationChange(self.parts, Authenticators())

    def __iter__(self) -> Any:
        return iter(())

    def check(self, channels: Any) -> None:
        self.noted.append("checked")

    async def apply(self, *_: Any) -> list[str]:
        return []


@pytest.fixture
def levels(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The log levels that were set."""
    applied_levels: list[str] = []
    monkeypatch.setattr(reload, "configure", lambda config: applied_levels.append(config.level))
    return applied_levels


async def test_a_temporary_log_level_ends_with_a_reload(levels: list[str]) -> None:
    """`mqbridge log level` applies until then. The level of the file or the command line is set even if it has not
    changed.
    """
    file = Configuration()
    applied = Applied(file.model_copy(update={"log": LogConfig(level="warning")}))
    assert await applied.change(file, Configuration()) == []
    assert levels == ["warning"]
    changed = Configuration(log=LogConfig(level="error"))
    assert await applied.change(file, changed) == ["log: error and above, as text"]
    assert await applied.change(changed, file) == ["log: info and above, as text"]
    assert levels == ["warning", "error", "info"]
    assert applied.parts.configuration.log == file.log


async def test_channels_of_commands_keep_their_authentication(levels: list[str]) -> None:
    """A reload gets it from the queue manager. A channel of the file with the same name overrides it."""
    file = Configuration(channels=[])
    applied = Applied(file)
    asking = {"address": "0.0.0.0", "authentication": [{"method": "certificate"}]}
    for name in ("D", "E"):
        applied.register.set(name, Definition({}, ChannelConfig(name=name, **asking)))
    await applied.change(file, Configuration(channels=[ChannelConfig(name="D")]))
    asks = {name: authentication.asks for name, authentication in applied.parts.service.authentication.items()}
    assert asks == {"D": False, "E": True}


async def test_a_rejected_reload_does_not_move_the_history(levels: list[str], tmp_path: Path) -> None:
    """The audit log of the new file cannot be opened. The reload of the corrected file then has nothing to move back."""
    file = Configuration(client_history={"file": tmp_path / "h.db"})
    applied = Applied(file)
    history = applied.parts.service.journal.history = ClientEventHistory(file.client_history, tmp_path / "h.db")
    after = Configuration(
        client_history={"file": tmp_path / "moved.db"}, audit_log={"file": tmp_path / "nosuch" / "audit.json"}
    )
    for _ in range(2):
        with pytest.raises(ReloadRefused, match="nosuch"):
            await applied.change(file, after)
    assert await applied.change(file, file) == []
    history.add("pump", "connected", "x")
    await history.stop()
    again = ClientEventHistory(file.client_history, tmp_path / "h.db")
    assert [event.text for event in await again.events_of("pump", 10)] == ["x"]
    await again.stop()


async def test_invalid_settings_are_rejected_before_anything_changes(levels: list[str]) -> None:
    file = Configuration()
    applied = Applied(file)
    wrong = ChannelConfig(name="A", authentication=[{"method": "plugin", "name": "none"}])
    after = Configuration(channels=[wrong], log=LogConfig(level="error"))
    with pytest.raises(ReloadRefused, match="authenticator 'none' is not installed"):
        await applied.change(file, after)
    assert (levels, applied.noted, applied.parts.configuration) == ([], ["checked"], file)
    assert applied.register.of_file == ()
