"""A configuration file as a whole: loading it, and its default."""

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from bridge.config.collection import Collection
from bridge.config.link import LinkConfig, LinkName
from bridge.config.mapping import AnyMapping, Name
from bridge.config.models import Configuration, clashes
from bridge.config.problems import ConfigurationError, Problem, expectation, place_of
from bridge.config.references import Clash
from bridge.config.source import Source

Examine = Callable[[Mapping[str, AnyMapping], Mapping[str, LinkConfig]], list[Clash]]
"""Looks at mappings and links, each right by itself, for what only their meaning shows (`bridge.mapping.rules.check`)."""


def load(path: Path, examine: Examine | None = None) -> Configuration:
    """Read the configuration in the YAML file `path`.

    What the file leaves out has its default, an empty file all of them. Relative paths written in the file count from
    its directory. Raises ConfigurationError with all problems of the file, and of the mapping files that it names, in
    the order of their lines. After a syntax error nothing further can be told of that file, so it is then its last.
    """
    collection = Collection(path)
    problems = list(collection.problems)
    configuration: Configuration | None = None
    context = {"directory": path.absolute().parent}
    try:
        configuration = Configuration.model_validate(collection.values, context=context)
    except ValidationError as error:
        problems += _problems(collection, error)
    if examine is not None:
        mappings, links = _right_ones(collection.values, context) if configuration is None else (
            configuration.mappings,
            configuration.links,
        )
        problems += [collection.problem(one.location, one.expected, one.found) for one in examine(mappings, links)]
    if problems or configuration is None:
        raise ConfigurationError(collection.in_order(problems))
    return configuration


#: The sections that say how to reach a running bridge and its queue manager.
_CONNECTION_SECTIONS = ("queue_manager", "control_socket", "transmission_queue")


def load_connection(path: Path) -> Configuration:
    """Read only the sections that say how to reach a running bridge and its queue manager; the rest has its defaults.

    Mistakes in other sections do not matter, not even of syntax. Raises ConfigurationError.
    """
    source = Source(path, _CONNECTION_SECTIONS)
    if source.problems:
        raise ConfigurationError(source.problems)
    try:
        return Configuration.model_validate(source.values, context={"directory": path.absolute().parent})
    except ValidationError as error:
        found = [place_of(detail, Configuration)[0] for detail in error.errors(include_url=False, include_input=False)]
        raise ConfigurationError([source.problem(one, "a value that is valid") for one in found]) from error


def _right_ones(data: Mapping[str, Any], context: Any) -> tuple[dict[str, AnyMapping], dict[str, LinkConfig]]:
    """Return the mappings and links in `data` that are right by themselves, whatever else is wrong."""

    def right(section: str, kind: TypeAdapter[Any]) -> dict[str, Any]:
        listed = data.get(section)
        found = {}
        for name, value in listed.items() if isinstance(listed, dict) else ():
            with contextlib.suppress(ValidationError):  # told already, as part of the whole
                found.update(kind.validate_python({name: value}, context=context))
        return found

    return right("mappings", TypeAdapter(dict[Name, AnyMapping])), right("links", TypeAdapter(dict[LinkName, LinkConfig]))


def _problems(collection: Collection, error: ValidationError) -> list[Problem]:
    problems = []
    for detail in error.errors(include_url=False, include_input=False):
        if detail["type"] != "clash":
            location, is_key = place_of(detail, Configuration)
            tell = collection.key_problem if is_key else collection.problem
            problems.append(tell(location, expectation(detail, Configuration)))
    # pydantic looks for clashes only when every value is right by itself; the writer of the file wants to know now.
    problems += [collection.problem(one.location, one.expected, one.found) for one in clashes(collection.values)]
    return problems
