"""The configuration file and the mapping and pipeline files that it names: loading, merging and validation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field, TypeAdapter, ValidationError, model_validator
from pydantic_core import ErrorDetails

from bridge.config.authentication import ChannelAuthenticationConfig
from bridge.config.channel import ChannelConfig
from bridge.config.link import LinkConfig, LinkName
from bridge.config.mapping import AnyMapping, MessageAttributes, Name, PublicationAttributes
from bridge.config.models import Configuration, LimitsConfig, clashes
from bridge.config.operations import AdminConfig
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
from bridge.config.queue_manager import QueueManagerConfig
from bridge.config.source import Source
from bridge.config.tls import ClientTlsConfig
from bridge.config.values import ObjectName, Section, without_empty

Examine = Callable[[Mapping[str, AnyMapping], Mapping[str, LinkConfig]], list[Clash]]
"""Semantic check of valid mappings and links (`bridge.mapping.rules.check`)."""

SUFFIXES = (".yaml", ".yml")
"""Suffixes of mapping files in a directory."""

_LINK_FILES = [name for name in LinkConfig.model_fields if name.endswith("_file")]
_TLS_FILES = [name for name in ClientTlsConfig.model_fields if name.endswith("_file")]


#: Sections that may be a list of files -> singular noun for error messages.
_LISTED = {"mappings": "mapping", "pipelines": "pipeline"}
_NOT_HERE = "the standard profile as it is shipped, because it cannot be set (write attributes: in a mapping instead)"


def load(path: Path, examine: Examine | None = None) -> Configuration:
    """Load the configuration from the YAML file `path`.

    Missing keys have their defaults. An empty file is valid. Relative paths in the file are relative to its directory. Raises
    ConfigurationError with all problems of the file and of the mapping files that it names, in line order. A syntax error
    hides later problems of the same file.
    """
    collection = Collection(path)
    problems = list(collection.problems)
    context = {"directory": path.absolute().parent}
    configuration: Configuration | None = None
    try:
        configuration = Configuration.model_validate(collection.values, context=context)
        mappings, links, found = configuration.mappings, configuration.links, []
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        problems += [_value_problem(collection, detail) for detail in details if detail["type"] != "clash"]
        parts = RightParts(collection.values, context)
        mappings, links = parts.mappings, parts.links
        # pydantic checks for clashes only if every value is valid. Report them now as well.
        found = clashes(parts.configuration, parts.wrong)
    if examine is not None:
        found += examine(mappings, links)
    problems += [collection.clash_problem(clash) for clash in found]
    if problems or configuration is None:
        raise ConfigurationError(collection.in_order(problems))
    return configuration


def _value_problem(collection: Collection, detail: ErrorDetails) -> Problem:
    location, is_key = place_of(detail, Configuration)
    tell = collection.key_problem if is_key else collection.problem
    return tell(location, expectation(detail, Configuration))


#: The sections that are needed to reach a running bridge and its queue manager.
_CONNECTION_SECTIONS = ("queue_manager", "control_socket", "transmission_queue")


def load_connection(path: Path) -> Configuration:
    """Load only the sections that are needed to reach a running bridge and its queue manager.

    All other sections have their defaults, and mistakes in them are ignored, even of syntax. Raises ConfigurationError.
    """
    source = Source(path, _CONNECTION_SECTIONS)
    if source.problems:
        raise ConfigurationError(source.problems)
    try:
        return Configuration.model_validate(source.values, context={"directory": path.absolute().parent})
    except ValidationError as error:
        found = [place_of(detail, Configuration)[0] for detail in error.errors(include_url=False, include_input=False)]
        raise ConfigurationError([source.problem(one, "a value that is valid") for one in found]) from error


class RightParts:
    """The valid parts of an otherwise invalid file, for clash detection."""

    def __init__(self, data: Mapping[str, Any], context: Mapping[str, Any]) -> None:
        self._data, self._context = data, context
        #: Section -> names in the file that `configuration` lacks.
        self.wrong: dict[str, set[str]] = {}
        #: Mappings and links without any mistake.
        self.mappings: dict[str, AnyMapping] = {}
        self.links: dict[str, LinkConfig] = {}
        sections = [
            *(self._alone(name, kind) for name, kind in (("queue_manager", QueueManagerConfig), ("admin", AdminConfig))),
            *(self._alone(name, kind) for name, kind in (("limits", LimitsConfig), ("transmission_queue", ObjectName))),
            {"links": self._named("links", dict[LinkName, LinkConfig], self.links)},
            {"mappings": self._named("mappings", dict[Name, AnyMapping], self.mappings)},
            {"pipelines": self._named("pipelines", dict[PipelineName, PipelineConfig], {})},
            {"channel_authentication": self._records()},
        ]
        if isinstance(channels := data.get("channels"), list):
            sections.append({"channels": [self._channel(value, index) for index, value in enumerate(channels)]})
        #: Invalid parts are replaced by defaults, or by placeholders that clash with nothing.
        self.configuration = Configuration.model_construct(
            **{name: value for section in sections for name, value in section.items()}
        )

    def _alone(self, name: str, kind: Any) -> dict[str, Any]:
        value = self._data.get(name)
        return {name: found[0]} if value is not None and (found := self._right(kind, value)) else {}

    def _named(self, section: str, kind: Any, faultless: dict[str, Any]) -> dict[str, Any]:
        """Return the parts of a section by name, and add those without mistakes to `faultless`."""
        listed, found = self._data.get(section), {}
        wrong = self.wrong.setdefault(section, set())
        for name, value in listed.items() if isinstance(listed, dict) else ():
            right = self._right(kind, value, name)
            if right is not None and not right[1]:
                faultless[name] = right[0]
            # A mapping may be disabled, and then claims nothing. Every key of a link matters.
            if right is None or "enabled" in right[1] or (right[1] and section == "links"):
                wrong.add(name)
            else:
                found[name] = right[0]
        return found

    def _channel(self, value: Any, index: int) -> ChannelConfig:
        """Return a channel, with a placeholder for an invalid name and port 0 for an invalid address or port."""
        right = self._right(ChannelConfig, value)
        channel, wrong = right if right is not None else (ChannelConfig(), {"name", "port"})
        assert isinstance(channel, ChannelConfig)
        update: dict[str, Any] = {"name": f"channels[{index}]"} if "name" in wrong else {}
        return channel.model_copy(update=update | ({"port": 0} if wrong & {"address", "port"} else {}))

    def _records(self) -> list[ChannelAuthenticationConfig]:
        listed, found = self._data.get("channel_authentication"), []
        for index, value in enumerate(listed if isinstance(listed, list) else []):
            right = self._right(ChannelAuthenticationConfig, value)
            nobody = ChannelAuthenticationConfig.model_construct(channel=f"[{index}]", type="BLOCKADDR")
            found.append(right[0] if right is not None and not right[1] else nobody)
        return found

    def _right(self, kind: Any, value: Any, name: str | None = None) -> tuple[Any, set[str]] | None:
        """Return the valid part of a value, and its invalid keys. None if nothing valid remains.

        If `name` is given, `kind` is the type of the section that contains the value under this name.
        """
        written, depth = (value, 0) if name is None else ({name: value}, 1)
        try:
            model = TypeAdapter(kind).validate_python(written, context=self._context)
            return model if name is None else model[name], set()
        except ValidationError as error:
            ways = [place_of(detail, kind)[0] for detail in error.errors(include_url=False, include_input=False)]
        if not isinstance(value, Mapping) or any(len(way) <= depth for way in ways):
            return None
        keys = {str(way[depth]) for way in ways}
        if not keys <= value.keys():
            return None
        right = self._right(kind, {key: one for key, one in value.items() if key not in keys}, name)
        return None if right is None else (right[0], right[1] | keys)


class Collection:
    """The values of a configuration file, merged with the files named under `mappings` and `pipelines`.

    Raises ConfigurationError if the configuration file cannot be read or is not YAML.
    """

    def __init__(self, file: Path) -> None:
        self._main = Source(file)
        self.values: dict[str, Any] = dict(self._main.values)
        """The whole configuration, with the mappings, pipelines and links of all files."""
        self.problems: list[Problem] = list(self._main.problems)
        """Mistakes that are not visible in the values: duplicate names, paths that do not exist, unreadable files."""
        self._files = [self._main.file]
        # (section, name) of a mapping, pipeline or link -> the file that contains it, and its location there.
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
        """Return a problem at `location` of the merged values, with its position in its file."""
        source, written = self._written(location)
        return source.problem(written, expected, found)

    def key_problem(self, location: Location, expected: str) -> Problem:
        """Return a problem with the key at `location` of the merged values, rather than its value."""
        source, written = self._written(location)
        return source.key_problem(written, expected)

    def text_problem(self, location: Location, position: int, expected: str, found: str) -> Problem:
        """Return a problem with one character of the text at `location`.

        `position` is an index, from 0, into the parsed text.
        """
        source, written = self._written(location)
        return source.text_problem(written, position, expected, found)

    def clash_problem(self, clash: Clash) -> Problem:
        """Return the problem for a clash, with its position in its file."""
        problem = self.problem(clash.location, clash.expected, clash.found)
        return replace(problem, found=f"{problem.found} again, {clash.again}") if clash.again else problem

    def in_order(self, problems: list[Problem]) -> list[Problem]:
        """Sort `problems` by file, in reading order, then by position."""
        order = {file: index for index, file in enumerate(self._files)}
        return sorted(problems, key=lambda one: (order.get(one.file, len(order)), one.line or 0, one.column or 0))

    def _written(self, location: Location) -> tuple[Source, Location]:
        source, way = self._places.get(location[:2], (self._main, location[:2]))
        return source, (*way, *location[2:])

    def _add_item(self, location: Location, item: Any) -> None:
        """Add an item of the list under `mappings` or `pipelines`: a path, or entries by name."""
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
                    self._tell(source, (key,), _NOT_HERE)
            elif isinstance(value, dict):
                self._merge(key, value, source, (key,))
            elif isinstance(value, list) and key in _LISTED:
                self._tell(source, (key,), f"{key} by name, because a {_LISTED[key]} file names no further files")
            elif value is not None:
                self._tell(source, (key,), "a mapping (lines of 'key: value')")

    def _merge(self, section: str, added: dict[str, Any], source: Source, location: Location) -> None:
        """Merge the named entries at `location` of a file into `section`."""
        whole = self.values.get(section)
        if whole is not None and not isinstance(whole, dict):
            return  # the section itself is invalid, which is reported elsewhere
        merged = dict(whole or {})
        for name, value in added.items():
            place: Location = (section, name)
            if place in self._places:
                other, way = self._places[place]
                again = f"{quoted(name)} again, which is also at {other.key_place(way)}"
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
    """Yield the files that a path names: the file itself, or the mapping files of a directory, sorted by name."""
    if not path.is_dir():
        yield from [path] if path.exists() else []
        return
    for file in sorted(path.iterdir()):
        if file.suffix in SUFFIXES and file.is_file() and not file.name.startswith("."):
            yield file


def _as_it_is(value: Any, directory: Path) -> Any:
    return value


def _pipeline_from(pipeline: Any, directory: Path) -> Any:
    """Return a pipeline with its relative paths resolved against `directory`, that of the file that contains it."""
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
    """Return a link with its relative paths resolved against `directory`, that of the file that contains it."""
    if not isinstance(link, Mapping):
        return link
    based = _based(link, _LINK_FILES, directory)
    if isinstance(tls := link.get("tls"), Mapping):
        based["tls"] = _based(tls, _TLS_FILES, directory)
    return based


def _based(section: Mapping[str, Any], keys: list[str], directory: Path) -> dict[str, Any]:
    # URIs are left alone: validation rejects them.
    paths = {key: one for key in keys if isinstance(one := section.get(key), str) and one and "://" not in one}
    return {**section, **{key: str(directory / path) for key, path in paths.items()}}


_FROM_DIRECTORY = {"links": _link_from, "pipelines": _pipeline_from}


class StandardProfile(Section):
    """The default attributes of mappings, in both directions."""

    to_mq: MessageAttributes = Field(default_factory=MessageAttributes)
    """Integration tables 1 to 3: from a publication to an MQ message."""
    to_mqtt: PublicationAttributes = Field(default_factory=PublicationAttributes)
    """Integration tables 4 and 5: from an MQ message to a publication."""


def is_standard(stated: object) -> bool:
    """Return whether `stated`, unvalidated values, equals the standard profile."""
    try:
        return StandardProfile.model_validate(stated) == StandardProfile()
    except ValidationError:
        return False


class MappingFile(Section):
    """The structure of a mapping or pipeline file. Its values are validated as part of the configuration."""

    mappings: dict[Name, AnyMapping] = Field(default_factory=dict)
    """Mappings by name, as in the configuration file. Unlike there, a list of files is not allowed."""
    links: dict[LinkName, LinkConfig] = Field(default_factory=dict)
    """Links by name, as in the configuration file."""
    pipelines: dict[PipelineName, PipelineConfig] = Field(default_factory=dict)
    """Pipelines by name, as in the configuration file."""
    standard: StandardProfile | None = None
    """The standard profile, as in `mappings/standard.yaml`. It documents the defaults and cannot be changed."""

    @model_validator(mode="before")
    @classmethod
    def _empty_sections(cls, data: Any) -> Any:
        return without_empty(data, "mappings", "links", "pipelines")
