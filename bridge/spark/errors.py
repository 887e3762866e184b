"""What goes wrong before a pipeline runs, in words."""

from __future__ import annotations


class SparkMissing(Exception):
    """Spark, what it needs of Python, or a Java is not there. The text names it and the command that installs it."""


class OptionError(ValueError):
    """Options of a data source that it cannot work with: unknown, missing, or of a wrong value; each by its name."""
