"""The bridge's configuration: typed models of the YAML file, and error reports with file, line and column."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.config.authentication import ChannelAuthenticationConfig
    from bridge.config.channel import ByteOrder, ChannelConfig, Protocol, WebSocketConfig
    from bridge.config.description import advice, describe
    from bridge.config.document import StandardProfile, load
    from bridge.config.link import LOCAL, LinkConfig
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
    from bridge.config.models import Configuration, LimitsConfig, default_configuration
    from bridge.config.operations import AdminConfig, AuditLogConfig, LogConfig, LogFormat, LogLevel
    from bridge.config.pipeline import ChangesConfig, Destination, PipelineConfig, PipelineSource
    from bridge.config.problems import Clash, ConfigurationError, Problem
    from bridge.config.queue_manager import (
        BatchConfig,
        EmbeddedQueueManagerConfig,
        IbmQueueManagerConfig,
        ListenerConfig,
        QueueManagerConfig,
        TlsConfig,
    )
    from bridge.config.tls import ClientTlsConfig, ListenerTlsConfig

__all__ = [
    "LOCAL",
    "AdminConfig",
    "AnyMapping",
    "AuditLogConfig",
    "BatchConfig",
    "ByteOrder",
    "ChangesConfig",
    "ChannelAuthenticationConfig",
    "ChannelConfig",
    "Clash",
    "ClientTlsConfig",
    "Configuration",
    "ConfigurationError",
    "Destination",
    "EmbeddedQueueManagerConfig",
    "FilterConfig",
    "IbmQueueManagerConfig",
    "LimitsConfig",
    "LinkConfig",
    "ListenerConfig",
    "ListenerTlsConfig",
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
    "WebSocketConfig",
    "advice",
    "default_configuration",
    "describe",
    "load",
]

# Modules are imported on first use of one of their names. A running bridge needs no YAML parser, and the archive process
# needs only one section.
_NAMES = {
    "operations": ("AdminConfig", "AuditLogConfig", "LogConfig", "LogFormat", "LogLevel"),
    "description": ("advice", "describe"),
    "document": ("StandardProfile", "load"),
    "link": ("LOCAL", "LinkConfig"),
    "mapping": (
        "AnyMapping",
        "FilterConfig",
        "MappingBatchConfig",
        "MessageAttributes",
        "MqDestination",
        "MqSource",
        "MqttDestination",
        "MqttSource",
        "PublicationAttributes",
        "TextPayload",
        "ToMqMapping",
        "ToMqttMapping",
    ),
    "authentication": ("ChannelAuthenticationConfig",),
    "channel": ("ByteOrder", "ChannelConfig", "Protocol", "WebSocketConfig"),
    "tls": ("ClientTlsConfig", "ListenerTlsConfig"),
    "models": (
        "Configuration",
        "LimitsConfig",
        "default_configuration",
    ),
    "pipeline": ("ChangesConfig", "Destination", "PipelineConfig", "PipelineSource"),
    "problems": ("Clash", "ConfigurationError", "Problem"),
    "queue_manager": (
        "BatchConfig",
        "EmbeddedQueueManagerConfig",
        "IbmQueueManagerConfig",
        "ListenerConfig",
        "QueueManagerConfig",
        "TlsConfig",
    ),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        globals()[name] = value
        return value
