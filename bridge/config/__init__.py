"""The bridge's configuration: the YAML file as typed models, and errors that name file, line and what was expected."""

from bridge.config.document import default_configuration, describe, load
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
from bridge.config.problems import ConfigurationError, Problem
from bridge.config.queue_manager import (
    BatchConfig,
    EmbeddedQueueManagerConfig,
    IbmQueueManagerConfig,
    ListenerConfig,
    QueueManagerConfig,
    TlsConfig,
)

__all__ = [
    "BatchConfig",
    "ByteOrder",
    "ChannelConfig",
    "Configuration",
    "ConfigurationError",
    "EmbeddedQueueManagerConfig",
    "IbmQueueManagerConfig",
    "LimitsConfig",
    "ListenerConfig",
    "LogConfig",
    "LogFormat",
    "LogLevel",
    "Problem",
    "Protocol",
    "QueueManagerConfig",
    "TlsConfig",
    "default_configuration",
    "describe",
    "load",
]
