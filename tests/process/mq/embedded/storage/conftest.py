"""A written database."""

from tests.helpers.damaged_database import written  # noqa: F401
