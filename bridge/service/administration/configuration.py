"""The configuration of a running bridge: its settings, and the check of an edited copy of its file."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Final

from bridge.administration.configuration import (
    DEFAULT,
    CheckedConfiguration,
    CheckedMistake,
    SectionSummary,
    SettingPage,
)
from bridge.administration.protocol import Invalid, Refused
from bridge.administration.requests import MAX_ROWS, CheckConfiguration, ListSettings, ShowConfiguration
from bridge.administration.setting_list import changes_between, needs_restart, settings_of
from bridge.config.effective import effective_yaml
from bridge.config.models import Configuration
from bridge.service.administration.parts import Parts

#: A line of a file. Other sources are options of the command line and environment variables.
_PLACE: Final = re.compile(r".*:\d+")


async def show_configuration(parts: Parts, request: ShowConfiguration) -> str:
    # A large configuration takes a second.
    return await asyncio.to_thread(effective_yaml, parts.configuration)


async def list_settings(parts: Parts, request: ListSettings) -> SettingPage:
    """Return one page of settings, in the order of the file's sections. Raises Invalid for an unknown section."""
    configuration = parts.configuration
    sections = [field.alias or name for name, field in type(configuration).model_fields.items()]
    if request.section and request.section not in sections:
        raise Invalid(f"there is no section {request.section}; the sections are {', '.join(sections)}")
    return await asyncio.to_thread(_page, configuration, request)


def _page(configuration: Configuration, request: ListSettings) -> SettingPage:
    settings = list(settings_of(configuration))
    every, changed = (
        Counter(setting.section for setting in settings),
        Counter(setting.section for setting in settings if setting.differs),
    )
    search = request.search.casefold()
    matching = [
        setting
        for setting in settings
        if request.section in ("", setting.section)
        and (setting.differs or not request.changed)
        and (search in setting.key.casefold() or search in setting.value.casefold())
    ]
    return SettingPage(
        file=str(configuration.file or ""),
        sections=[SectionSummary(name, number, changed[name]) for name, number in every.items()],
        settings=matching[request.skip : request.skip + min(request.rows, MAX_ROWS)],
        found=len(matching),
    )


async def check_configuration(parts: Parts, request: CheckConfiguration) -> CheckedConfiguration:
    """Check an edited copy of the configuration file. One check runs at a time. Raises Refused."""
    if parts.checking_copy:
        raise Refused("another copy is being checked; try again after that")
    parts.checking_copy = True
    # Cancelling the request does not end the thread.
    check = asyncio.get_running_loop().run_in_executor(None, _checked, parts.configuration, request.text)
    check.add_done_callback(lambda _: setattr(parts, "checking_copy", False))
    return await asyncio.shield(check)


def _checked(running: Configuration, text: str) -> CheckedConfiguration:
    # Imported on demand: a bridge without a configuration file does not need them.
    from bridge.config.advice import advice
    from bridge.config.document import MAX_BYTES, load, new_files
    from bridge.config.problems import ConfigurationError
    from bridge.mapping.check import loops_of, problems, warnings_of

    file = running.file
    if file is None:
        raise Refused(
            "the bridge was started without a configuration file, so it cannot resolve relative paths in a copy"
        )
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise Invalid(f"a configuration file has at most {MAX_BYTES:,} bytes")
    try:
        if mistakes := new_files(file, text):
            raise ConfigurationError(mistakes)
        copy = load(file, problems, text)
    except ConfigurationError as error:
        mistakes = error.problems
        return CheckedConfiguration(
            ok=False,
            mistakes=[
                CheckedMistake(
                    str(mistake),
                    str(mistake.file),
                    mistake.line,
                    mistake.column,
                    mistake.key,
                    mistake.expected,
                    mistake.found,
                )
                for mistake in mistakes
            ],
        )
    keys = {
        setting.key
        for setting in settings_of(running)
        if setting.source != DEFAULT and not _PLACE.fullmatch(setting.source)
    }
    changes = [change for change in changes_between(running, copy) if change.key not in keys]
    return CheckedConfiguration(
        ok=True,
        mistakes=[],
        notes=[*(f"loop: {loop}" for loop in loops_of(copy)), *warnings_of(copy), *advice(copy)],
        changes=changes,
        restart=list(dict.fromkeys(section for change in changes if (section := needs_restart(change.key)))),
    )
