"""The configuration of a running bridge, setting by setting, and the result of a check of an edited copy."""

from __future__ import annotations

from typing import Final

import msgspec

#: The source of a setting that neither the file nor the command line contains.
DEFAULT: Final = "default"


class Setting(msgspec.Struct, frozen=True):
    """An option of the configuration, with the value that is in effect."""

    #: the path of the option, such as `channels[0].port`
    key: str
    #: the value as YAML, in which secrets are hidden
    value: str
    #: the default, or None if the option has none
    default: str | None
    #: the place in the file, such as `bridge.yaml:7`, the option of the command line, or `default`
    source: str

    @property
    def section(self) -> str:
        """The section of the file."""
        return section_of(self.key)

    @property
    def differs(self) -> bool:
        """Whether the value differs from the default."""
        return self.value != self.default


class SettingChange(msgspec.Struct, frozen=True):
    """A setting whose value differs between two configurations. A value is None if the configuration does not have it."""

    key: str
    before: str | None
    after: str | None


def section_of(key: str) -> str:
    """Return the section of the file that contains a setting."""
    return key.partition(".")[0].partition("[")[0]


class SectionSummary(msgspec.Struct, frozen=True):
    """A section of the configuration."""

    name: str
    settings: int
    #: settings whose values differ from their defaults, or that have none
    changed: int


class SettingPage(msgspec.Struct, kw_only=True):
    """One page of settings, and all sections."""

    #: the configuration file, or blank without one
    file: str
    sections: list[SectionSummary]
    settings: list[Setting]
    #: number of settings that match
    found: int


class CheckedMistake(msgspec.Struct, frozen=True):
    """A mistake in a configuration file, as `mqbridge check` prints it."""

    text: str
    file: str
    #: None if the mistake concerns the whole file
    line: int | None
    column: int | None
    key: str
    expected: str
    found: str


class CheckedConfiguration(msgspec.Struct, kw_only=True):
    """What the check of an edited copy found. Nothing is saved or applied."""

    ok: bool
    mistakes: list[CheckedMistake]
    #: settings that may not do what one expects, and loops of mappings
    notes: list[str] = []
    #: settings that differ from those of the running bridge
    changes: list[SettingChange] = []
    #: sections whose changes a reload does not apply
    restart: list[str] = []
