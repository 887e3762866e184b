"""The catalogue of metrics, and the samples of one scrape."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias

from bridge.administration.histogram import Histogram

Kind = Literal["counter", "gauge", "histogram", "info"]


class Metric(NamedTuple):
    """A metric's definition."""

    name: str
    kind: Kind
    #: the help text, a sentence
    meaning: str
    labels: tuple[str, ...] = ()


_CHANNEL: Final = ("channel",)
_CLIENTS: Final = ("channel", "version")
_MESSAGES: Final = ("channel", "version", "qos")
_QUEUE: Final = ("qmgr", "platform", "queue", "usage")
_QUEUE_MANAGER: Final = ("qmgr", "platform")

METRICS: Final = (
    # The bridge
    Metric("mqbridge_build_info", "info", "Always 1: what runs.", ("version", "python", "compiled")),
    Metric(
        "mqbridge_state", "gauge", "1 for where the bridge stands, 0 for the other states: starting, standing by, running, "
        "stopping.", ("qmgr", "state"),
    ),
    Metric("mqbridge_ready", "gauge", "1 where clients are served, as /readyz says; else 0."),
    Metric(
        "mqbridge_problem", "gauge", "The number of current problems of a kind, as `mqbridge status` lists them; 0 if there "
        "is none.", ("kind",),
    ),
    Metric("mqbridge_start_time_seconds", "gauge", "When this bridge began, since the epoch; counters begin with it."),
    Metric(
        "mqbridge_event_loop_lag_seconds", "histogram", "By how much a timer of the event loop is late, measured twice a "
        "second.",
    ),
    Metric("mqbridge_event_loop_lag_max_seconds", "gauge", "The most that such a timer was late in the last minute."),
    Metric(
        "mqbridge_memory_used_bytes", "gauge", "Resident set size of the bridge's process and of the archive's, at the last "
        "sample.",
    ),
    Metric(
        "mqbridge_memory_watermark_bytes", "gauge", "Memory use above which new messages are rejected; missing without "
        "limits.memory_watermark.",
    ),
    Metric(
        "mqbridge_memory_above_watermark", "gauge", "1 while new messages are rejected because memory use is above the "
        "watermark; else 0.",
    ),
    Metric(
        "mqbridge_memory_rejected_messages_total", "counter", "Publications and puts that were rejected because memory use "
        "was above the watermark.",
    ),
    Metric("mqbridge_units_of_work", "gauge", "Units of work of clients that are under way."),
    Metric(
        "mqbridge_certificate_expiry_timestamp_seconds", "gauge", "When the certificate of a listener ends to be valid, "
        "since the epoch; listener is channel, admin or queue_manager.", ("listener", "channel"),
    ),
    # Clients
    Metric("mqbridge_channel_up", "gauge", "1 where a channel listens, 0 where it is stopped or cannot.", _CHANNEL),
    Metric("mqbridge_connections", "gauge", "Network connections, those included that have not sent CONNECT.", _CHANNEL),
    Metric(
        "mqbridge_connections_refused_total", "counter", "Network connections closed before CONNECT, for there was no room "
        "for them; begins anew when the channel is started.", _CHANNEL,
    ),
    Metric("mqbridge_clients", "gauge", "Clients that are connected.", _CLIENTS),
    Metric("mqbridge_connects_total", "counter", "Clients let in, by CONNACK 0.", _CLIENTS),
    Metric(
        "mqbridge_connects_refused_total", "counter", "Clients refused by CONNACK, by the reason that MQTT 5 names.",
        ("channel", "reason"),
    ),
    Metric("mqbridge_authentications_failed_total", "counter", "Clients that did not show who they are.", _CHANNEL),
    Metric(
        "mqbridge_sessions_refused_total", "counter", "Clients rejected because their client identifier belongs to a session "
        "of another user.", _CHANNEL,
    ),
    Metric(
        "mqbridge_sessions", "gauge", "Sessions; counted every 10 s at most. A channel that is blank is not known.",
        ("channel", "durable", "connected"),
    ),
    Metric(
        "mqbridge_subscriptions", "gauge", "Topic filters that sessions subscribe to; counted every 10 s at most.", _CHANNEL
    ),
    Metric(
        "mqbridge_in_flight_messages", "gauge", "Messages sent that clients still owe PUBACK or PUBCOMP for; counted every "
        "10 s at most.", _CHANNEL,
    ),
    Metric(
        "mqbridge_waiting_messages", "gauge", "Messages that wait for clients that are away, slow, or have their window "
        "full; counted every 10 s at most.", _CHANNEL,
    ),
    Metric(
        "mqbridge_unreleased_publications", "gauge", "Publications received with QoS 2 that clients have not released by "
        "PUBREL; counted every 10 s at most.", _CHANNEL,
    ),
    # Messages
    Metric(
        "mqbridge_publications_total", "counter", "Publications: in, received from clients, whether they are put or refused; "
        "out, sent to clients; neither counts those that come again.", (*_MESSAGES, "direction"),
    ),
    Metric(
        "mqbridge_publication_bytes_total", "counter", "Bytes of the payloads of these publications.",
        (*_MESSAGES, "direction"),
    ),
    Metric(
        "mqbridge_put_seconds", "histogram", "From a PUBLISH received to the end of the unit of work that puts it; of the "
        "first message of each unit, and of 100 units a second at most.", _MESSAGES,
    ),
    Metric(
        "mqbridge_acknowledgement_seconds", "histogram", "From a PUBLISH sent to PUBACK or PUBREC received; of the first "
        "message of each batch of acknowledgements, and of 100 batches a second at most.", _MESSAGES,
    ),
    Metric(
        "mqbridge_delivery_seconds", "histogram", "From a message put to its PUBLISH written (QoS 0) or acknowledged (QoS 1 "
        "and 2), waiting included; of the first message of each batch, and of 100 batches a second at most. "
        "Clocks of two machines are compared where the queue manager is elsewhere.", _MESSAGES,
    ),
    Metric(
        "mqbridge_publications_refused_total", "counter", "Publications of clients that the queue manager refuses, by MQRC.",
        ("channel", "reason"),
    ),
    Metric(
        "mqbridge_units_of_work_failed_total", "counter", "Units of work with publications that could not be committed, by "
        "MQRC; their clients are disconnected.", ("channel", "reason"),
    ),
    Metric(
        "mqbridge_dead_letters_total", "counter", "Messages put to the dead-letter queue, by MQRC: in, publications of "
        "clients; out, messages for clients.", ("direction", "reason"),
    ),
    Metric(
        "mqbridge_messages_discarded_total", "counter", "Messages for clients that were not sent: expired, slow_client (QoS "
        "0), waiting_full, no_local, not_authorized, session_ended, no_session.", ("reason",),
    ),
    Metric("mqbridge_messages_resent_total", "counter", "PUBLISH sent again, with DUP set.", _CLIENTS),
    # Queue manager
    Metric(
        "ibmmq_qmgr_status", "gauge", "Queue manager: 2 (MQQMSTA_RUNNING) where it answers, 0 where it does not.",
        _QUEUE_MANAGER,
    ),
    Metric("ibmmq_queue_depth", "gauge", "Messages on a queue (CURDEPTH).", _QUEUE),
    Metric("ibmmq_queue_attribute_max_depth", "gauge", "Messages that a queue takes (MAXDEPTH).", _QUEUE),
    Metric(
        "ibmmq_queue_oldest_message_age", "gauge", "Seconds since the oldest message of a queue was put (MSGAGE); IBM MQ "
        "tells it where MONQ is set.", _QUEUE,
    ),
    Metric("ibmmq_queue_input_handles", "gauge", "Handles that are open for input from a queue (IPPROCS).", _QUEUE),
    Metric("ibmmq_queue_output_handles", "gauge", "Handles that are open for output to a queue (OPPROCS).", _QUEUE),
    Metric("mqbridge_queues_left_out", "gauge", "Queues that are in none of these metrics, for they are too many."),
    Metric(
        "mqbridge_transmission_queue_depth", "gauge", "Messages on the transmission queue of the bridge, where messages wait "
        "for clients.",
    ),
    Metric(
        "mqbridge_transmission_queue_max_depth", "gauge", "Messages that the transmission queue of the bridge takes.",
    ),
    Metric(
        "mqbridge_transmission_queue_oldest_message_age_seconds", "gauge", "Seconds since the oldest message on the "
        "transmission queue of the bridge was put.",
    ),
    Metric("mqbridge_retained_publications", "gauge", "Retained publications of the embedded queue manager."),
    Metric(
        "mqbridge_commit_seconds", "histogram", "One commit of the queue manager: the write and fsync of a group of units "
        "of work by the recovery log, or MQCMIT.",
    ),
    Metric("mqbridge_commits_failed_total", "counter", "Groups of units of work that could not be committed."),
    Metric("mqbridge_committed_units_of_work_total", "counter", "Units of work that were committed."),
    Metric(
        "mqbridge_recovery_log_written_bytes_total", "counter", "Bytes that the recovery log of the embedded queue manager "
        "has written.",
    ),
    Metric(
        "mqbridge_recovery_log_file_bytes", "gauge", "Size of the files of the embedded queue manager: its database, and the "
        "write-ahead log of that.", ("file",),
    ),
    Metric(
        "mqbridge_disk_full", "gauge", "1 where the disk is full and its reserve given up: nothing persistent is taken; else "
        "0.",
    ),
    # Mappings, links, pipelines
    Metric(
        "mqbridge_mapping_state", "gauge", "1 for the state of a mapping, 0 for the others.", ("mapping", "state")
    ),
    Metric(
        "mqbridge_mapping_messages_total", "counter", "Messages that a mapping has taken, by what became of them: moved, "
        "filtered, cut (they had come round), dead_lettered.", ("mapping", "outcome"),
    ),
    Metric("mqbridge_mapping_commits_total", "counter", "Units of work of a mapping that were committed.", ("mapping",)),
    Metric("mqbridge_mapping_backouts_total", "counter", "Units of work of a mapping that were backed out.", ("mapping",)),
    Metric(
        "mqbridge_mapping_last_error_timestamp_seconds", "gauge", "When something went wrong with a mapping last, since the "
        "epoch.", ("mapping",),
    ),
    Metric(
        "mqbridge_mapping_blocked_queues", "gauge", "Destination queues of a mapping that accept no messages, while messages "
        "for others go on.", ("mapping",),
    ),
    Metric(
        "mqbridge_mapping_blocked_messages", "gauge", "Messages of a mapping that wait for its blocked queues.", ("mapping",),
    ),
    Metric(
        "mqbridge_link_up", "gauge", "1 where the connection of a mapping to the broker of a link is up, else 0.",
        ("link", "mapping"),
    ),
    Metric("mqbridge_link_reconnects_total", "counter", "Connections made after the first one.", ("link", "mapping")),
    Metric(
        "mqbridge_link_publications_total", "counter", "Publications over a link: in, from the broker; out, taken by it.",
        ("link", "mapping", "direction"),
    ),
    Metric(
        "mqbridge_link_publications_refused_total", "counter", "Publications that the broker of a link refuses.",
        ("link", "mapping"),
    ),
    Metric(
        "mqbridge_pipeline_up", "gauge", "1 where a process runs a pipeline on this machine, else 0.", ("pipeline",)
    ),
    Metric(
        "mqbridge_pipeline_rows_total", "counter", "Rows of a pipeline: in, read; out, written; dead_letter; late. They "
        "begin anew with each run.", ("pipeline", "kind"),
    ),
    Metric("mqbridge_pipeline_batches_total", "counter", "Batches of a pipeline that are done.", ("pipeline",)),
    Metric(
        "mqbridge_pipeline_last_batch_timestamp_seconds", "gauge", "When the last batch of a pipeline was done, since the "
        "epoch.", ("pipeline",),
    ),
    Metric(
        "mqbridge_pipeline_last_error_timestamp_seconds", "gauge", "When something went wrong with a pipeline last, since "
        "the epoch.", ("pipeline",),
    ),
    Metric(
        "mqbridge_pipeline_waiting_messages", "gauge", "Messages that waited behind the last batch, where the source tells.",
        ("pipeline",),
    ),
)  # fmt: skip

CATALOGUE: Final = MappingProxyType({metric.name: metric for metric in METRICS})


def table() -> str:
    """Return the catalogue as a Markdown page for docs/."""
    lines = [
        "# Metrics",
        "",
        "What `/metrics` of the admin port holds, beside those of the process and of Python.",
        "",
        "| metric | type | labels | what it tells |",
        "|---|---|---|---|",
    ]
    for one in METRICS:
        labels = ", ".join(f"`{label}`" for label in one.labels)
        lines.append(f"| `{one.name}` | {one.kind} | {labels} | {one.meaning} |")
    return "\n".join(lines)


class Distribution:
    """A snapshot of a histogram: cumulative counts by upper bound, and the sum of the values."""

    __slots__ = ("buckets", "sum")

    def __init__(self, histogram: Histogram) -> None:
        self.buckets = histogram.buckets()
        self.sum = histogram.sum


Value: TypeAlias = float | Distribution


class Samples:
    """Values of the metrics in the catalogue."""

    def __init__(self) -> None:
        self._values: dict[str, list[tuple[tuple[str, ...], Value]]] = {name: [] for name in CATALOGUE}

    def add(self, name: str, value: float | Histogram, *labels: str) -> None:
        """Add a value, with labels in the order of the catalogue. Raises ValueError for a wrong number of labels."""
        if len(labels) != len(CATALOGUE[name].labels):
            raise ValueError(f"{name} has the labels {CATALOGUE[name].labels}, not {labels}")
        taken = Distribution(value) if isinstance(value, Histogram) else float(value)
        self._values[name].append((labels, taken))

    def __iter__(self) -> Iterator[tuple[Metric, list[tuple[tuple[str, ...], Value]]]]:
        """Yield each metric with its values, which may be empty."""
        for name, values in self._values.items():
            yield CATALOGUE[name], values
