"""The bridge's configuration: the YAML file as typed models, and errors that name file, line and what was expected."""

from bridge.config.document import default_configuration, describe, load
from bridge.config.models import (
    ByteOrder,
    ChannelConfig,
    Configuration,
    LimitsConfig,
    ListenerConfig,
    LogConfig,
    LogFormat,
    LogLevel,
    Protocol,
    QueueManagerConfig,
)
from bridge.config.problems import ConfigurationError, Problem

__all__ = [
    "ByteOrder",
    "ChannelConfig",
    "Configuration",
    "ConfigurationError",
    "LimitsConfig",
    "ListenerConfig",
    "LogConfig",
    "LogFormat",
    "LogLevel",
    "Problem",
    "Protocol",
    "QueueManagerConfig",
    "default_configuration",
    "describe",
    "load",
]
