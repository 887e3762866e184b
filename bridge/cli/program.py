"""The command line `mqbridge`: its commands, in the order of the help, and how errors are reported."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from bridge.cli.examples import EXAMPLES, epilog
from bridge.cli.failures import EXIT_STATUSES, WRONG_USAGE, Failure, failure_of
from bridge.cli.options import BRIDGE, Common, common_parameters, settings
from bridge.cli.output import print_error

_EPILOG = """
Examples:

\b
  mqbridge run                               run the bridge; data in ./data, MQTT on 127.0.0.1:1883
  mqbridge run bridge.yaml --port 0          run it with a configuration file, MQTT on any free port
  mqbridge mq sub 'sensors/#'                print what MQTT clients publish
  mqbridge mq put commands/reset now --to dev-1
                                             send a message to the MQTT client dev-1
  mqbridge mqsc                              administer the queue manager with MQSC commands

Exit status:

\b
{statuses}

"mqbridge help COMMAND" and "mqbridge COMMAND --help" describe a command.
""".format(statuses="\n".join(f"  {status:<4} {meaning}" for status, meaning in EXIT_STATUSES.items()))


@dataclass(frozen=True)
class Group:
    """A group of commands."""

    help: str
    #: name of a command -> the command; or the place of such a mapping, as "module:mapping"
    listed: Mapping[str, Entry] | str
    #: the function of the group's name without a command; "" if that prints the help
    default: str = ""
    #: the command for arguments that do not begin with the name of a command, and a function that recognizes them
    otherwise: str = ""
    recognized: str = ""

    @property
    def commands(self) -> Mapping[str, Entry]:
        """The commands by name. Imports the module that contains them."""
        commands: Mapping[str, Entry] = function_of(self.listed) if isinstance(self.listed, str) else self.listed
        return commands


#: A command: its function, or the place of the function, as "module:function"; or a group of commands.
Entry = str | Callable[..., None] | Group


def _of(module: str, names: str) -> dict[str, str]:
    """Return the commands of a group by name. Their functions have the same names."""
    return {name: f"{module}:{name}" for name in names.split()}


#: Heading of the help -> name -> command.
SECTIONS: Mapping[str, Mapping[str, Entry]] = {
    "Run a bridge": {
        "run": "service:run",
        "check": "check:check",
        "try": "trial:try_mapping",
        "passwd": "passwd:passwd",
        "schema": "service:schema",
        "install-service": "service:install_service",
    },
    "Administer a running bridge": {
        "status": "administration:status",
        "health": "health:health",
        "top": "administration:top",
        "search": "administration:search",
        "channel": Group("List, start and stop the telemetry channels of a running bridge.", "administration:CHANNEL"),
        "client": Group("List, disconnect and purge the MQTT clients of a running bridge.", "administration:CLIENT"),
        "topic": Group(
            "Show retained publications, subscriptions and publishers, and the route of a publication.",
            "administration:TOPIC",
        ),
        "user": Group("List and change users of password files, and explain what users may do.", "administration:USER"),
        "mapping": Group("List, pause and resume the mappings of a running bridge.", "administration:MAPPING"),
        "link": Group(
            "List, test and connect the links of a running bridge to other MQTT brokers.", "administration:LINK"
        ),
        "log": Group("Set the log level of a running bridge.", "administration:LOG"),
        "config": Group("Show and check the configuration of a running bridge.", "configuration:CONFIG"),
        "reload": "administration:reload",
        "yield": "administration:yield_",
        "group": Group("Show the bridges of all shards.", _of("group", "status shard")),
        "explain": "explain:explain",
    },
    "Messages and the queue manager": {
        "mq": Group("Put, get, publish and subscribe as an MQ application.", _of("mq", "put get pub sub remove")),
        "dlq": Group(
            "List, retry, export and delete dead-lettered messages.",
            {"list": "dlq:list_"} | _of("dlq", "show retry export delete"),
        ),
        "mqsc": Group(
            "Administer the queue manager with MQSC commands, as with runmqsc.\n\nOn a terminal, type commands; `end` or"
            " Ctrl-D ends it. Otherwise it runs the script on standard input: mqbridge mqsc < queues.mqsc",
            _of("mqsc", "command run display dump"),
            "mqsc:interactive",
            "command",
            "mqsc:is_command",
        ),
        "record": Group(
            "Show the layouts of COBOL records, and convert records to JSON and back.",
            _of("record", "show decode encode"),
        ),
        "data": Group(
            "Back up, restore, verify and repair the embedded queue manager.",
            _of("data", "backup restore verify salvage"),
        ),
        "mqsc-script": "mqsc:mqsc_script",
        "ibm-acceptance": "mqsc:ibm_acceptance",
    },
    "Archive, data lake and Spark": {
        "audit": "archive:audit",
        "report": "archive:report",
        "replay": "archive:replay",
        "lake": "lake:lake",
        "pipeline": Group(
            "Run and administer the Spark pipelines of the configuration file.",
            {"list": "pipeline:list_"}
            | _of("pipeline", "check run show stop drain reset")
            | {
                "spool": Group(
                    "List messages that a query has taken and not yet processed, and put them back.",
                    {"list": "spool:list_", "return": "spool:return_"},
                )
            },
        ),
    },
    "The command itself": {
        "help": "program:help_",
        "completion": "administration:completion",
        "version": "service:version",
    },
}


def all_examples() -> dict[str, tuple[str, ...]]:
    """Return the examples of each command, such as `client list`."""
    return {command: examples for section in SECTIONS.values() for command, examples in _examples_in(section, "")}


def _examples_in(entries: Mapping[str, Entry], prefix: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for name, entry in entries.items():
        if isinstance(entry, Group):
            if entry.default:
                yield prefix + name, EXAMPLES[prefix + name]
            yield from _examples_in(entry.commands, f"{prefix}{name} ")
        else:
            yield prefix + name, _examples(prefix + name, function_of(entry))


def function_of(place: str | Callable[..., None]) -> Any:
    """Return a function, or a mapping of commands, by its place, "module:name"."""
    if not isinstance(place, str):
        return place
    module, name = place.split(":")
    return getattr(import_module(f"bridge.cli.{module}"), name)


def _examples(command: str, function: Any) -> tuple[str, ...]:
    """Return the examples of a command: those of its request, or the listed ones."""
    examples: tuple[str, ...] = getattr(function, "examples", ()) or EXAMPLES[command]
    return examples


class CommandGroup(typer.core.TyperGroup):
    """Commands that are imported when they are used, because each import costs time."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        #: name of a command -> its function or group
        self.entries: dict[str, Entry] = {}
        #: the words before the names of the commands, such as "client "
        self.prefix = ""
        self.otherwise = self.recognized = ""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands and cmd_name in self.entries:
            self.commands[cmd_name] = self._made(cmd_name)
        return self.commands.get(cmd_name)

    def _made(self, name: str) -> Any:
        entry = self.entries[name]
        if not isinstance(entry, Group):
            function = function_of(entry)
            return _command(name, function, epilog(_examples(self.prefix + name, function)))
        default = function_of(entry.default) if entry.default else None

        def run(context: typer.Context) -> None:
            if default is not None and context.invoked_subcommand is None:
                default()

        group = typer.Typer(rich_markup_mode=None, add_completion=False)
        group.callback(
            cls=CommandGroup,
            help=entry.help,
            short_help=entry.help.partition("\n")[0],
            epilog=epilog(EXAMPLES[self.prefix + name]) if default else None,
            invoke_without_command=default is not None,
            no_args_is_help=default is None,
        )(run)
        typer_group: Any = typer.main.get_group(group)
        typer_group.name, typer_group.entries, typer_group.prefix = name, dict(entry.commands), f"{self.prefix}{name} "
        typer_group.otherwise, typer_group.recognized = entry.otherwise, entry.recognized
        typer_group.params += common_parameters(BRIDGE if default else Common(0))
        return typer_group

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if self.otherwise and args[0] not in self.entries and function_of(self.recognized)(args):
            args = [self.otherwise, *args]
        try:
            return super().resolve_command(ctx, args)
        except _UsageError as error:
            # click does not suggest commands that are not imported.
            from difflib import get_close_matches

            near = get_close_matches(args[0], self.entries)
            hint = (
                " or ".join(f"`mqbridge {self.prefix}{name}`" for name in near) or "`mqbridge help` lists the commands"
            )
            question = "did you mean " if near else ""
            hint = f"{question}{hint}{'?' * bool(near)}"
            raise Failure(f"no command {self.prefix}{args[0]}", WRONG_USAGE, hint=hint) from error


class BridgeCommands(CommandGroup):
    """`mqbridge`."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.entries = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
        self.params += common_parameters(BRIDGE, root=True)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for heading, section in SECTIONS.items():
            width = formatter.width - 6 - max(map(len, section))
            with formatter.section(heading):
                formatter.write_dl([(name, self.get_command(ctx, name).get_short_help_str(width)) for name in section])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command and exit. Expected errors are reported in one way."""
        settings.reset()
        try:
            status = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except typer.Abort:
            print_error(Failure("interrupted"))
            status = 130
        except _ClickException as error:
            if type(error).__name__ == "NoArgsIsHelpError":
                typer.echo(error.format_message(), err=True)
                sys.exit(WRONG_USAGE)
            failure = _usage_failure(error)
            print_error(failure)
            status = failure.status
        except Exception as error:
            if settings.debug:
                traceback.print_exc()
            unexpected = failure_of(error)
            if unexpected is None:
                raise
            print_error(unexpected)
            status = unexpected.status
        sys.exit(status or 0)


_UsageError: Any = typer.BadParameter.__bases__[0]
_ClickException: Any = _UsageError.__bases__[0]


def _usage_failure(error: Any) -> Failure:
    text = str(error.format_message())
    context = getattr(error, "ctx", None)
    hint = f"`{context.command_path} --help` describes the command" if context is not None else ""
    return Failure(text[:1].lower() + text[1:].removesuffix("."), WRONG_USAGE, hint=hint)


class _Command(typer.core.TyperCommand):
    """A command whose usage line shows required arguments in capitals, without the braces of typer."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]


def _command(name: str, function: Any, end: str) -> Any:
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    # The whole first sentence: otherwise, the list of commands has its beginning only.
    sentence = (function.__doc__ or "").partition("\n")[0]
    alone.command(name, cls=_Command, epilog=end, short_help=sentence)(function)
    command = typer.main.get_command(alone)
    declared = tuple(str(parameter.name) for parameter in command.params)
    command.params += common_parameters(getattr(function, "takes", Common(0)), declared=declared)
    return command


def help_(
    context: typer.Context,
    command: Annotated[list[str] | None, typer.Argument(metavar="[COMMAND]...", show_default=False)] = None,
) -> None:
    """Print the help of a command, or the list of commands."""
    parent: Any = context.find_root()
    parent_command: Any = parent.command
    for name in command or ():
        lower = parent_command.get_command(parent, name) if isinstance(parent_command, CommandGroup) else None
        if lower is None:
            raise Failure(
                f"no command {' '.join(command or ())}", WRONG_USAGE, hint="`mqbridge help` lists the commands"
            )
        parent = lower.make_context(name, [], parent=parent, resilient_parsing=True)
        parent_command = lower
    typer.echo(parent_command.get_help(parent))


program = typer.Typer(
    cls=BridgeCommands,
    epilog=_EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
    # `mqbridge completion` instead, which changes no file of the user's
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from bridge.cli.service import version

        version()
        raise typer.Exit


@program.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", "-V", help="Print the versions and exit.", is_eager=True, callback=_print_version
    ),
) -> None:
    """A bridge between MQTT clients and IBM MQ."""  # noqa: D401 the help of the whole program


if "_MQBRIDGE_COMPLETE" in os.environ:
    # Called by the script of `mqbridge completion`. typer registers its shells only with its own completion options.
    from typer.completion import completion_init  # type: ignore[attr-defined]

    completion_init()
