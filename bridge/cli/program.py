"""The command line: the names of the commands of `mqbridge`, in the order of its help, and where each of them is."""

import os
from collections.abc import Mapping
from typing import ClassVar

import typer

from bridge.cli.commands import Commands

_EXAMPLES = """
Examples:

\b
  mqbridge run                               run the bridge; data in ./data, MQTT on 127.0.0.1:1883
  mqbridge run bridge.yaml --port 0          run it as a file says, MQTT on any free port
  mqbridge mq sub 'sensors/#'                see what MQTT clients publish
  mqbridge mq put commands/reset now --to dev-1
                                             send to the MQTT client dev-1

Exit status: 0 when all was done, 1 when something could not be done, 2 when the command or a configuration file is not
what it should be. `status` ends with 1 where something is not as it should be, `reload` where nothing was taken over.

"mqbridge COMMAND --help" says more about a command.
"""
_MQ_EXAMPLES = """
Examples, the bridge running in another terminal:

\b
  mqbridge mq sub 'sensors/#'                      print what is published, until Ctrl-C
  mqbridge mq pub sensors/1 21.5 --retain          publish
  mqbridge mq put commands/reset now --to dev-1    send to the MQTT client dev-1
  mqbridge mq put COMMANDS now --property device=7 put to a queue, with a property
  mqbridge mq get ORDERS --wait 5 --json           take a message, with its MQMD and RFH2
  mqbridge mq display 'QLOCAL(*)' CURDEPTH         ask as an administrator does
"""


class BridgeCommands(Commands):
    """`mqbridge`."""

    SECTIONS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "Run a bridge": ("run", "check", "mqsc-script", "ibm-acceptance", "try", "passwd", "schema", "install-service"),
        "Look after a bridge that runs": (
            "status", "top", "channel", "client", "topic", "mapping", "link", "log", "reload",
            "dlq", "backup", "restore", "explain",
        ),
        "Be an MQ application": ("mq",),
        "Archive, data lake and Spark": ("audit", "report", "replay", "lake", "pipeline"),
        "The command itself": ("completion", "version"),
    }  # fmt: skip

    FUNCTIONS: ClassVar[Mapping[str, str]] = {
        "run": "bridge.cli.service:run",
        "status": "bridge.cli.administration.running:status",
        "top": "bridge.cli.administration.top:top",
        "reload": "bridge.cli.administration.running:reload",
        "check": "bridge.cli.check:check",
        "mqsc-script": "bridge.cli.ibm_mq:print_mqsc_script",
        "ibm-acceptance": "bridge.cli.ibm_mq:ibm_acceptance",
        "passwd": "bridge.cli.passwd:passwd",
        "explain": "bridge.cli.explain:explain",
        "install-service": "bridge.cli.install_service:install_service",
        "try": "bridge.cli.trial:try_mapping",
        "audit": "bridge.cli.archive:audit",
        "report": "bridge.cli.archive:report",
        "replay": "bridge.cli.archive:replay",
        "lake": "bridge.cli.lake:lake",
        "backup": "bridge.cli.administration.backup:backup",
        "restore": "bridge.cli.administration.backup:restore",
        "schema": "bridge.cli.service:schema",
        "completion": "bridge.cli.administration.completion:completion",
        "version": "bridge.cli.service:version",
    }

    HIDDEN: ClassVar[Mapping[str, str]] = {"mappings": "bridge.cli.administration.running:mappings"}


class MqCommands(Commands):
    """`mqbridge mq`."""

    PREFIX: ClassVar[str] = "mq "

    FUNCTIONS: ClassVar[Mapping[str, str]] = {
        name: f"bridge.cli.applications:{name}" for name in ("put", "pub", "get", "sub", "run", "display")
    } | {name: f"bridge.cli.database:{name}" for name in ("verify", "salvage")}


class ChannelCommands(Commands):
    """`mqbridge channel`."""

    PREFIX: ClassVar[str] = "channel "

    FUNCTIONS: ClassVar[Mapping[str, str]] = {
        "list": "bridge.cli.administration.channel:list_",
        "start": "bridge.cli.administration.channel:start",
        "stop": "bridge.cli.administration.channel:stop",
    }


class ClientCommands(Commands):
    """`mqbridge client`."""

    PREFIX: ClassVar[str] = "client "

    FUNCTIONS: ClassVar[Mapping[str, str]] = {
        "list": "bridge.cli.administration.client:list_",
        "show": "bridge.cli.administration.client:show",
        "disconnect": "bridge.cli.administration.client:disconnect",
        "purge": "bridge.cli.administration.client:purge",
    }


class MappingCommands(Commands):
    """`mqbridge mapping`."""

    PREFIX: ClassVar[str] = "mapping "

    FUNCTIONS: ClassVar[Mapping[str, str]] = {
        "list": "bridge.cli.administration.mapping:list_",
        "pause": "bridge.cli.administration.mapping:pause",
        "resume": "bridge.cli.administration.mapping:resume",
    }


class TopicCommands(Commands):
    """`mqbridge topic`."""

    PREFIX: ClassVar[str] = "topic "

    FUNCTIONS: ClassVar[Mapping[str, str]] = {
        "list": "bridge.cli.administration.topic:list_",
        "show": "bridge.cli.administration.topic:show",
    }


class LinkCommands(Commands):
    """`mqbridge link`."""

    PREFIX: ClassVar[str] = "link "

    FUNCTIONS: ClassVar[Mapping[str, str]] = {
        "list": "bridge.cli.administration.link:list_",
        "show": "bridge.cli.administration.link:show",
        "test": "bridge.cli.administration.link:test",
    }


class LogCommands(Commands):
    """`mqbridge log`."""

    PREFIX: ClassVar[str] = "log "

    FUNCTIONS: ClassVar[Mapping[str, str]] = {
        "level": "bridge.cli.administration.running:log_level",
    }


class DeadLetterCommands(Commands):
    """`mqbridge dlq`."""

    PREFIX: ClassVar[str] = "dlq "

    FUNCTIONS: ClassVar[Mapping[str, str]] = {
        "list": "bridge.cli.administration.dlq:list_",
        "show": "bridge.cli.administration.dlq:show",
        "retry": "bridge.cli.administration.dlq:retry",
        "export": "bridge.cli.administration.dlq:export",
        "delete": "bridge.cli.administration.dlq:delete",
    }


class PipelineCommands(Commands):
    """`mqbridge pipeline`."""

    PREFIX: ClassVar[str] = "pipeline "

    FUNCTIONS: ClassVar[Mapping[str, str]] = {
        "list": "bridge.cli.pipeline:list_",
        "check": "bridge.cli.pipeline:check",
        "run": "bridge.cli.pipeline:run",
    } | {name: f"bridge.cli.pipeline_administration:{name}" for name in ("show", "stop", "drain", "reset")}


program = typer.Typer(
    cls=BridgeCommands,
    help="A bridge between MQTT clients and IBM MQ.",
    epilog=_EXAMPLES,
    no_args_is_help=True,
    rich_markup_mode=None,
    # `mqbridge completion` instead: it changes no file of the user's.
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
mq = typer.Typer(
    cls=MqCommands,
    help="Be an MQ application at the bridge's queue manager, from another process.",
    short_help="Be an MQ application: put, get, pub, sub, run, display.",
    epilog=_MQ_EXAMPLES,
    no_args_is_help=True,
    rich_markup_mode=None,
)
pipeline = typer.Typer(
    cls=PipelineCommands,
    help="Run pipelines of the configuration file on Spark.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from bridge.cli.service import version

        version()
        raise typer.Exit


@program.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", help="Print the versions and exit.", is_eager=True, callback=_print_version
    ),
) -> None:
    """A bridge between MQTT clients and IBM MQ."""  # noqa: D401 the help of the whole program



def _group(commands: type[Commands], help_: str) -> typer.Typer:
    return typer.Typer(cls=commands, help=help_, no_args_is_help=True, rich_markup_mode=None)


#: What `mqbridge` has beside its own commands: name of a group -> its commands.
GROUPS: Mapping[str, type[Commands]] = {
    "channel": ChannelCommands,
    "client": ClientCommands,
    "topic": TopicCommands,
    "link": LinkCommands,
    "mapping": MappingCommands,
    "dlq": DeadLetterCommands,
    "log": LogCommands,
    "mq": MqCommands,
    "pipeline": PipelineCommands,
}

program.add_typer(_group(ChannelCommands, "Telemetry channels of a running bridge."), name="channel")
program.add_typer(_group(ClientCommands, "MQTT clients and their sessions at a running bridge."), name="client")
program.add_typer(_group(TopicCommands, "Topics: what is retained, and who subscribes."), name="topic")
program.add_typer(_group(LinkCommands, "Links of a running bridge to other MQTT brokers."), name="link")
program.add_typer(_group(MappingCommands, "List, pause and resume the mappings of a running bridge."), name="mapping")
program.add_typer(_group(DeadLetterCommands, "Letters on the dead-letter queue, as an MQ application."), name="dlq")
program.add_typer(_group(LogCommands, "The log of a running bridge."), name="log")
program.add_typer(mq, name="mq")
program.add_typer(pipeline, name="pipeline")

if "_MQBRIDGE_COMPLETE" in os.environ:
    # The script of `mqbridge completion` asks. typer makes its shells known only where it has its own options for them.
    from typer.completion import completion_init  # type: ignore[attr-defined]

    completion_init()
