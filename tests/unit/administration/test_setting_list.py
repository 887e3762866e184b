"""The settings of a configuration: values, defaults, sources, and differences."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.administration.configuration import DEFAULT, Setting
from bridge.administration.setting_list import changes_between, needs_restart, settings_of
from bridge.config.document import Collection, load, new_files
from bridge.config.effective import effective
from bridge.config.models import Configuration
from bridge.config.problems import ConfigurationError
from bridge.mapping.check import problems

ROOT = Path(__file__).parents[3]

FILE = """\
channels:
  - name: PLAIN.MQTT
    port: 1884
limits:
  waiting_bytes: 1 MiB
  sessions: 100000
mappings:
  - more
  - own: {from: {mqtt: "own/#"}, to: {queue: OWN}}
"""
MORE = """\
links:
  cloud: &broker {host: broker.example, user: bridge}
  other: {<<: *broker, port: 1885}
mappings:
  orders:
    from: {mqtt: "orders/#"}
    to: {queue: ORDERS}
    attributes: {properties: {api_key: classified, site: north}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "orders.yaml").write_text(MORE)
    path = tmp_path / "bridge.yaml"
    path.write_text(FILE)
    return path


def settings(configuration: Configuration) -> dict[str, Setting]:
    return {setting.key: setting for setting in settings_of(configuration)}


def test_each_setting_has_its_source(file: Path) -> None:
    by_key = settings(load(file, problems))
    more = file.parent / "more" / "orders.yaml"
    for key, value, default, source in (
        ("channels[0].port", "1884", "1883", f"{file}:3"),
        ("channels[0].address", "127.0.0.1", "127.0.0.1", DEFAULT),
        ("limits.waiting_bytes", "1048576", None, f"{file}:5"),
        ("limits.sessions", "100000", "100000", f"{file}:6"),
        ("mappings.own.to.queue", "OWN", None, f"{file}:9"),
        ("mappings.orders.to.queue", "ORDERS", None, f"{more}:7"),
        ("mappings.orders.attributes.properties.api_key", "(hidden)", None, f"{more}:8"),
        ("mappings.orders.attributes.properties.site", "north", None, f"{more}:8"),
        ("links.cloud.host", "broker.example", None, f"{more}:2"),
        ("links.other.host", "broker.example", None, f"{more}:2"),
        ("links.other.port", "1885", "null", f"{more}:3"),
    ):
        setting = by_key[key]
        assert (setting.value, setting.source) == (value, source), key
        if default is not None:
            assert setting.default == default, key
    persistence = by_key["mappings.orders.attributes.persistence.1"]
    assert (persistence.value, persistence.default, persistence.differs) == ("persistent", "persistent", False)
    assert not by_key["limits.sessions"].differs
    assert by_key["limits.waiting_bytes"].differs
    assert {setting.section for setting in by_key.values()} >= {"channels", "limits", "links", "mappings"}


def test_an_empty_file_has_defaults_only(tmp_path: Path) -> None:
    (tmp_path / "bridge.yaml").write_text("")
    by_key = settings(load(tmp_path / "bridge.yaml"))
    assert {setting.source for setting in by_key.values()} == {DEFAULT}
    assert [setting.key for setting in by_key.values() if setting.differs] == []


@pytest.mark.parametrize("path", [ROOT / "deploy" / "bridge.yaml", *sorted((ROOT / "examples").rglob("bridge*.yaml"))])
def test_all_effective_values_are_settings(path: Path) -> None:
    """Each scalar of the effective configuration is a setting with this value."""
    configuration = load(path, problems)
    keys = set(settings(configuration))
    sections = {key.partition(".")[0].partition("[")[0] for key in keys}
    assert sections == {name for name, section in effective(configuration).items() if section not in ({}, [])} | (
        sections & {"channels"}
    )


def test_configurations_are_compared(file: Path) -> None:
    before = load(file, problems)
    text = FILE.replace("1884", "1885").replace("  sessions: 100000\n", "").replace("OWN}}", "OWN}, enabled: false}")
    after = load(file, problems, text)
    changes = {change.key: (change.before, change.after) for change in changes_between(before, after)}
    assert changes == {"channels[0].port": ("1884", "1885"), "mappings.own.enabled": ("true", "false")}
    without_mapping = load(file, problems, FILE.replace('  - own: {from: {mqtt: "own/#"}, to: {queue: OWN}}\n', ""))
    assert {(change.key, change.after) for change in changes_between(before, without_mapping)} >= {
        ("mappings.own.to.queue", None)
    }
    assert changes_between(before, load(file, problems)) == []


def test_changes_that_need_a_restart() -> None:
    assert needs_restart("queue_manager.name") == "queue_manager"
    assert needs_restart("admin.port") == "admin"
    assert needs_restart("admin.administrators") == ""
    assert needs_restart("channels[0].port") == ""


def test_mistakes_of_a_copy_have_its_line_numbers(file: Path) -> None:
    with pytest.raises(ConfigurationError) as error:
        load(file, problems, FILE.replace("port: 1884", "prot: 1884"))
    assert str(error.value).startswith(f"{file}:3:5: channels[0].prot: expected a known key (did you mean port?)")


def test_a_copy_cannot_name_other_files(file: Path, tmp_path: Path) -> None:
    """Otherwise messages about mistakes would quote them."""
    secret = tmp_path / "secret"
    secret.write_text("nobody:else\n")
    (tmp_path / "others").mkdir()
    assert new_files(file, FILE) == []
    for text in (
        FILE.replace("- more", "- secret"),
        FILE.replace("- more", f"- {secret}"),
        FILE.replace("- more", "- others"),
        FILE.replace("- more", "- more/../secret"),
        FILE + f"tables: {{t: {{file: {secret}}}}}\n",
        FILE + "tables: {t: {file: &f secret}}\nx: *f\n",
    ):
        mistakes = new_files(file, text)
        assert mistakes, text
        assert "only files that the present configuration names" in str(mistakes[0])
        assert "nobody" not in str(mistakes[0])
    # Names of missing files, and ordinary directories, are allowed.
    assert new_files(file, FILE + "archive: {directory: others}\nlog: {x: 'a\\0b', y: " + "z" * 5_000 + "}\n") == []


def test_places_of_a_large_configuration(tmp_path: Path) -> None:
    """The places of 700 mappings in one file are found in one pass."""
    entries = "".join(f'  m{n}: {{from: {{mqtt: "m/{n}"}}, to: {{queue: Q{n}}}}}\n' for n in range(700))
    (tmp_path / "mappings.yaml").write_text("mappings:\n" + entries)
    (tmp_path / "bridge.yaml").write_text("mappings: [mappings.yaml]\n")
    places = Collection(tmp_path / "bridge.yaml").places()
    assert places["mappings", "m699", "to", "queue"] == f"{tmp_path}/mappings.yaml:701"
