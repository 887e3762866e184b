"""A configuration file with the mapping and pipeline files that it names: loaded, merged and checked."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from bridge.config.link import LinkConfig, LinkName
from bridge.config.mapping import AnyMapping, MessageAttributes, Name, PublicationAttributes
from bridge.config.models import Configuration, clashes
from bridge.config.pipeline import PipelineConfig, PipelineName
from bridge.config.problems import (
    Clash,
    ConfigurationError,
    Location,
    Problem,
    expectation,
    key_expectation,
    place_of,
    quoted,
)
from bridge.config.source import Source
from bridge.config.tls import ClientTlsConfig
from bridge.config.values import Section, without_empty
from bridge.shipped import shipped_file

_NAME = "mappings/standard.yaml"


class StandardProfile(Section):
    """The attributes of mappings that write none, in both directions."""

    to_mq: MessageAttributes = Field(default_factory=MessageAttributes)
    """Seed 004, tables 1 to 3: the MQ message of a publication."""
    to_mqtt: PublicationAttributes = Field(default_factory=PublicationAttributes)
    """Seed 004, tables 4 and 5: the publication of an MQ message."""


def standard_profile() -> StandardProfile:
    """Return the standard profile, as the shipped `mappings/standard.yaml` states it.

    The models have the same profile by default. Raises ConfigurationError if that file cannot be read or states something
    else, FileNotFoundError if it is missing.
    """
    source = Source(shipped_file(_NAME))
    stated = source.values.get("standard")
    if not is_standard(stated):
        raise ConfigurationError([*source.problems, source.problem(("standard",), NOT_HERE)])
    return StandardProfile.model_validate(stated)


NOT_HERE = "the standard profile as it is shipped, because it cannot be set (write attributes: in a mapping instead)"


def is_standard(stated: object) -> bool:
    """Return whether `stated`, plain values of a file, is the standard profile."""
    try:
        return StandardProfile.model_validate(stated) == StandardProfile()
    except ValidationError:
        return False


SUFFIXES = (".yaml", ".yml")
"""What the names of mapping files in a directory end with."""

_LINK_FILES = [name for name in LinkConfig.model_fields if name.endswith("_file")]
_TLS_FILES = [name for name in ClientTlsConfig.model_fields if name.endswith("_file")]


#: Sections that may be a list of files; what each holds, in words.
_LISTED = {"mappings": "mapping", "pipelines": "pipeline"}


class MappingFile(Section):
    """A mapping or pipeline file: what it may hold. Its values are checked as part of the configuration."""

    mappings: dict[Name, AnyMapping] = Field(default_factory=dict)
    """Mappings by name, as in the configuration file. (A list of further files has no place here.)"""
    links: dict[LinkName, LinkConfig] = Field(default_factory=dict)
    """Links by name, as in the configuration file."""
    pipelines: dict[PipelineName, PipelineConfig] = Field(default_factory=dict)
    """Pipelines by name, as in the configuration file."""
    standard: StandardProfile | None = None
    """The standard profile, stated as `mappings/standard.yaml` does: it cannot be set."""

    @model_validator(mode="before")
    @classmethod
    def _empty_sections(cls, data: Any) -> Any:
        return without_empty(data, "mappings", "links", "pipelines")


class Collection:
    """The values of a configuration file, with what stands in the files that it names under `mappings` and `pipelines`.

    Raises ConfigurationError if a file cannot be read, or if it is no YAML.
    """

    def __init__(self, file: Path) -> None:
        self._main = Source(file)
        self.values: dict[str, Any] = dict(self._main.values)
        """The whole configuration; mappings and links of all files by name."""
        self.problems: list[Problem] = list(self._main.problems)
        """Mistakes that the values do not show: duplicate names, paths that lead nowhere."""
        self._files = [self._main.file]
        # Where a mapping or link (the first two steps of a location) stands: the file, and its way in there.
        self._places: dict[Location, tuple[Source, Location]] = {}
        lists = {section: listed for section in _LISTED if isinstance(listed := self._main.values.get(section), list)}
        if lists:
            for section in ("links", *_LISTED):
                self._places |= {(section, name): (self._main, (section, name)) for name in self._names(section)}
        for section, word in _LISTED.items():
            listed = self._main.values.get(section)
            if listed is not None and not isinstance(listed, dict):
                self.values[section] = {}
                if section not in lists:
                    self._tell(self._main, (section,), f"{section} by name, or a list of paths of {word} files")
        for section, items in lists.items():
            for index, item in enumerate(items):
                self._add_item((section, index), item)

    def problem(self, location: Location, expected: str, found: str | None = None) -> Problem:
        """Return the problem that `expected` should stand at `location` of the values, with its place in its file."""
        source, written = self._written(location)
        return source.problem(written, expected, found)

    def key_problem(self, location: Location, expected: str) -> Problem:
        """Return the problem that the key at `location` of the values, rather than its value, is wrong."""
        source, written = self._written(location)
        return source.key_problem(written, expected)

    def text_problem(self, location: Location, position: int, expected: str, found: str) -> Problem:
        """Return the problem that stands at a character of the text at `location`.

        `position` counts from 0, in the text as it is when read.
        """
        source, written = self._written(location)
        return source.text_problem(written, position, expected, found)

    def in_order(self, problems: list[Problem]) -> list[Problem]:
        """Return `problems` file by file, as the files were read, and those of each file in the order of its lines."""
        order = {file: index for index, file in enumerate(self._files)}
        return sorted(problems, key=lambda one: (order.get(one.file, len(order)), one.line or 0, one.column or 0))

    def _written(self, location: Location) -> tuple[Source, Location]:
        source, way = self._places.get(location[:2], (self._main, location[:2]))
        return source, (*way, *location[2:])

    def _add_item(self, location: Location, item: Any) -> None:
        """Add an item of the list under `mappings` or `pipelines`: a path, or mappings or pipelines by name."""
        section = str(location[0])
        word = _LISTED[section]
        if isinstance(item, dict):
            self._merge(section, item, self._main, location)
        elif not isinstance(item, str) or not item or not item.isprintable():
            self._tell(self._main, location, f"the path of a {word} file or a directory of such, or {section} by name")
        else:
            path = self._main.file.parent / item
            for file in _files_at(path):
                self._add_file(location, file)
            if not path.exists():
                found = f"{quoted(item)}, which does not exist"
                self._tell(self._main, location, f"the path of a {word} file, or of a directory of such", found)

    def _add_file(self, location: Location, file: Path) -> None:
        if any(file.samefile(known) for known in self._files):
            word = _LISTED[str(location[0])]
            self._tell(self._main, location, f"each {word} file once, and not this file itself", f"{file} again")
            return
        self._files.append(file)
        try:
            source = Source(file)
        except ConfigurationError as error:
            self.problems += error.problems
            return
        self.problems += source.problems
        for key, value in source.values.items():
            if key not in MappingFile.model_fields:
                self.problems.append(source.key_problem((key,), key_expectation(key, MappingFile)))
            elif key == "standard":
                if not is_standard(value):
                    self._tell(source, (key,), NOT_HERE)
            elif isinstance(value, dict):
                self._merge(key, value, source, (key,))
            elif isinstance(value, list) and key in _LISTED:
                self._tell(source, (key,), f"{key} by name, because a {_LISTED[key]} file names no further files")
            elif value is not None:
                self._tell(source, (key,), "a mapping (lines of 'key: value')")

    def _merge(self, section: str, added: dict[str, Any], source: Source, location: Location) -> None:
        """Add what stands by name at `location` of a file to `section` of the whole."""
        whole = self.values.get(section)
        if whole is not None and not isinstance(whole, dict):
            return  # that is wrong itself, and the first to mend
        merged = dict(whole or {})
        for name, value in added.items():
            place: Location = (section, name)
            if place in self._places:
                other, way = self._places[place]
                again = f"{quoted(name)} again, which stands at {other.key_place(way)}"
                expected = f"a name that no other {section.removesuffix('s')} has"
                self.problems.append(source.key_problem((*location, name), expected, again))
                continue
            self._places[place] = (source, (*location, name))
            merged[name] = _FROM_DIRECTORY.get(section, _as_it_is)(value, source.file.absolute().parent)
        self.values[section] = merged

    def _names(self, section: str) -> list[str]:
        listed = self._main.values.get(section)
        return list(listed) if isinstance(listed, dict) else []

    def _tell(self, source: Source, location: Location, expected: str, found: str | None = None) -> None:
        self.problems.append(source.problem(location, expected, found))


def _files_at(path: Path) -> Iterator[Path]:
    """Yield the mapping or pipeline files that a path names: the file itself, or those of a directory in order of names."""
    if not path.is_dir():
        yield from [path] if path.exists() else []
        return
    for file in sorted(path.iterdir()):
        if file.suffix in SUFFIXES and file.is_file() and not file.name.startswith("."):
            yield file


def _as_it_is(value: Any, directory: Path) -> Any:
    return value


def _pipeline_from(pipeline: Any, directory: Path) -> Any:
    """Return a pipeline with its paths counted from `directory`, that of the file that the pipeline stands in."""
    if not isinstance(pipeline, Mapping):
        return pipeline
    based = _based(pipeline, ["checkpoint"], directory)
    for key in ("from", "to", "late", "dead_letters"):
        if isinstance(section := pipeline.get(key), Mapping):
            based[key] = _based(section, ["archive"], directory)
    if isinstance(tables := pipeline.get("tables"), Mapping):
        based["tables"] = _based(tables, list(tables), directory)
    return based


def _link_from(link: Any, directory: Path) -> Any:
    """Return a link with its paths counted from `directory`, that of the mapping file that the link stands in."""
    if not isinstance(link, Mapping):
        return link
    based = _based(link, _LINK_FILES, directory)
    if isinstance(tls := link.get("tls"), Mapping):
        based["tls"] = _based(tls, _TLS_FILES, directory)
    return based


def _based(section: Mapping[str, Any], keys: list[str], directory: Path) -> dict[str, Any]:
    # What is no path, but a URI, is refused where it is read.
    paths = {key: one for key in keys if isinstance(one := section.get(key), str) and one and "://" not in one}
    return {**section, **{key: str(directory / path) for key, path in paths.items()}}


_FROM_DIRECTORY = {"links": _link_from, "pipelines": _pipeline_from}


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
