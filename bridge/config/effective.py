"""The effective configuration: what a file specifies and the defaults of the rest, as YAML without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic_core import to_jsonable_python

from bridge.config.models import Configuration
from bridge.config.values import Section, without_password

_SECRET: Final = re.compile(r"password|passwd|secret|token|credential|passphrase|headers", re.IGNORECASE)
#: Keys that only name where a secret is.
_PLACE: Final = re.compile(r"(_file|_variable|_cache|_claim|_endpoint|_url)$")
HIDDEN: Final = "(hidden)"


def effective(value: Any) -> Any:
    """Return a section, or a list or mapping of sections, as plain data with its defaults and without secrets.

    Options without a value are left out unless the file sets them to null. So, apart from hidden values, the result means the
    same in a file.
    """
    return without_secrets(_plain(value))


def effective_yaml(value: Any) -> str:
    """Return a section, or a list or mapping of sections, as YAML, as `effective` does."""
    # Imported on demand: bridges without a configuration file do not need it.
    import yaml

    return str(yaml.safe_dump(effective(value), sort_keys=False, allow_unicode=True))


def described(configuration: Configuration) -> list[str]:
    """Return the lines of the effective YAML of the sections that a file contains."""
    named = configuration.model_fields_set
    sections = {name: getattr(configuration, name) for name in type(configuration).model_fields if name in named}
    return effective_yaml(sections).splitlines() if sections else []


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        return dict(_options(value))
    if isinstance(value, Mapping):
        return {to_jsonable_python(key): _plain(element) for key, element in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(element) for element in value]
    return to_jsonable_python(value)


def _options(section: Section) -> Iterator[tuple[str, Any]]:
    for name, option in type(section).model_fields.items():
        plain = _plain(getattr(section, name))
        has_effect = plain not in (None, [], {}) and name not in section.irrelevant
        if has_effect or name in section.model_fields_set:
            yield option.alias or name, plain


def without_secrets(value: Any, key: str = "") -> Any:
    """Return a part of a configuration with its secrets hidden. `key` is the key of the value."""
    if (
        _SECRET.search(key)
        and not _PLACE.search(key)
        and value not in (None, "", [], {})
        and not isinstance(value, bool)
    ):
        return dict.fromkeys(value, HIDDEN) if isinstance(value, dict) else HIDDEN
    if isinstance(value, dict):
        return {name: without_secrets(element, str(name)) for name, element in value.items()}
    if isinstance(value, list):
        return [without_secrets(element, key) for element in value]
    return without_password(value) if isinstance(value, str) and "://" in value else value
