"""The bridge's configuration: the YAML file as typed models, and errors that name file, line and what was expected."""

from bridge.config.description import describe
from bridge.config.document import default_configuration, load
from bridge.config.link import LOCAL, LinkConfig, LinkTlsConfig
from bridge.config.mapping import (
    AnyMapping,
    FilterConfig,
    MappingBatchConfig,
    MessageAttributes,
    MqDestination,
    MqSource,
    MqttDestination,
    MqttSource,
    PublicationAttributes,
    TextPayload,
    ToMqMapping,
    ToMqttMapping,
)
from bridge.config.models import (
    ByteOrder,
    ChannelConfig,
    Configuration,
    LimitsConfig,
    LogConfig,
    LogFormat,
    LogLevel,
    Protocol,
)
from bridge.config.pipeline import ChangesConfig, PipelineConfig, PipelineDestination, PipelineSource
from bridge.config.problems import ConfigurationError, Problem
from bridge.config.queue_manager import (
    BatchConfig,
    EmbeddedQueueManagerConfig,
    IbmQueueManagerConfig,
    ListenerConfig,
    QueueManagerConfig,
    TlsConfig,
)
from bridge.config.references import Clash
from bridge.config.standard import StandardProfile, standard_profile

__all__ = [
    "LOCAL",
    "AnyMapping",
    "BatchConfig",
    "ByteOrder",
    "ChangesConfig",
    "ChannelConfig",
    "Clash",
    "Configuration",
    "ConfigurationError",
    "EmbeddedQueueManagerConfig",
    "FilterConfig",
    "IbmQueueManagerConfig",
    "LimitsConfig",
    "LinkConfig",
    "LinkTlsConfig",
    "ListenerConfig",
    "LogConfig",
    "LogFormat",
    "LogLevel",
    "MappingBatchConfig",
    "MessageAttributes",
    "MqDestination",
    "MqSource",
    "MqttDestination",
    "MqttSource",
    "PipelineConfig",
    "PipelineDestination",
    "PipelineSource",
    "Problem",
    "Protocol",
    "PublicationAttributes",
    "QueueManagerConfig",
    "StandardProfile",
    "TextPayload",
    "TlsConfig",
    "ToMqMapping",
    "ToMqttMapping",
    "default_configuration",
    "describe",
    "load",
    "standard_profile",
]
