"""The former sessions of a bridge's mappings at brokers, for the registry.

The broker client is imported only if there are former sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

from bridge.administration.mapping_status import UnfinishedSession
from bridge.config.link import LinkConfig
from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.mq.link_sessions import LinkSessions
from bridge.mq.mqi import Connection, MQError
from bridge.service.mappings.environment import MappingEnvironment

AnyMapping = ToMqMapping | ToMqttMapping


class UnfinishedSessions:
    """Sessions with unfinished exchanges that no mapping uses. The methods block.

    They log failures, except `give_up`, which raises MQError.
    """

    def __init__(self, environment: MappingEnvironment) -> None:
        self._environment = environment
        #: the sessions as of the last `settle`
        self.listed: list[UnfinishedSession] = []

    def leave(
        self,
        mapping: str,
        mappings: Mapping[str, AnyMapping],
        links: Mapping[str, LinkConfig],
        *,
        only_own: bool = False,
    ) -> bool:
        """Leave the session of a mapping at a broker, if it has one, and try to finish it there.

        The session is ended, unless one of the `mappings` may use it from now on. Return whether the session was left.
        Otherwise its unfinished messages are still at the source of the mapping. `only_own`: another shard runs the mapping
        now, and its session stays if that shard has entered it.
        """

        def left(connection: Connection) -> bool:
            sessions = LinkSessions(connection)
            session = sessions.load(mapping)
            if session is None or (only_own and session.owner != self._environment.owner):
                return True
            from bridge.service.mappings import former_sessions

            keys = former_sessions.configured_keys(session, mappings, links, self._environment.bridge_id(connection))
            former_sessions.leave(connection, self._environment, session, ending=session.key not in keys)
            former = sessions.former(session)
            if former is not None:
                link = former_sessions.link_of(session, links)
                try:
                    former_sessions.settle(connection, self._environment, former, link)
                except MQError:
                    # `settle` of this class tries again, and logs the error.
                    connection.backout()
            return True

        return self._environment.with_connection(left) or False

    def leave_others(self, mappings: Mapping[str, AnyMapping], links: Mapping[str, LinkConfig]) -> bool:
        """Leave the sessions that mappings no longer use, and those of mappings that no longer read a topic.

        Return whether that succeeded.
        """

        def left(connection: Connection) -> bool:
            recorded = LinkSessions(connection).all(self._environment.owner)[0]
            if not recorded:
                return True
            from bridge.service.mappings import former_sessions

            bridge = self._environment.bridge_id(connection)
            for session in recorded:
                if former_sessions.is_used(session, mappings.get(session.mapping), links):
                    continue
                keys = former_sessions.configured_keys(session, mappings, links, bridge)
                former_sessions.leave(connection, self._environment, session, ending=session.key not in keys)
            return True

        return self._environment.with_connection(left) or False

    def settle(
        self,
        links: Mapping[str, LinkConfig],
        in_use: Set[str],
        others: Mapping[str, AnyMapping],
        stopping: Callable[[], bool],
    ) -> None:
        """Try to finish and end the former sessions, and list the remaining ones.

        Skip the sessions in use, by key, and those that mappings of other shards (`others`) may use: two connections with one
        client identifier would end each other. The other shard finishes such a session.
        """
        if not self._environment.former_sessions_changed and not self.listed:
            return

        def settled(connection: Connection) -> None:
            self._environment.former_sessions_changed = False
            if not LinkSessions(connection).all(self._environment.owner)[1]:
                self.listed = []
                return
            from bridge.service.mappings import former_sessions

            # The attempts may take long.
            self.listed = former_sessions.listed(connection, self._environment.owner, links)
            former_sessions.settle_all(connection, self._environment, links, in_use, others, stopping)
            self.listed = former_sessions.listed(connection, self._environment.owner, links)

        self._environment.with_connection(settled)

    def give_up(self, mapping: str, in_use: Set[str]) -> tuple[int, int]:
        """Give up the former sessions of a mapping. Return the numbers of sessions and messages. Raises MQError."""

        def give_up(connection: Connection) -> tuple[int, int]:
            from bridge.service.mappings import former_sessions

            former = LinkSessions(connection).all(self._environment.owner)[1]
            chosen = [
                former_session
                for former_session in former
                if former_session.session.mapping == mapping and former_session.session.key not in in_use
            ]
            messages = sum(
                former_sessions.give_up(connection, self._environment, former_session) for former_session in chosen
            )
            self.listed = former_sessions.listed(connection, self._environment.owner, {})
            return len(chosen), messages

        return self._environment.run(give_up)
