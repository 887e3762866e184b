"""deploy/bridge.yaml contains each option with its default."""

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from bridge.config.authentication import KEYS, METHODS, ChannelAuthenticationConfig
from bridge.config.document import load
from bridge.config.link import LinkConfig, LinkTlsConfig
from bridge.config.mapping import (
    FilterConfig,
    MappingBatchConfig,
    MappingConfig,
    TextPayload,
    ToMqMapping,
    ToMqttMapping,
)
from bridge.config.models import Configuration, default_configuration
from bridge.config.queue_manager import IbmQueueManagerConfig, ListenerConfig
from bridge.config.tls import ClientTlsConfig

DEPLOY = Path(__file__).parents[3] / "deploy"
#: Parts of mappings that exist in both directions. The shipped file has an example for only one direction.
COMMON = (FilterConfig, TextPayload, MappingBatchConfig)


@pytest.fixture
def uncommented(tmp_path: Path) -> Path:
    """Return the shipped file with all options enabled, except its explanations (`##`)."""
    file = tmp_path / "bridge.yaml"
    file.write_text(re.sub(r"^#(?!#)", "", (DEPLOY / "bridge.yaml").read_text(encoding="utf-8"), flags=re.MULTILINE))
    return file


def test_the_shipped_file_changes_nothing() -> None:
    configuration = load(DEPLOY / "bridge.yaml")
    assert configuration == default_configuration()
    assert configuration.model_fields_set == set()


def test_its_options_have_their_defaults(uncommented: Path) -> None:
    configuration = load(uncommented)
    # A specified data directory is relative to the file, the default to the working directory.
    assert configuration.queue_manager.data_directory == uncommented.parent / "data"
    default = default_configuration()
    directory = {"data_directory": default.queue_manager.data_directory}
    queue_manager = configuration.queue_manager.model_copy(update=directory)
    assert configuration.model_copy(update={"queue_manager": queue_manager}) == default


def test_it_has_every_option(uncommented: Path) -> None:
    def unset(section: BaseModel) -> set[str]:
        return set(type(section).model_fields) - section.model_fields_set

    configuration: Configuration = load(uncommented)
    channel = configuration.channels[0]
    sections = [configuration, configuration.queue_manager, channel, configuration.limits, configuration.log]
    sections += [
        configuration.spark,
        configuration.audit_log,
        configuration.client_history,
        configuration.admin,
        configuration.traces,
    ]
    assert [unset(section) for section in sections] == [set()] * 10


def test_its_example_of_a_listener_works(tmp_path: Path) -> None:
    file = tmp_path / "bridge.yaml"
    file.write_text("queue_manager:\n  " + example_of("listener").replace("\n", "\n  "), encoding="utf-8")
    listener = load(file).queue_manager.listener
    assert listener == ListenerConfig()
    assert unwritten(listener) == set()


def test_its_example_of_tls_for_spark_has_all_options_with_their_defaults(tmp_path: Path) -> None:
    file = tmp_path / "bridge.yaml"
    file.write_text("spark:\n  " + example_of("tls").replace("\n", "\n  "), encoding="utf-8")
    tls = load(file).spark.tls
    assert tls == ClientTlsConfig()
    assert unwritten(tls) == set()


def example_of(key: str, number: int = -1) -> str:
    """Return the example of an option of a section, as YAML. There may be several."""
    text = (DEPLOY / "bridge.yaml").read_text(encoding="utf-8")
    example = re.findall(rf"^##    {key}:\n(?:##      .*\n)+", text, re.M)[number]
    return re.sub("^##    ", "", example, flags=re.M)


@pytest.mark.parametrize(("key", "number"), [("tls", 1), ("websocket", 0)])
def test_its_examples_of_sections_of_a_channel_have_all_options(tmp_path: Path, key: str, number: int) -> None:
    file = tmp_path / "bridge.yaml"
    file.write_text("channels:\n- " + example_of(key, number).replace("\n", "\n  "), encoding="utf-8")
    section = getattr(load(file).channels[0], key)
    assert unwritten(section) == set()
    required = {
        name: getattr(section, name) for name, field in type(section).model_fields.items() if field.is_required()
    }
    assert section == type(section)(**required, **({"key_file": section.key_file} if key == "tls" else {}))


def test_its_example_of_authentication_has_all_methods_and_options(tmp_path: Path) -> None:
    text = (DEPLOY / "bridge.yaml").read_text(encoding="utf-8")
    methods = re.findall(r"^##      - method: .*\n(?:##        .*\n|##      # .*\n(?=##        ))*", text, re.M)
    options_of = {}
    for number, block in enumerate(methods):
        file = tmp_path / f"{number}.yaml"
        lines = re.sub("^##      ", "  ", block, flags=re.M)
        file.write_text(f"channels:\n- authentication:\n{lines}", encoding="utf-8")
        (method,) = load(file).channels[0].authentication
        options_of[method.method] = unwritten(method)
    assert options_of == {name: set() if name != "jwt" else {"JwtAuthenticationConfig.jwks_file"} for name in METHODS}


def test_its_example_of_channel_authentication_is_valid(tmp_path: Path) -> None:
    (configuration,) = examples("channel_authentication", tmp_path)
    assert {record.type for record in configuration.channel_authentication} == set(KEYS)
    written = {name for record in configuration.channel_authentication for name in record.model_fields_set}
    assert written == set(ChannelAuthenticationConfig.model_fields)


def test_its_example_of_ibm_mq_has_all_options_with_their_defaults(tmp_path: Path) -> None:
    text = (DEPLOY / "bridge.yaml").read_text(encoding="utf-8")
    example = re.search(r"^##  queue_manager:\n(?:##    .*\n)+", text, re.M)
    assert example
    file = tmp_path / "bridge.yaml"
    file.write_text(re.sub("^##  ", "", example[0], flags=re.M), encoding="utf-8")
    written = load(file).queue_manager
    assert isinstance(written, IbmQueueManagerConfig) and written.tls is not None
    sections: list[BaseModel] = [written, written.tls, written.batch]
    assert [set(type(section).model_fields) - section.model_fields_set for section in sections] == [set()] * 3
    required = {"name": "QM1", "channel": "MQTT.BRIDGE", "connections": written.connections}
    assert written == IbmQueueManagerConfig(**required, user="mqbridge", tls=written.tls)


def examples(key: str, directory: Path) -> list[Configuration]:
    """Load the examples of a section in the shipped file, each as a separate file."""
    text = (DEPLOY / "bridge.yaml").read_text(encoding="utf-8")
    configurations = []
    for number, example in enumerate(re.findall(rf"^##  {key}:\n(?:##    .*\n)+", text, re.M)):
        file = directory / f"{number}.yaml"
        file.write_text(re.sub("^##  ", "", example, flags=re.M), encoding="utf-8")
        configurations.append(load(file))
    return configurations


def unwritten(section: BaseModel) -> set[str]:
    """Return the options that a section does not specify, at any depth."""
    below = [getattr(section, name) for name in type(section).model_fields]
    missing = {
        f"{type(section).__name__}.{name}" for name in set(type(section).model_fields) - section.model_fields_set
    }
    return missing.union(*(unwritten(section) for section in below if isinstance(section, BaseModel)))


def test_its_example_of_a_link_has_all_options_with_their_defaults(tmp_path: Path) -> None:
    (configuration,) = examples("links", tmp_path)
    (link,) = configuration.links.values()
    assert unwritten(link) == set()
    assert link == LinkConfig(host=link.host, tls=LinkTlsConfig())


def test_its_examples_of_mappings_have_all_options_with_their_defaults(tmp_path: Path) -> None:
    to_mq, to_mqtt = (mapping for each in examples("mappings", tmp_path) for mapping in each.mappings.values())
    assert isinstance(to_mq, ToMqMapping) and isinstance(to_mqtt, ToMqttMapping)
    assert unwritten(to_mq) == set()
    plain = ToMqMapping.model_validate({"from": to_mq.source, "to": to_mq.destination})
    assert to_mq.model_dump() == plain.model_dump()
    common = {f"ToMqttMapping.{name}" for name in MappingConfig.model_fields}
    assert unwritten(to_mqtt) - {f"{kind.__name__}.{name}" for kind in COMMON for name in kind.model_fields} == common
    other = ToMqttMapping.model_validate({"from": to_mqtt.source, "to": to_mqtt.destination})
    assert to_mqtt.model_dump() == other.model_dump()


def test_the_mappings_and_pipelines_of_the_pages_are_valid(tmp_path: Path) -> None:
    pages = [DEPLOY.parent / "docs" / "how-to" / name for name in ("mappings.md", "pipelines.md")]
    text = "".join([page.read_text(encoding="utf-8") for page in pages])
    blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.M | re.S)
    file = tmp_path / "bridge.yaml"
    links = [block for block in blocks if block.startswith("links:")]
    file.write_text(next(block for block in links if "\nmappings:" in block), encoding="utf-8")
    assert {type(mapping) for mapping in load(file).mappings.values()} == {ToMqMapping, ToMqttMapping}
    names: list[str] = []
    for block in blocks:
        if block.startswith("pipelines:"):
            file.write_text(block, encoding="utf-8")
            names += load(file).pipelines
    assert [*dict.fromkeys(names)] == ["events", "orders", "averages", "alarms", "again", "sites", "stock", "chosen"]
