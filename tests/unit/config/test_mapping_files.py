"""Mappings in separate files: values of `mappings:`, their order, and the positions of mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.config.advice import advice
from bridge.config.document import load
from bridge.config.models import Configuration
from bridge.config.problems import Clash, ConfigurationError

A = "{from: {mqtt: a}, to: {queue: A}}"
B = "{from: {queue: B}, to: {mqtt: b}}"


def written(directory: Path, **files: str) -> Path:
    """Write files by name (`maps_a` is maps/a.yaml). Return the configuration."""
    for name, text in files.items():
        path = directory / f"{name.replace('_', '/')}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return directory / "bridge.yaml"


def problems(file: Path) -> list[str]:
    with pytest.raises(ConfigurationError) as raised:
        load(file)
    return [line.replace(f"{file.parent}/", "") for line in str(raised.value).splitlines()]


def names(configuration: Configuration) -> list[str]:
    return list(configuration.mappings)


def test_mappings_can_be_in_the_configuration_file(tmp_path: Path) -> None:
    assert names(load(written(tmp_path, bridge=f"mappings: {{a: {A}, b: {B}}}"))) == ["a", "b"]


@pytest.mark.parametrize("text", ["mappings:", "mappings: {}", "mappings: []", "mappings: [{}]", "mappings: [empty]"])
def test_a_configuration_needs_no_mappings(text: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert load(written(tmp_path, bridge=text)) == Configuration()


def test_files_directories_and_mappings_in_one_list(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        bridge=f"mappings: [maps, one.yaml, {{c: {A}, d: {{from: {{queue: D}}, to: {{mqtt: d}}}}}}]",
        maps_b=f"mappings: {{b2: {A}, b1: {B}}}",
        maps_a=f"mappings: {{a1: {A}}}",
        maps_empty="",
        one="mappings:\n  one: {from: {queue: ONE}, to: {mqtt: one}}\nlinks:\n",
    )
    (tmp_path / "maps" / "c.yml").write_text(f"mappings: {{c1: {A}}}")
    (tmp_path / "maps" / ".d.yaml").write_text("backup file of an editor")
    (tmp_path / "maps" / "readme.txt").write_text("no mapping")
    (tmp_path / "maps" / "deeper.yaml").mkdir()
    assert names(load(file)) == ["a1", "b2", "b1", "c1", "one", "c", "d"]


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf").mkdir()
    written(tmp_path / "conf", bridge=f"mappings: [../maps, {tmp_path}/one.yaml]")
    written(tmp_path, maps_a=f"mappings: {{a: {A}}}", one=f"mappings: {{one: {A}}}")
    monkeypatch.chdir(tmp_path)
    assert names(load(Path("conf/bridge.yaml"))) == ["a", "one"]


def test_links_of_a_mapping_file(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        bridge="links: {one: {host: h}}\nmappings: [maps]",
        maps_a="links: {two: {host: i, password_file: pw, tls: {ca_file: ca.pem, key_file: /k, certificate_file: c}}}\n"
        "mappings: {a: {from: {mqtt: a, link: one}, to: {queue: A}}, b: {from: {queue: B}, to: {mqtt: b, link: two}}}",
    )
    links = load(file).links
    assert list(links) == ["one", "two"]
    assert links["two"].password_file == tmp_path / "maps" / "pw"
    assert links["two"].tls is not None
    assert links["two"].tls.ca_file == tmp_path / "maps" / "ca.pem"
    assert links["two"].tls.key_file == Path("/k")


def test_a_mistake_names_its_file(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        bridge=f"mappings:\n- maps\n- a: {A}\n  c: {A[:-1]}, guarantee: once}}\nlog: 5\n",
        maps_a="mappings:\n  a:\n    from: {mqtt: a}\n    to: {queue: A}\n    attributes: {qos: 1}\n",
        maps_b="mappings:\n  b: {from: {mqtt: a, link: x}, to: {queue: A}}\nlinks: {x: {hots: h}}\n",
    )
    assert [line.split(": expected")[0] for line in problems(file)] == [
        "bridge.yaml:3:3: mappings[1].a",
        "bridge.yaml:4:51: mappings[1].c.guarantee",
        "bridge.yaml:5:6: log",
        "maps/a.yaml:5:18: mappings.a.attributes.qos",
        "maps/b.yaml:3:12: links.x.host",
        "maps/b.yaml:3:13: links.x.hots",
    ]


@pytest.mark.parametrize(
    ("files", "messages"),
    [
        (
            {"bridge": f"mappings: [a.yaml, {{m: {A}}}]", "a": f"\nmappings: {{m: {A}}}"},
            "bridge.yaml:1:21: mappings[1].m: expected a name that no other mapping has,"
            " found 'm' again, which is also at a.yaml:2",
        ),
        (
            {"bridge": "links: {l: {host: h}}\nmappings: [a.yaml]", "a": "links: {l: {host: h}}"},
            "a.yaml:1:9: links.l: expected a name that no other link has, found 'l' again, which is also at bridge.yaml:1",
        ),
        (
            {"bridge": "mappings: [a.yaml, ./a.yaml]", "a": ""},
            "bridge.yaml:1:20: mappings[1]: expected each mapping file once, and not this file itself, found a.yaml again",
        ),
        (
            {"bridge": "mappings: [bridge.yaml]"},
            "bridge.yaml:1:12: mappings[0]: expected each mapping file once, and not this file itself,"
            " found bridge.yaml again",
        ),
        (
            {"bridge": "mappings: [missing.yaml]"},
            "bridge.yaml:1:12: mappings[0]: expected the path of a mapping file, or of a directory of such,"
            " found 'missing.yaml', which does not exist",
        ),
        (
            {"bridge": "mappings: [5]"},
            "bridge.yaml:1:12: mappings[0]: expected the path of a mapping file or a directory of such, or mappings by"
            " name, found 5",
        ),
        (
            {"bridge": "mappings: [a.yaml]", "a": "mappings: [b.yaml]"},
            "a.yaml:1:11: mappings: expected mappings by name, because a mapping file names no further files, found a list",
        ),
        (
            {"bridge": "mappings: [a.yaml]", "a": "mappings: 5\nlinks: x"},
            "a.yaml:1:11: mappings: expected a mapping (lines of 'key: value'), found 5\n"
            "a.yaml:2:8: links: expected a mapping (lines of 'key: value'), found 'x'",
        ),
        (
            {"bridge": "mappings: [a.yaml]", "a": "mapings: {}"},
            "a.yaml:1:1: mapings: expected a known key (did you mean mappings?), found 'mapings'",
        ),
        (
            {"bridge": "mappings: [a.yaml]\nlog: 5", "a": "mappings: {"},
            "bridge.yaml:2:6: log: expected a mapping (lines of 'key: value'), found 5\n"
            "a.yaml:1:12: expected a value, found <stream end>",
        ),
        (
            {"bridge": "mappings: [a.yaml]", "a": "standard: {to_mq: {priority: 4}}"},
            "a.yaml:1:11: standard: expected exactly the standard profile, because it cannot be changed (write"
            " attributes: in a mapping instead), found a mapping",
        ),
    ],
)
def test_a_mistake_in_the_list_of_files_is_reported(files: dict[str, str], messages: str, tmp_path: Path) -> None:
    assert problems(written(tmp_path, **files)) == messages.splitlines()


def test_semantic_mistakes_are_reported_at_their_position(tmp_path: Path) -> None:
    names: list[tuple[list[str], list[str]]] = []

    def examine(configuration: Configuration, _: object) -> list[Clash]:
        names.append((list(configuration.mappings), list(configuration.links)))
        return [Clash(("mappings", "a", "from", "mqtt"), "something else")]

    file = written(
        tmp_path,
        bridge="links: {l: {host: h}}\nmappings: [a.yaml]",
        a=f"mappings:\n  a: {A}\n  b: {B[:-1]}, batch: 5}}",
    )
    with pytest.raises(ConfigurationError) as raised:
        load(file, examine)
    # Valid mappings are examined, even if another one is invalid.
    assert names == [(["a"], ["l"])]
    assert [(problem.file.name, problem.line, problem.column, problem.key) for problem in raised.value.problems] == [
        ("a.yaml", 2, 20, "mappings.a.from.mqtt"),
        ("a.yaml", 3, 47, "mappings.b.batch"),
    ]


STANDARD = Path(__file__).parent / "data" / "standard-0.2.0.yaml"


def test_check_notes_that_a_stated_standard_profile_has_no_effect(tmp_path: Path) -> None:
    configuration = load(written(tmp_path, bridge=f"mappings: [{STANDARD}]"))
    assert configuration == Configuration()
    assert list(configuration.notes) == [
        f"{STANDARD}:7: standard has no effect: it states the defaults (hint: delete it)"
    ]
    assert configuration.notes[0] in list(advice(configuration))
