"""Client identifiers as names of queue managers.

To MQ, an MQTT client is a remote queue manager named after its client identifier. IBM MQ allows A-Z, a-z, 0-9 and . / _ % in
such a name, and 48 characters ("Rules for naming IBM MQ objects"). Escaped names write every byte of the identifier (in
UTF-8) that is not a letter, a digit or one of . / _ as % and two hexadecimal digits: `dev-1` is `dev%2D1`.
"""

from __future__ import annotations

import re
from typing import Final

#: MQ_Q_MGR_NAME_LENGTH.
MAX_LENGTH: Final = 48

_ESCAPED: Final = re.compile(rb"[^A-Za-z0-9./_]")
_NAME: Final = re.compile(r"(?:[A-Za-z0-9./_]|%[0-9A-F]{2})+")
_ESCAPE: Final = re.compile(rb"%(..)")


class ClientNames:
    """The scheme of one bridge; without `escaped`, identifiers are names as they are."""

    def __init__(self, escaped: bool = False) -> None:
        self.escaped = escaped

    def name_of(self, client_id: str) -> str:
        """Return the queue manager name of a client. Different clients have different names."""
        if not self.escaped:
            return client_id
        return _ESCAPED.sub(lambda found: b"%%%02X" % found[0][0], client_id.encode()).decode()

    def client_of(self, name: str) -> str:
        """Return the client of a queue manager name; "", which no client has, for a name that no client has."""
        if not self.escaped:
            return name
        if _NAME.fullmatch(name) is None:
            return ""
        try:
            client_id = _ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()), name.encode()).decode()
        except UnicodeDecodeError:
            return ""
        return client_id if self.name_of(client_id) == name else ""

    def error(self, client_id: str) -> str | None:
        """Return why a client cannot have a name, or None."""
        name = self.name_of(client_id)
        if len(name.encode()) > MAX_LENGTH:
            escaped = f", as which it is {name[: 2 * MAX_LENGTH]!r}" if self.escaped else ""
            return f"a client identifier has at most {MAX_LENGTH} bytes (it is a queue manager name to MQ{escaped})"
        if name.endswith(" "):
            # MQ pads names with blanks: the messages of `a ` would be those of client `a`.
            return "a client identifier must not end with a blank (it is a queue manager name to MQ)"
        return None


#: Identifiers are names.
AS_IS: Final = ClientNames()
