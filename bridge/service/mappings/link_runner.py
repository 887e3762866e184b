"""Common parts of mappings from and to a link: the connection, and its state in the mapping's status."""

from __future__ import annotations

from bridge.administration.mapping_status import State
from bridge.config import LinkConfig
from bridge.link.connection import LinkConnection
from bridge.link.state import LinkPhase, LinkState
from bridge.mq.mqi import Connection
from bridge.service.mappings.link_session import chosen_client_id, end_session
from bridge.service.mappings.runner import Runner

#: Seconds to wait for a link to disconnect.
FAREWELL = 5.0


class LinkRunner(Runner):
    """Runs a mapping that has a link on one side, and owns the link's connection."""

    _link: LinkConnection
    _link_name: str
    _link_config: LinkConfig
    #: the link has been started
    _begun = False

    @property
    def link(self) -> LinkConnection:
        """The connection to the broker."""
        return self._link

    def client_id_at_broker(self, connection: Connection, *, unfinished: bool = False) -> str:
        """Return the client identifier of the mapping at the broker. Raises MQError."""
        bridge = self._environment.bridge_id(connection)
        return chosen_client_id(connection, self.mapping, self._link_config, bridge, unfinished=unfinished)

    def leave_session(self) -> None:
        client_id = self._link.client_id if self._begun else self._environment.recorded_client_id(self.mapping)
        if client_id and end_session(self.mapping, self._link_name, self._link_config, client_id):
            self._environment.remove_session(self.mapping)

    def join(self, timeout: float) -> bool:
        ended = super().join(timeout)
        return self._link.stop(FAREWELL) and ended

    def _link_state(self, state: LinkState) -> None:
        if state.error:
            self.status.wrong(f"link {self._link_name}: {state.error}")
        if state.phase is not LinkPhase.CONNECTED:
            self.wait_for_link()

    def wait_for_link(self) -> None:
        """Report that the mapping waits for the link, unless it reports another problem.

        The mapping's thread calls this, too: it may have set `running` just after the connection was lost.
        """
        if self.status.state in (State.RUNNING, State.STARTING):
            self.status.state = State.WAITING_FOR_LINK
