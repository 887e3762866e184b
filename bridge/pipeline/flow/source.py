"""The sources `mq` and `mqtt` as pipelines have them: they can be told to end.

A process that ends takes what it has begun to its end: once the file that the option `stop` names is there, a reader plans
no further batch. It is asked for one when the batch before is committed, removes what was in that as always, and says that
it is through by a file of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from bridge.pipeline.mq.origin import READ_OPTIONS as MQ_OPTIONS
from bridge.pipeline.mq.origin import Origin as MqOrigin
from bridge.pipeline.mq.origin import origin_of as mq_origin_of
from bridge.pipeline.mq.stream import MqStreamReader
from bridge.pipeline.mqtt.origin import READ_OPTIONS as MQTT_OPTIONS
from bridge.pipeline.mqtt.origin import Origin as MqttOrigin
from bridge.pipeline.mqtt.origin import origin_of as mqtt_origin_of
from bridge.pipeline.mqtt.stream import MqttStreamReader
from bridge.pipeline.options import Options
from bridge.pipeline.schema import MQ_SCHEMA, MQTT_SCHEMA

#: The option that names a directory, and the files in it: one that asks for the end, and one that answers.
STOP: Final = "stop"
ASKED: Final = "stopping"
ANSWERED: Final = "stopped"


class Valve:
    """The two files of a pipeline's directory by which it is told to end."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def closed(self) -> bool:
        """Whether it is asked to end."""
        return (self.directory / ASKED).exists()

    @property
    def dry(self) -> bool:
        """Whether all that was begun has come to its end."""
        return (self.directory / ANSWERED).exists()

    def open(self) -> None:
        """Before a run. Raises OSError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for name in (ASKED, ANSWERED):
            (self.directory / name).unlink(missing_ok=True)

    def close(self) -> None:
        """Ask for the end. Raises OSError."""
        (self.directory / ASKED).touch()

    def answer(self) -> None:
        """Say that nothing is under way. Raises OSError."""
        (self.directory / ANSWERED).touch()


class _MqReader(MqStreamReader):
    def __init__(self, origin: MqOrigin, directory: str) -> None:
        super().__init__(origin)
        self._valve = Valve(Path(directory))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if not self._valve.closed:
            return super().latestOffset(start, limit)
        self._target = deque()  # nothing is left to plan
        end = super().latestOffset(start, limit)
        self._valve.answer()
        return end


class _MqttReader(MqttStreamReader):
    def __init__(self, origin: MqttOrigin, directory: str) -> None:
        super().__init__(origin)
        self._valve = Valve(Path(directory))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if not self._valve.closed:
            return super().latestOffset(start, limit)
        self._forget(start)
        self._valve.answer()
        return start


class PipelineMqSource(DataSource):
    """The source `mq` of a pipeline."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """For `format`."""
        return "mqbridge_mq"

    def schema(self) -> StructType:
        """The envelope of an MQ message."""
        return MQ_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A streaming read. Raises OptionError."""
        given = dict(self.options)
        return _MqReader(mq_origin(given), given[STOP])


class PipelineMqttSource(DataSource):
    """The source `mqtt` of a pipeline."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """For `format`."""
        return "mqbridge_mqtt"

    def schema(self) -> StructType:
        """The envelope of an MQTT publication."""
        return MQTT_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A streaming read. Raises OptionError."""
        given = dict(self.options)
        return _MqttReader(mqtt_origin(given), given[STOP])


def mq_origin(given: dict[str, str]) -> MqOrigin:
    """What options of `mqbridge_mq` say is to be read. Raises OptionError."""
    return mq_origin_of(Options("from: mq", {name: one for name, one in given.items() if name != STOP}, MQ_OPTIONS))


def mqtt_origin(given: dict[str, str]) -> MqttOrigin:
    """What options of `mqbridge_mqtt` say is to be read. Raises OptionError."""
    return mqtt_origin_of(Options("from: mqtt", {name: one for name, one in given.items() if name != STOP}, MQTT_OPTIONS))
