"""Taking over a configuration: what the command line has said stays, and what was set for a while does not."""

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

#: A section as it runs, as the file had it and has it now, and what becomes of it.
LOGS = [
    ({"level": "warning"}, {"level": "info"}, {"level": "info"}, {"level": "warning"}),
    ({"level": "warning"}, {"level": "info"}, {"level": "debug"}, {"level": "debug"}),
    ({"level": "warning"}, {"level": "info"}, {"format": "json"}, {"level": "warning", "format": "json"}),
    ({"level": "info"}, {"level": "info"}, {"level": "error"}, {"level": "error"}),
    ({"level": "error"}, {"level": "error"}, {}, {"level": "info"}),
]


@pytest.mark.parametrize(("running", "before", "after", "expected"), LOGS)
def test_the_command_line_holds_where_the_file_is_as_it_was(
    running: dict[str, Any], before: dict[str, Any], after: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert with_command_line(LogConfig(**running), LogConfig(**before), LogConfig(**after)) == LogConfig(**expected)


class Applied:
    """Channels, mappings and a host that note what they are given."""

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
    """The levels that the log was set to."""
    applied_levels: list[str] = []
    monkeypatch.setattr(reload, "configure", lambda config: applied_levels.append(config.level))
    return applied_levels


async def test_a_level_that_was_set_meanwhile_ends_with_a_reload(levels: list[str]) -> None:
    """`mqbridge log level` holds until then: the file's level, or that of the command line, is set though nothing changed."""
    file = Configuration()
    applied = Applied(file.model_copy(update={"log": LogConfig(level="warning")}))
    assert await applied.change(file, Configuration()) == []
    assert levels == ["warning"]
    changed = Configuration(log=LogConfig(level="error"))
    assert await applied.change(file, changed) == ["log: error and above, as text"]
    assert await applied.change(changed, file) == ["log: info and above, as text"]
    assert levels == ["warning", "error", "info"]
    assert applied.parts.configuration.log == file.log


async def test_channels_of_commands_keep_how_their_clients_show_who_they_are(levels: list[str]) -> None:
    """A reload knows theirs from the queue manager; where the file has one of the same name, it is the file's."""
    file = Configuration(channels=[])
    applied = Applied(file)
    asking = {"address": "0.0.0.0", "authentication": [{"method": "certificate"}]}
    for name in ("D", "E"):
        applied.register.set(name, Definition({}, ChannelConfig(name=name, **asking)))
    await applied.change(file, Configuration(channels=[ChannelConfig(name="D")]))
    asks = {name: authentication.asks for name, authentication in applied.parts.service.authentication.items()}
    assert asks == {"D": False, "E": True}


async def test_a_refused_reload_leaves_the_history_in_its_file(levels: list[str], tmp_path: Path) -> None:
    """The audit log of the new file cannot be opened. Then the reload of the corrected file would move nothing back."""
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


async def test_what_is_refused_is_refused_before_anything_changes(levels: list[str]) -> None:
    file = Configuration()
    applied = Applied(file)
    wrong = ChannelConfig(name="A", authentication=[{"method": "plugin", "name": "none"}])
    after = Configuration(channels=[wrong], log=LogConfig(level="error"))
    with pytest.raises(ReloadRefused, match="authenticator 'none' is not installed"):
        await applied.change(file, after)
    assert (levels, applied.noted, applied.parts.configuration) == ([], ["checked"], file)
    assert applied.register.of_file == ()
