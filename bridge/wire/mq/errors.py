"""The one error that the codecs of this package raise."""

from __future__ import annotations


class MalformedHeader(ValueError):
    """Bytes that are not the structure they should be, or values that do not fit into it.

    :ivar structure: IBM's name of the structure, such as ``"MQRFH2"``.
    :ivar offset: where it went wrong, in bytes from the start of the buffer that was given to the decoder (not of the
        structure). When encoding, the position in the bytes that would have been made.
    :ivar rule: what was expected and what was found, as a sentence for a log line.
    """

    def __init__(self, structure: str, offset: int, rule: str) -> None:
        super().__init__(structure, offset, rule)  # all three in args: the exception survives pickling (Spark workers)
        self.structure = structure
        self.offset = offset
        self.rule = rule

    def __str__(self) -> str:
        return f"{self.structure} at offset {self.offset}: {self.rule}"
