"""The pages of the reference, made of what the bridge itself says of its options, commands, log and metrics."""

from __future__ import annotations

import html
import inspect
import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]

Schema = Mapping[str, Any]

NOTHING: Schema = {"type": "null"}
#: Types of JSON Schema in words.
WORDS: Mapping[str, str] = {
    "integer": "a number",
    "number": "a number",
    "boolean": "`true`, `false`",
    "string": "a text",
    "null": "null",
}
#: what is in the pattern of a text that is a number with a unit -> that in words
QUANTITIES: Mapping[str, str] = {
    "[Mm][Ii][Bb]": "a size such as `1 MiB`",
    "(ms|s|min|h": "a time such as `10 s`",
    "?%$": "a percentage such as `50%`",
}

#: The two kinds of mappings, which their headings tell apart.
DIRECTIONS: Mapping[str, str] = {"ToMqMapping": " (to MQ)", "ToMqttMapping": " (to MQTT)"}


def configuration() -> str:
    """Return the page of the configuration file: a section for each part of it, with its options."""
    from bridge.config.json_schema import json_schema

    schema = json_schema()
    models: Schema = schema["$defs"]
    lines = [
        "# Configuration file",
        "",
        "`mqbridge check bridge.yaml` says what a file means, `mqbridge schema` prints this as JSON Schema, for editors.",
    ]
    in_both = set(_models(models["ToMqMapping"])) & set(_models(models["ToMqttMapping"]))
    told: dict[str, str] = {}
    waiting: list[tuple[str, Schema]] = [("The file", schema)]
    while waiting:
        place, model = waiting.pop(0)
        below = [
            (name if place == "The file" else f"{place.partition(' (')[0]}.{name}", lower)
            for name, option in model.get("properties", {}).items()
            for lower in _models(option)
        ]
        for path, name in below:
            if name not in told:
                told[name] = f"{path}{_constant(models[name]) or DIRECTIONS.get(name) or _direction(name, place, in_both)}"
                waiting.append((told[name], models[name]))
        lines += ["", f"## {place}", "", _text(model.get("description", "")), ""]
        lines += ["| option | value | default | |", "|---|---|---|---|"]
        required = set(model.get("required", ()))
        for name, option in model.get("properties", {}).items():
            default = "**needed**" if name in required else _default(option)
            lines.append(f"| `{name}` | {_value(option, told)} | {default} | {_text(option.get('description', ''))} |")
    return "\n".join(lines) + "\n"


def _direction(name: str, place: str, in_both: Collection[str]) -> str:
    """Return the way that a mapping goes, as the heading of a part of it has it, where the other way has none such."""
    return next((way for way in DIRECTIONS.values() if place.endswith(way) and name not in in_both), "")


def _models(schema: object) -> Iterator[str]:
    """Yield the names of the models that a schema refers to."""
    if isinstance(schema, Mapping):
        for key, value in schema.items():
            if key == "$ref":
                yield str(value).rpartition("/")[2]
            else:
                yield from _models(value)
    elif isinstance(schema, list):
        for one in schema:
            yield from _models(one)


def _constant(model: Schema) -> str:
    """Return what tells a model from others that may stand in its place, as its heading has it."""
    found = [str(option["const"]) for option in model.get("properties", {}).values() if "const" in option]
    return f" ({', '.join(found)})" if found else ""


def _value(option: Schema, told: Mapping[str, str]) -> str:
    """Return in words what an option may be, with links to the sections of models. That it may be null, its default says."""
    if "$ref" in option:
        place = told[str(option["$ref"]).rpartition("/")[2]]
        return f"[{place}](#{_anchor(place)})"
    if "additionalProperties" in option:
        return f"by name, each {_value(option['additionalProperties'] or {}, told)}"
    if "items" in option:
        return f"a list of {_value(option['items'], told)}"
    if kinds := _alternatives(option):
        return " or ".join(dict.fromkeys(_value(kind, told) for kind in kinds if kind != NOTHING))
    if "enum" in option or "const" in option:
        return ", ".join(f"`{one}`" for one in option.get("enum") or [option["const"]])
    pattern = str(option.get("pattern", ""))
    word = next((words for sign, words in QUANTITIES.items() if sign in pattern), None)
    word = word or WORDS.get(str(option.get("type")), "any value")
    if "minimum" in option and "maximum" in option:
        return f"{word} from {option['minimum']} to {option['maximum']:.12g}"
    return word


def _alternatives(option: Schema) -> list[Schema]:
    """Return the schemas of which any one may hold."""
    if isinstance(types := option.get("type"), list):
        return [{"type": one} for one in types]
    if "allOf" in option:
        return [kind["then"] for kind in option["allOf"]]
    return option.get("anyOf") or [option[word] for word in ("else", "then") if word in option]


def _default(option: Schema) -> str:
    if option.get("default") in ("", None):
        plain = not any(True for _ in _models(option)) and not re.search("'items'|additionalProperties", str(option))
        return "`null`" if plain and NOTHING in _alternatives(option) else ""
    match option["default"]:
        case bool(default):
            return f"`{str(default).lower()}`"
        case float(default):
            return f"`{default:.12g}`"
        case default:
            return f"`{default}`"


def _anchor(place: str) -> str:
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", place).strip().lower())


def _text(text: str) -> str:
    """Return a text, which may have code between backticks, as it may stand in a cell of a table."""
    parts = [html.escape(part, quote=False) for part in re.split(r"`([^`]+)`", " ".join(text.split()))]
    parts[1::2] = [f"<code>{code}</code>" for code in parts[1::2]]
    return "".join(parts).replace("|", "&#124;").replace("*", "&#42;")


def templates() -> str:
    """Return the page of the templates of mappings."""
    from bridge.mapping.rules.template import WORDS, filters_in_words
    from bridge.wire.mq import MQMD

    lines = ["# Templates of mappings", ""]
    lines += ["`{name}` stands for a part of the message, `{name|filter|filter}` for what filters make of it; `{{` and `}}`"]
    lines += ["are braces. Where a name has no value, the message goes to the dead-letter queue."]
    lines += ["", "## Names", "", "| name | what it stands for |", "|---|---|"]
    lines += ["| a name of `from` | what it has captured of the topic |"]
    lines += [f"| `{name}` | {_text(words)} |" for name, words in WORDS.items()]
    lines += ["| `usr.site`, `mqps.Top` | a message property, by its folder and name |"]
    lines += ["| any other word | the property of that name in folder `usr`; of a publication, its User Property |"]
    lines += ["", "## Fields of the MQMD", ""]
    lines += ["Of a message from MQ; bytes are hexadecimal, characters have no blanks at their end."]
    lines += ["", ", ".join(f"`md.{field}`" for field in MQMD.__struct_fields__)]
    lines += ["", "## Filters", "", "| filter | what it makes of a value |", "|---|---|"]
    lines += [f"| `{name}` | {_text(words)} |" for name, words in filters_in_words().items()]
    return "\n".join(lines) + "\n"


def commands() -> str:
    """Return the page of the command line."""
    from typer.main import get_command

    from bridge.cli.program import program

    command: Any = get_command(program)
    context = command.make_context("mqbridge", [], resilient_parsing=True)
    lines = ["# Commands", "", "Exit status: 0 when all was done, 1 when something could not be done, 2 when the command"]
    lines += ["or a configuration file is not what it should be. A command that has others says so."]
    for heading, names in command.SECTIONS.items():
        lines += ["", f"## {heading}"]
        for name in names:
            lines += _command(command.get_command(context, name), context, name)
    return "\n".join(lines) + "\n"


def _command(command: Any, parent: Any, name: str) -> list[str]:
    from bridge.cli.examples import EXAMPLES

    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    if hasattr(command, "list_commands"):
        return [
            line
            for lower in command.list_commands(context)
            for line in _command(command.get_command(context, lower), context, lower)
        ]
    path = context.command_path.removeprefix("mqbridge ")
    usage = " ".join(command.collect_usage_pieces(context))
    lines = ["", f"### {path}", "", f"`mqbridge {path} {usage}`", ""]
    lines += [html.escape(line, quote=False) for line in inspect.cleandoc(command.help or "").splitlines()]
    records = [one.get_help_record(context) for one in command.get_params(context)]
    options = [one for one in records if one is not None and "--help" not in one[0]]
    if options:
        lines += ["", "| option | |", "|---|---|", *(f"| {_text(f'`{one[0]}`')} | {_text(one[1])} |" for one in options)]
    return [*lines, "", "```console", *(f"$ {line}" for line in EXAMPLES[path]), "```"]


def messages() -> str:
    """Return the page of the lines of the log."""
    from bridge.log_messages.catalogue import catalogue

    lines = [
        "# Lines of the log",
        "",
        "Each begins with an identifier. Its last letter: I information, W warning, E error, S severe. `mqbridge explain",
        "IDENTIFIER` says what stands here.",
    ]
    for identifier, one in catalogue().items():
        lines += ["", f"## {identifier}", "", f"`{one.text}`", ""]
        lines += [f"**What happened.** {_text(one.happened)}", "", f"**Why.** {_text(one.why)}", ""]
        lines += [f"**What to do.** {_text(one.do)}"]
    return "\n".join(lines) + "\n"


def metrics() -> str:
    """Return the page of the metrics."""
    from bridge.service.metrics.catalogue import table

    return table() + "\n"


def alerts() -> str:
    """Return the page of the alerts of deploy/alerts.yaml."""
    lines = [
        "# Alerts",
        "",
        "`deploy/alerts.yaml` has them for Prometheus; INSTANCE and other words in capitals stand for labels and values.",
    ]
    (group,) = yaml.safe_load((ROOT / "deploy" / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]:
        told = {name: _text(_without_templates(text)) for name, text in rule["annotations"].items()}
        lines += ["", f"## {rule['alert']}", "", f"{told['summary']} ({rule['labels']['severity']})", ""]
        lines += [f"**What happens.** {told['description']}", "", f"**What to do.** {told['action']}"]
    return "\n".join(lines) + "\n"


def _without_templates(text: str) -> str:
    """Return an annotation of an alert with the name of a label where Prometheus puts its value."""
    return re.sub(r"\{\{ \$(?:labels\.)?(\w+)[^}]*\}\}", lambda found: found[1].upper(), text)


def mqsc() -> str:
    """Return the page of the MQSC commands that the embedded queue manager knows."""
    from bridge.mq.embedded.attributes import ATTRIBUTES

    lines = ["# MQSC of the embedded queue manager", "", "By `mqbridge mq run` and `mq display`, or in a PCF Escape.", ""]
    lines += ["## Commands", "", "| verb | of |", "|---|---|"]
    nouns: dict[str, list[str]] = {}
    for verb, noun in _mqsc_commands():
        nouns.setdefault(verb, []).append(noun)
    lines += [f"| {verb} | {', '.join(sorted(nouns[verb]))} |" for verb in sorted(nouns)]
    lines += ["", "The attributes of each kind of object follow; those of IBM MQ that are not here are refused by name."]
    for noun, attributes in ATTRIBUTES.items():
        lines += ["", f"## {noun}", "", "| attribute | value | default |", "|---|---|---|"]
        for keyword, kind in attributes.items():
            default = f"`{kind.default}`" if kind.default != "" else ""
            lines.append(f"| `{keyword}` | {_text(_attribute(kind))} | {default} |")
    return "\n".join(lines) + "\n"


def _mqsc_commands() -> list[tuple[str, str]]:
    """Return the commands of an embedded queue manager, which is made for that and is gone again."""
    from bridge.mq.embedded.mqsc.commands import Commands
    from bridge.mq.embedded.queuemanager import QueueManager

    with tempfile.TemporaryDirectory() as directory:
        queue_manager = QueueManager("MQB1", Path(directory))
        try:
            return list(Commands(queue_manager).known())
        finally:
            queue_manager.close()


def _attribute(kind: object) -> str:
    from bridge.mq.embedded.attributes import Choice, Names, Number, Text, Words

    match kind:
        case Choice(words=words):
            return ", ".join(words)
        case Words(words=words):
            return f"some of {', '.join(words)}"
        case Number(low=low, high=high, words=words):
            return " or ".join((f"a number from {low} to {high}", *words))
        case Text(length=length, name=name):
            return f"{'a name' if name else 'text'} of at most {length} characters"
        case Names():
            return "names of objects"
        case _:
            raise TypeError(f"{kind!r} is no attribute")


#: name of a page -> what makes it
PAGES: Mapping[str, Callable[[], str]] = {
    "configuration": configuration,
    "templates": templates,
    "commands": commands,
    "messages": messages,
    "metrics": metrics,
    "alerts": alerts,
    "mqsc": mqsc,
}
