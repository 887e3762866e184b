"""What goes wrong before a pipeline runs, in words."""

from __future__ import annotations

#: What installs all that the pipeline needs.
INSTALL = "pip install 'mq-mqtt-bridge[spark]' (in a checkout: pip install '.[spark]')"


class SparkMissing(Exception):
    """Spark, what it needs of Python, or a Java is not there. The text names it and the command that installs it."""


class OptionError(ValueError):
    """Options of a data source that it cannot work with: unknown, missing, or of a wrong value; each by its name."""
