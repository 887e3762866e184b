"""Rules that Reason Strings of MQTT 5 cite."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from bridge import mqtt
from bridge.mqtt.reason_codes import cite_mqtt_5

#: Rules that hold before MQTT 5 only, or that only errors of the bridge itself violate.
OLDER = re.compile(
    r"MQTT 3\.1 section 3\.10|MQTT 3\.1\.1 (section (3\.1\.2\.2|1\.5\.2|3\.2\.2\.1|3\.9\.3)|table 3\.1)|Remaining Length is"
)


def test_no_rule_cites_an_older_version() -> None:
    rules = [
        node.value
        for file in sorted(Path(mqtt.__path__[0]).glob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and ": " in node.value
        and "\n" not in node.value
    ]
    old = [rule for rule in rules if re.match(r"MQTT (3\.1|3\.1\.1) ", rule) and not OLDER.match(rule)]
    assert old, "the rules are in these modules"
    assert [rule for rule in map(cite_mqtt_5, old) if "3.1" in rule.partition(":")[0].replace("section 3.1", "")] == []
