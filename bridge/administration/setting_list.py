"""The settings of a configuration: their values, defaults and sources, and the differences between configurations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from bridge.administration.configuration import DEFAULT, Setting, SettingChange, section_of
from bridge.config.effective import options_of
from bridge.config.models import Configuration
from bridge.config.problems import Location, dotted
from bridge.config.values import Section

#: Sections that a running bridge can apply. Of pipelines, it only reports the condition.
LIVE: Final = frozenset(
    (
        "mappings",
        "links",
        "channels",
        "channel_authentication",
        "limits",
        "log",
        "audit_log",
        "client_history",
        "pipelines",
        "spark",
        "tables",
    )
)
#: Settings of the section `admin` that a running bridge can apply.
LIVE_OF_ADMIN: Final = frozenset(
    {"applications", "authentication", "administrators", "operators", "open_metrics", "payloads"}
)


def settings_of(configuration: Configuration) -> Iterator[Setting]:
    """Yield all settings of a configuration, in its order. A large configuration takes a second."""
    for location, value, default in _of_section(configuration, ()):
        position = configuration.places.get(location)
        # A value without a position of its own, such as one of a default list.
        source = position or (
            DEFAULT if value == default or not configuration.places else _nearest(configuration, location)
        )
        yield Setting(dotted(location), value, default, source)


def _nearest(configuration: Configuration, location: Location) -> str:
    """Return the place of the innermost value in the file that contains a location."""
    places = configuration.places
    lengths = range(len(location) - 1, 0, -1)
    return next((places[location[:length]] for length in lengths if location[:length] in places), DEFAULT)


def changes_between(before: Configuration, after: Configuration) -> list[SettingChange]:
    """Return the settings whose values differ, the removed ones last. A setting that is left out has its default."""
    former = {setting.key: setting for setting in settings_of(before)}
    changes = []
    for setting in settings_of(after):
        former_setting = former.pop(setting.key, None)
        if setting.differs if former_setting is None else setting.value != former_setting.value:
            changes.append(
                SettingChange(setting.key, None if former_setting is None else former_setting.value, setting.value)
            )
    return [
        *changes,
        *(SettingChange(setting.key, setting.value, None) for setting in former.values() if setting.differs),
    ]


def needs_restart(key: str) -> str:
    """Return the section of a setting if a running bridge does not apply a change of it, otherwise ""."""
    section, option = section_of(key), key.partition(".")[2].partition(".")[0].partition("[")[0]
    return "" if section in LIVE or (section == "admin" and option in LIVE_OF_ADMIN) else section


#: The default of an option without one.
_NO_DEFAULT: Final = object()


def _of_section(section: Section, location: Location) -> Iterator[tuple[Location, str, str | None]]:
    for option in options_of(section):
        default = _NO_DEFAULT if option.is_required else option.default
        yield from _of_value(option.value, option.plain, default, (*location, option.key))


def _of_value(
    value: Any, plain: Any, default: object, location: Location
) -> Iterator[tuple[Location, str, str | None]]:
    """Yield the settings of a value. `plain` is the value without secrets, and `default` that of the option."""
    match value:
        case Section():
            yield from _of_section(value, location)
        case Mapping() if value and isinstance(plain, dict):
            defaults = default if isinstance(default, dict) else {}
            for element, (key, plain_element) in zip(value.values(), plain.items(), strict=True):
                yield from _of_value(element, plain_element, defaults.get(key, _NO_DEFAULT), (*location, key))
        case list() if isinstance(plain, list) and any(
            isinstance(element, Section | Mapping | list) for element in value
        ):
            for index, (element, plain_element) in enumerate(zip(value, plain, strict=True)):
                yield from _of_value(element, plain_element, _NO_DEFAULT, (*location, index))
        case _:
            yield location, text_of(plain), None if default is _NO_DEFAULT else text_of(default)


def text_of(value: Any) -> str:
    """Return a plain value as YAML on one line."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case list():
            return f"[{', '.join(map(text_of, value))}]"
        case dict():
            return f"{{{', '.join(f'{key}: {text_of(element)}' for key, element in value.items())}}}"
    return str(value)
