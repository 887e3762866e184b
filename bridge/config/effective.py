"""The effective configuration: the settings of a file and the defaults of all others, as YAML without secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic_core import to_jsonable_python

from bridge.config.models import Configuration
from bridge.config.secrets import HIDDEN, is_template, names_secret, without_secret_parameters, without_secret_parts
from bridge.config.values import Section

#: Mappings whose keys are chosen by the user, and whose values are never secret.
_OPEN: Final = ("schema", "tables")


def effective(value: Any) -> Any:
    """Return a section, or a list or mapping of sections, as plain data with its defaults and without secrets.

    Options without a value are omitted unless the file sets them to null. So, apart from hidden values, the result has the
    same meaning in a file.
    """
    return _plain(value)


def effective_yaml(value: Any) -> str:
    """Return a section, or a list or mapping of sections, as YAML, as `effective` does."""
    # Imported on demand: bridges without a configuration file do not need it.
    import yaml

    return str(yaml.safe_dump(effective(value), sort_keys=False, allow_unicode=True))


def described(configuration: Configuration) -> list[str]:
    """Return the lines of the effective YAML of the sections that a file contains."""
    section_names = configuration.model_fields_set
    sections = {
        name: getattr(configuration, name) for name in type(configuration).model_fields if name in section_names
    }
    return effective_yaml(sections).splitlines() if sections else []


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        return {option.key: option.plain for option in options_of(value)}
    if isinstance(value, Mapping):
        return {to_jsonable_python(key): _chosen(element, str(key)) for key, element in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(element) for element in value]
    plain = to_jsonable_python(value)
    return without_secret_parts(plain) if isinstance(plain, str) else plain


def _chosen(value: Any, key: str) -> Any:
    """Return the value of a key that the user has chosen, with its secrets hidden."""
    if isinstance(value, Section):
        return _plain(value)  # the key is the name of a link, mapping or pipeline
    if names_secret(key) and not (value in (None, "", [], {}) or isinstance(value, bool | Path) or is_template(value)):
        return dict.fromkeys(value, HIDDEN) if isinstance(value, Mapping) else HIDDEN
    if isinstance(value, Mapping):
        return {name: _chosen(element, str(name)) for name, element in value.items()}
    if isinstance(value, list | tuple):
        return [_chosen(element, key) for element in value]
    plain = _plain(value)
    return without_secret_parameters(plain) if isinstance(plain, str) else plain


class EffectiveOption(NamedTuple):
    """An option of a section."""

    key: str
    value: Any
    #: the value as plain data, in which secrets are hidden
    plain: Any
    is_required: bool
    #: the default as plain data; None if the option is required
    default: Any


def options_of(section: Section) -> Iterator[EffectiveOption]:
    """Yield the options of a section that have an effect, or that the file sets."""
    for name, option in type(section).model_fields.items():
        value = getattr(section, name)
        key = option.alias or name
        plain = _plain_option(key, value)
        has_effect = plain not in (None, [], {}) and name not in section.irrelevant
        if has_effect or name in section.model_fields_set:
            required = option.is_required()
            default = None if required else _plain_option(key, option.get_default(call_default_factory=True))
            yield EffectiveOption(key, value, plain, required, default)


def _plain_option(key: str, value: Any) -> Any:
    return to_jsonable_python(value) if key in _OPEN else _plain(value)
