"""An application at the embedded queue manager: its handles, its unit of work, and the verbs, none of which waits.

A verb that must not answer before its work is on disk returns a unit along with its result; whoever called submits the
unit to the journal and answers when it has ended. `connection` does so for threads, `server` for other processes.
"""

from __future__ import annotations

from bridge.mq.embedded.unit import Unit
from bridge.mq.embedded.verbs.handles import SubscriptionHandle
from bridge.mq.embedded.verbs.mqget import Retrieval
from bridge.mq.embedded.verbs.mqinq import Inquiry
from bridge.mq.embedded.verbs.mqopen import Opening
from bridge.mq.embedded.verbs.mqput import Putting
from bridge.mq.embedded.verbs.mqsub import Subscribing


class Application(Opening, Putting, Retrieval, Subscribing, Inquiry):
    """One connection to the embedded queue manager. Call its verbs with the queue manager's lock held."""

    def check_administrator(self, command: str) -> None:
        """Check that the connected user may run commands. Raises MQError."""
        if self.queue_manager.authorization is not None:
            self.queue_manager.authorization.administering(self.asked, command)

    def commit(self) -> Unit | None:
        """Do MQCMIT: return the unit of work to submit, None when nothing was done."""
        unit, self._unit = self._unit, None
        return unit

    def backout(self) -> None:
        """Do MQBACK."""
        unit, self._unit = self._unit, None
        if unit is not None:
            self.queue_manager.back_out(unit)

    def disconnect(self, *, commit: bool) -> list[Unit]:
        """Do MQDISC, or end the connection with its process; return the units of work to submit.

        At the end of a process `commit` is False: the connection's unit of work is backed out.
        """
        self.queue_manager.applications.discard(self)
        units = []
        if commit:
            if (unit := self.commit()) is not None:
                units.append(unit)
        else:
            self.backout()
        # Subscriptions first: their destinations may be dynamic queues, which go with their handles.
        for number in sorted(self._handles, key=lambda one: not isinstance(self._handles[one], SubscriptionHandle)):
            unit = self.close(number)
            if unit is not None:
                units.append(unit)
        return units
