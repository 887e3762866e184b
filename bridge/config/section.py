"""What the models of the YAML file have in common: the section they derive from, and the types of their values."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict

from bridge.config import values

# "Rules for naming IBM MQ objects": up to 48 characters of this set, up to 20 for a channel. Case matters.
_OBJECT_NAME = values.text(r"[A-Za-z0-9._/%]{1,48}", "an MQ name of 1 to 48 of the characters A-Z a-z 0-9 . _ / %")
_CHANNEL_NAME = values.text(r"[A-Za-z0-9._/%]{1,20}", "a channel name of 1 to 20 of the characters A-Z a-z 0-9 . _ / %")
_USER_NAME = values.text(r"[!-~]{1,12}", "a user name of 1 to 12 ASCII characters without blanks")

ObjectName = Annotated[str, _OBJECT_NAME]
ChannelName = Annotated[str, _CHANNEL_NAME]
UserName = Annotated[str, _USER_NAME]
Address = Annotated[str, values.address()]
Port = Annotated[int, values.integer(0, 65535)]
Truth = Annotated[bool, values.truth()]
FilePath = Annotated[Path, values.path()]


class Section(BaseModel):
    """A mapping of the YAML file: it cannot be changed once read, and every key it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    REFUSED: ClassVar[Mapping[str, str]] = {}
    """Keys that somebody may well write here, and must not: what is expected instead of each."""


def without_empty(data: Any, *keys: str) -> Any:
    """Return `data` without those of `keys` that have no value.

    A heading whose lines are all commented out means defaults.
    """
    if not isinstance(data, Mapping):
        return data
    return {key: value for key, value in data.items() if value is not None or key not in keys}
