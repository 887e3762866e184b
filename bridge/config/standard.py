"""The standard profile of the integration tables: what a mapping's attributes are where it does not say."""

from pydantic import Field, ValidationError

from bridge.config.mapping import MessageAttributes, PublicationAttributes
from bridge.config.problems import ConfigurationError
from bridge.config.section import Section
from bridge.config.source import Source
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
