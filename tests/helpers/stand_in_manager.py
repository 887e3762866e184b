"""An embedded queue manager with the verbs of the stand-in, which a test controls with MQSC commands."""

from __future__ import annotations

from tests.helpers.embedded_manager import Manager
from tests.helpers.mq_applications import Application
from tests.ibm_standin.mqi.connection import StandInConnection


class StandInManager(Manager):
    """A queue manager that can be restarted, with one application connected."""

    connection: StandInConnection

    def _open(self) -> None:
        super()._open()
        self.connection = StandInConnection(self.itself)


class StandInApplication(Application):
    """An MQ application of the stand-in."""

    connection: StandInConnection
