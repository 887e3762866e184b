"""The command line in this process."""

from tests.helpers.command_line import invoke, mq, no_variable, queue_manager  # noqa: F401
