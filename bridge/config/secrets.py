"""Recognizes secrets in a configuration, so that they are not printed.

No option has a secret value: options name a file or an environment variable. But users choose the names and values of plugin
options, Spark settings and message properties, and may write a secret there.
"""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = (
    r"password|passwd|passphrase|passcode|\bpwd|secret|token|credential|headers|authorization|jaas|signature|\bsig\b"
    r"|(?:api|access|account|private)[._-]?key"
)
_SECRET: Final = re.compile(_NAME, re.IGNORECASE)
#: Names of options that contain the place of a secret.
_PLACE: Final = re.compile(r"[._](?:file|variable|cache|claim|endpoint|url|path|provider)$", re.IGNORECASE)
#: User and password of a URL (RFC 3986, section 3.2.1).
_USER: Final = re.compile(r"(?<=://)[^\s/?#]*@")
#: A parameter with its value: `?token=x`, `;password=x`, `-Dkey.password=x`, `password="x"`.
_PARAMETER: Final = re.compile(rf"""([\w.-]*(?:{_NAME})[\w.-]*=)("[^"]*"|'[^']*'|[^\s&;,"']+)""", re.IGNORECASE)
#: A template without literal text: it refers to a part of a message.
_TEMPLATE: Final = re.compile(r"""\{[^{}"']*\}""")
HIDDEN: Final = "(hidden)"


def names_secret(name: str) -> bool:
    """Return whether a name that the user has chosen indicates a secret value."""
    return bool(_SECRET.search(name)) and not _PLACE.search(name)


def without_secret_parameters(text: str) -> str:
    """Return a text without the values of parameters whose names indicate a secret."""
    return _PARAMETER.sub(rf"\1{HIDDEN}", text)


def without_secret_parts(text: str) -> str:
    """Return a text without the users, passwords and secret parameters of its URLs."""
    return without_secret_parameters(_USER.sub("", text)) if "://" in text else text


def is_template(value: object) -> bool:
    """Return whether a value only refers to a part of a message, such as `{$.token}`."""
    return isinstance(value, str) and bool(_TEMPLATE.fullmatch(value))
