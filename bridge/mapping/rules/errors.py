"""Errors in a mapping as it is written: found when its rule is made, before any message comes."""

from __future__ import annotations


class RuleError(ValueError):
    """A mapping cannot be made a rule. The text is a sentence for the person who wrote it.

    `column` counts from 1 in the text that is wrong; None where no single place is. `where` is the part of the mapping
    ("to.queue"), once the rule has said it.
    """

    def __init__(self, sentence: str, column: int | None = None) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.column = column
        self.where = ""

    @classmethod
    def at(cls, where: str, sentence: str) -> RuleError:
        """Make the error of a part of the mapping."""
        error = cls(sentence)
        error.where = where
        return error

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.sentence}" + (f" (column {self.column})" if self.column is not None else "")


class PatternError(RuleError):
    """A topic filter with captures that cannot be read."""


class TemplateError(RuleError):
    """A template that cannot be read, or refers to what there is not."""


class FilterError(RuleError):
    """A filter that cannot be read."""
