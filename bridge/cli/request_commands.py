"""Commands that follow from administration requests: the help, the arguments and an example are those of the request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from inspect import Parameter, Signature
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec
import typer

from bridge.administration.protocol import Request
from bridge.cli import output
from bridge.cli.options import BRIDGE, OUTPUT, YES, Common, argument, takes
from bridge.cli.queue_manager import done, shown

T = TypeVar("T")

#: Returns the names that begin with the characters that were typed.
Completion = Callable[[str], list[str]]
#: Names of fields that name the object of the command, such as CHANNEL of `channel start`.
_OBJECT = ("name", "client_id")


def action(request: type[Request[None]], question: str = "", complete: Completion | None = None) -> Callable[..., None]:
    """Return the command of a request whose answer only has lines.

    Its arguments are the required fields of the request. If there is a question, the user must confirm the command.
    `{name}` and the other fields in it stand for their values. `complete` completes the name of the object.
    """

    def command(**values: Any) -> None:
        if question:
            output.confirm(question.format(**values))
        done(request(**values))

    return _described(command, request, BRIDGE | YES if question else BRIDGE, list(_arguments(request, complete)))


def listing(
    request: type[Request[list[T]]],
    columns: Mapping[str, str | Callable[[T], object]],
    nothing: str,
    details: Callable[[T], Iterable[str]] = lambda record: (),
) -> Callable[..., None]:
    """Return the command that lists the objects of a request, which have a `name`.

    It prints a table with the columns (`output.table_of`), then the details of each object. `nothing` is printed if there are
    no objects.
    """

    def table(records: list[T]) -> None:
        output.print_table(*output.table_of(records, columns), nothing)
        for record in records:
            for line in details(record):
                typer.echo(line)

    def command() -> None:
        output.print_records(shown(request()), lambda record: record.name, table=table)  # type: ignore[attr-defined]

    return _described(command, request, BRIDGE | OUTPUT, [])


def _described(
    command: Callable[..., None], request: type[Request[Any]], common: Common, arguments: list[Parameter]
) -> Callable[..., None]:
    described: Any = takes(common)(command)
    described.__doc__ = request.__doc__
    described.__signature__ = Signature(arguments)
    described.__annotations__ = {parameter.name: parameter.annotation for parameter in arguments}
    words = [
        "mqbridge",
        str(request.__struct_config__.tag),
        *(example for parameter in arguments for example in _examples(parameter)),
    ]
    described.examples = (" ".join(words),)
    return command


def _arguments(request: type[Request[Any]], complete: Completion | None) -> Iterator[Parameter]:
    noun, _, _ = str(request.__struct_config__.tag).partition(" ")
    for field in msgspec.structs.fields(request):
        if not field.required:
            continue
        names_object = field.name in _OBJECT
        declared = argument(
            noun.upper() if names_object else field.name.upper(),
            _meta(field.type).description or "",
            autocompletion=complete if names_object else None,
        )
        yield Parameter(field.name, Parameter.POSITIONAL_OR_KEYWORD, default=declared, annotation=_choices(field.type))


def _choices(hint: Any) -> Any:
    """Return the type of a field, with an enumeration, which typer knows, in place of a Literal."""
    kind, *metadata = get_args(hint)
    if get_origin(kind) is not Literal:
        return hint
    return Annotated[StrEnum("Choice", {value: value for value in get_args(kind)}), *metadata]


def _meta(hint: Any) -> msgspec.Meta:
    """Return the description of a field. Raises StopIteration if its type has none."""
    return next(meta for meta in hint.__metadata__ if isinstance(meta, msgspec.Meta))


def _examples(parameter: Parameter) -> list[str]:
    return [str(example) for example in _meta(parameter.annotation).examples or ()]
