"""Create, Copy, Change and Delete of the kinds of objects that have one name and nothing else that tells them apart."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.mq.embedded.mqsc.commands import Commands
from bridge.mq.embedded.pcf.operation import Operation
from bridge.mq.embedded.pcf.queues import replace
from bridge.mq.embedded.pcf.request import Reply, Request


@dataclass(frozen=True)
class Defined:
    """A kind of objects, as its commands name them."""

    #: as MQSC calls it
    noun: str
    #: the parameter with an object's name
    name: int
    #: the parameters of Copy: the object to copy, and the new one
    source: int
    target: int
    #: parameters that can say one thing only, and what
    fixed: tuple[tuple[int, int], ...] = ()

    def create(self, commands: Commands, request: Request) -> Reply:
        operation = Operation("DEFINE", self.noun, request.name(self.name))
        replace(request, operation)
        return self._define(commands, request, operation)

    def copy(self, commands: Commands, request: Request) -> Reply:
        model = request.name(self.source)
        operation = Operation("DEFINE", self.noun, request.name(self.target))
        operation.add("LIKE", model)
        replace(request, operation)
        return self._define(commands, request, operation)

    def change(self, commands: Commands, request: Request, name: str | None = None) -> Reply:
        """Alter an object; `name` is its name where the request may name the object otherwise."""
        operation = Operation("ALTER", self.noun, request.name(self.name) if name is None else name)
        return self._define(commands, request, operation)

    def _define(self, commands: Commands, request: Request, operation: Operation) -> Reply:
        for parameter, value in self.fixed:
            request.choice(parameter, (value,))
        operation.take(request)
        request.finish()
        return Reply(unit=operation.run(commands))

    def delete(self, commands: Commands, request: Request) -> Reply:
        name = request.name(self.name)
        operation = Operation("DELETE", self.noun, name)
        operation.take_records(request)
        request.finish()
        return Reply(unit=operation.run(commands))
