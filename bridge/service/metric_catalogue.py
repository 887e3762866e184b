"""The catalogue of metrics, and the samples of one scrape."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias

from bridge.histogram import Histogram

Kind = Literal["counter", "gauge", "histogram", "info"]


class Metric(NamedTuple):
    """A metric's definition."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    #: the help text, a sentence
    meaning: str


_CHANNEL: Final = ("channel",)
_CLIENTS: Final = ("channel", "version")
_MESSAGES: Final = ("channel", "version", "qos")
_QUEUE: Final = ("qmgr", "platform", "queue", "usage")
_QUEUE_MANAGER: Final = ("qmgr", "platform")

METRICS: Final = (
    # The bridge
    Metric("mqbridge_shard_info", "info", ("number", "of"),
           "The part of the clients that the bridge serves: 0 of 1 without shards."),
    Metric("mqbridge_build_info", "info", ("version", "python", "compiled"),
           "Always 1. The labels contain the versions of the bridge and Python."),
    Metric("mqbridge_state", "gauge", ("qmgr", "state"),
           "1 for the present state of the bridge, 0 for the others: starting, standing by, running, stopping."),
    Metric("mqbridge_ready", "gauge", (), "1 if the bridge serves clients, as reported by /readyz; otherwise 0."),
    Metric("mqbridge_problem", "gauge", ("kind",), "Number of current problems of a kind, as listed by `mqbridge status`."),
    Metric("mqbridge_clock_jumps_total", "counter", (), "Jumps of the system clock by at least 2 seconds."),
    Metric("mqbridge_start_time_seconds", "gauge", (),
           "Start time of the bridge in seconds since the epoch. Counters begin then."),
    Metric("mqbridge_event_loop_lag_seconds", "histogram", (),
           "Delay of a timer of the event loop, measured twice a second."),
    Metric("mqbridge_event_loop_lag_max_seconds", "gauge", (), "Longest delay of such a timer in the last minute."),
    Metric("mqbridge_memory_used_bytes", "gauge", (),
           "Resident set size of the bridge and of the archive process at the last sample."),
    Metric("mqbridge_memory_watermark_bytes", "gauge", (),
           "Memory use above which new messages are rejected. Absent without limits.memory_watermark."),
    Metric("mqbridge_memory_above_watermark", "gauge", (),
           "1 while new messages are rejected because memory use is above the watermark; otherwise 0."),
    Metric("mqbridge_memory_rejected_messages_total", "counter", (),
           "Publications and puts rejected because memory use was above the watermark."),
    Metric("mqbridge_units_of_work", "gauge", (), "Units of work of clients that are in progress."),
    Metric("mqbridge_certificate_expiry_timestamp_seconds", "gauge", ("listener", "channel"),
           "Expiry of a certificate in seconds since the epoch. The listener is channel, admin, queue_manager, link, spark, "
           "key_repository or broker (the certificate of a link's broker). The channel is the name of a channel or link."),
    # Clients
    Metric("mqbridge_channel_up", "gauge", _CHANNEL, "1 if a channel listens; 0 if it is stopped or cannot listen."),
    Metric("mqbridge_connections", "gauge", _CHANNEL, "Network connections, including those that have not sent CONNECT."),
    Metric("mqbridge_connections_refused_total", "counter", _CHANNEL,
           "Connections closed before CONNECT because a limit was reached. Reset when the channel is started."),
    Metric("mqbridge_handshakes_failed_total", "counter", _CHANNEL,
           "Connections closed before CONNECT because the TLS or WebSocket handshake or the PROXY header failed, or CONNECT "
           "did not arrive within connect_timeout. Reset when the channel is started."),
    Metric("mqbridge_clients", "gauge", _CLIENTS, "Connected clients."),
    Metric("mqbridge_connects_total", "counter", _CLIENTS, "Accepted clients (CONNACK 0)."),
    Metric("mqbridge_disconnects_total", "counter", ("channel", "reason"),
           "Closed connections of clients by reason: the name of the MQTT 5 reason code with which the bridge closed them, "
           "disconnected_by_client, connection_lost or transport_error."),
    Metric("mqbridge_connects_refused_total", "counter", ("channel", "reason"),
           "Clients rejected by CONNACK, by the name of the MQTT 5 reason code."),
    Metric("mqbridge_authentications_failed_total", "counter", _CHANNEL, "Clients whose authentication failed."),
    Metric("mqbridge_sessions_refused_total", "counter", _CHANNEL,
           "Clients rejected because their client identifier belongs to a session of another user."),
    Metric("mqbridge_sessions", "gauge", ("channel", "durable", "connected"),
           "Sessions, counted at most every 10 s. The channel is blank if it is unknown."),
    Metric("mqbridge_subscriptions", "gauge", _CHANNEL, "Topic filters of all sessions, counted at most every 10 s."),
    Metric("mqbridge_in_flight_messages", "gauge", _CHANNEL,
           "Messages sent to clients and not acknowledged by PUBACK or PUBCOMP, counted at most every 10 s."),
    Metric("mqbridge_waiting_messages", "gauge", _CHANNEL,
           "Messages in the backlogs of clients, counted at most every 10 s."),
    Metric("mqbridge_unremoved_messages", "gauge", _CHANNEL,
           "Messages that clients have acknowledged, or that were sent with QoS 0, and whose removal from the transmission "
           "queue is not committed, counted at most every 10 s."),
    Metric("mqbridge_removal_limit", "gauge", (),
           "Maximum number of messages sent to one client that are still on the transmission queue: limits.removal_backlog, "
           "or less while removals take longer than a second. IBM MQ only."),
    Metric("mqbridge_unreleased_publications", "gauge", _CHANNEL,
           "QoS 2 publications received for which clients have not sent PUBREL, counted at most every 10 s."),
    # Messages
    Metric("mqbridge_publications_total", "counter", (*_MESSAGES, "direction"),
           "Publications received from clients (in), including rejected ones, and sent to clients (out). Repetitions are not "
           "counted."),
    Metric("mqbridge_publication_bytes_total", "counter", (*_MESSAGES, "direction"), "Payload bytes of these publications."),
    Metric("mqbridge_put_seconds", "histogram", _MESSAGES,
           "Time from receiving a PUBLISH to the end of its unit of work. Measured for the first message of a unit, at most "
           "100 units a second."),
    Metric("mqbridge_acknowledgement_seconds", "histogram", _MESSAGES,
           "Time from sending a PUBLISH to receiving PUBACK or PUBREC. Measured for the first message of a batch, at most "
           "100 batches a second."),
    Metric("mqbridge_delivery_seconds", "histogram", _MESSAGES,
           "Time from the put of a message until its PUBLISH was written (QoS 0) or acknowledged (QoS 1 and 2), including "
           "the time in the backlog. Measured for the first message of a batch, at most 100 batches a second. With IBM MQ, "
           "the clocks of two machines are compared."),
    Metric("mqbridge_table_rows", "gauge", ("table",), "Rows of a table that mappings look up."),
    Metric("mqbridge_table_read_timestamp_seconds", "gauge", ("table",), "Time when the rows in use were read."),
    Metric("mqbridge_table_failures_total", "counter", ("table",),
           "Changes of the file of a table that could not be used."),
    Metric("mqbridge_publications_refused_total", "counter", ("channel", "reason"),
           "Publications of clients that the queue manager or a schema rejected, by MQRC."),
    Metric("mqbridge_invalid_publications_total", "counter", ("channel", "filter", "schema"),
           "Publications of clients whose payload violates a schema of the channel, by topic filter and file name. They are "
           "rejected or dead-lettered."),
    Metric("mqbridge_units_of_work_failed_total", "counter", ("channel", "reason"),
           "Units of work with publications that could not be committed, by MQRC. Their clients are disconnected."),
    Metric("mqbridge_dead_letters_total", "counter", ("direction", "reason"),
           "Dead-lettered messages by MQRC: publications of clients (in) and messages for clients (out)."),
    Metric("mqbridge_messages_discarded_total", "counter", ("reason",),
           "Messages for clients that were not sent, by reason: expired, slow_client (QoS 0), waiting_full, no_local, "
           "not_authorized, undeliverable, session_ended, no_session."),
    Metric("mqbridge_limit_reached_total", "counter", ("limit",),
           "Messages, requests and connections that a limit has rejected: an option of `limits` or of channels, 80 % of "
           "MAXDEPTH of the transmission queue (MAXDEPTH), the backlog of a mapping that reads a topic (mapping_backlog), or "
           "the limit of open files (open_files)."),
    Metric("mqbridge_application_requests_in_progress", "gauge", ("application",),
           "Requests of an application over HTTP in progress, mainly calls that wait for a reply."),
    Metric("mqbridge_application_requests_total", "counter", ("application", "outcome"),
           "Requests of an application over HTTP by outcome: ok, invalid, not_authorized, no_subscriber, busy, "
           "limit, timeout, unavailable or disconnected (before the answer)."),
    Metric("mqbridge_limit_bytes", "gauge", ("limit",), "Value of a limit for all clients together."),
    Metric("mqbridge_limit_used_bytes", "gauge", ("limit",), "Bytes that count for such a limit."),
    Metric("mqbridge_messages_resent_total", "counter", _CLIENTS, "PUBLISH packets sent again with DUP."),
    # Queue manager
    Metric("ibmmq_qmgr_status", "gauge", _QUEUE_MANAGER, "Queue manager: 2 (MQQMSTA_RUNNING) if it answers, otherwise 0."),
    Metric("ibmmq_queue_depth", "gauge", _QUEUE, "Messages on a queue (CURDEPTH)."),
    Metric("ibmmq_queue_attribute_max_depth", "gauge", _QUEUE, "Maximum number of messages on a queue (MAXDEPTH)."),
    Metric("ibmmq_queue_oldest_message_age", "gauge", _QUEUE,
           "Seconds since the oldest message of a queue was put (MSGAGE). IBM MQ reports it only with MONQ."),
    Metric("ibmmq_queue_input_handles", "gauge", _QUEUE, "Handles open for input from a queue (IPPROCS)."),
    Metric("ibmmq_queue_output_handles", "gauge", _QUEUE, "Handles open for output to a queue (OPPROCS)."),
    Metric("mqbridge_queue_manager_logins_rejected_total", "counter", (),
           "Logins of the bridge that the queue manager rejected (MQRC_NOT_AUTHORIZED, MQRC_SECURITY_ERROR). Absent with the "
           "embedded queue manager."),
    Metric("mqbridge_queues_left_out", "gauge", (), "Queues without metrics because there are too many."),
    Metric("mqbridge_transmission_queue_depth", "gauge", (),
           "Messages on the bridge's transmission queue, where messages wait for clients."),
    Metric("mqbridge_transmission_queue_max_depth", "gauge", (),
           "Maximum number of messages on the bridge's transmission queue."),
    Metric("mqbridge_transmission_queue_oldest_message_age_seconds", "gauge", (),
           "Seconds since the oldest message on the bridge's transmission queue was put."),
    Metric("mqbridge_retained_publications", "gauge", (), "Retained publications of the embedded queue manager."),
    Metric("mqbridge_commit_seconds", "histogram", (),
           "Duration of a commit: write and fsync of a group of units of work by the recovery log, or MQCMIT."),
    Metric("mqbridge_commits_failed_total", "counter", (), "Groups of units of work that could not be committed."),
    Metric("mqbridge_committed_units_of_work_total", "counter", (), "Units of work that were committed."),
    Metric("mqbridge_recovery_log_written_bytes_total", "counter", (),
           "Bytes written by the recovery log of the embedded queue manager."),
    Metric("mqbridge_recovery_log_file_bytes", "gauge", ("file",),
           "Sizes of the embedded queue manager's files: the database and its write-ahead log."),
    Metric("mqbridge_disk_full", "gauge", (),
           "1 if the disk is full and its reserve is used, so that persistent messages are rejected; otherwise 0."),
    Metric("mqbridge_witness_failing", "gauge", (),
           "1 if commits cannot be recorded in queuemanager.witness, so that their loss would go unnoticed; otherwise 0."),
    Metric("mqbridge_disk_free_bytes", "gauge", (), "Free space on the disk of the embedded queue manager."),
    Metric("mqbridge_disk_size_bytes", "gauge", (), "Size of the disk of the embedded queue manager."),
    # Mappings, links, pipelines, archive
    Metric("mqbridge_mapping_state", "gauge", ("mapping", "state"),
           "1 for the present state of a mapping, 0 for the others."),
    Metric("mqbridge_mapping_messages_total", "counter", ("mapping", "outcome"),
           "Messages that a mapping has taken, by outcome: moved, filtered, cut (to end a loop), dead_lettered, discarded "
           "(not processed, without room on the dead-letter queue), left_out (by limit, changes or split)."),
    Metric("mqbridge_mapping_left_out_total", "counter", ("mapping", "reason"),
           "Messages that a mapping has taken and left out, by reason: limit, unchanged, no parts."),
    Metric("mqbridge_mapping_parts_total", "counter", ("mapping",),
           "Messages that split has created from the messages that a mapping has moved."),
    Metric("mqbridge_mapping_discarded_total", "counter", ("mapping", "reason"),
           "Messages that a mapping could not process and discarded, because its messages on the dead-letter queue had "
           "reached a limit, by MQRC."),
    Metric("mqbridge_mapping_commits_total", "counter", ("mapping",), "Units of work that a mapping committed."),
    Metric("mqbridge_mapping_backouts_total", "counter", ("mapping",), "Units of work that a mapping backed out."),
    Metric("mqbridge_mapping_last_error_timestamp_seconds", "gauge", ("mapping",),
           "Time of a mapping's last error in seconds since the epoch."),
    Metric("mqbridge_mapping_blocked_queues", "gauge", ("mapping",),
           "Destination queues of a mapping that accept no messages, while messages for others continue."),
    Metric("mqbridge_mapping_blocked_messages", "gauge", ("mapping",),
           "Messages of a mapping that wait for its blocked queues."),
    Metric("mqbridge_mapping_unfinished_messages", "gauge", ("mapping",),
           "Messages in sessions at brokers that a mapping no longer uses, kept until the broker is reachable."),
    Metric("mqbridge_mapping_backlog_messages", "gauge", ("mapping",), "Messages on the source queue of a mapping."),
    Metric("mqbridge_mapping_unit_of_work_seconds", "histogram", ("mapping",),
           "Duration of a mapping's unit of work, from taking its first message to the commit."),
    Metric("mqbridge_link_up", "gauge", ("link", "mapping"),
           "1 if a mapping is connected to the broker of a link; otherwise 0."),
    Metric("mqbridge_link_reconnects_total", "counter", ("link", "mapping"), "Connections made after the first one."),
    Metric("mqbridge_link_publications_total", "counter", ("link", "mapping", "direction"),
           "Publications received from the broker of a link (in) and accepted by it (out)."),
    Metric("mqbridge_link_publications_refused_total", "counter", ("link", "mapping"),
           "Publications that the broker of a link rejected."),
    Metric("mqbridge_link_in_flight_messages", "gauge", ("link", "mapping"),
           "QoS 1 and 2 publications that the broker of a link has not acknowledged."),
    Metric("mqbridge_link_publish_seconds", "histogram", ("link", "mapping"),
           "Duration of a batch of publications to the broker of a link, from the first PUBLISH to the last "
           "acknowledgement."),
    Metric("mqbridge_pipeline_up", "gauge", ("pipeline",), "1 if a process runs a pipeline on this machine; otherwise 0."),
    Metric("mqbridge_pipeline_failing", "gauge", ("pipeline",),
           "1 if a pipeline processes nothing because of an error, or because its process was killed; otherwise 0."),
    Metric("mqbridge_pipeline_rows_total", "counter", ("pipeline", "kind"),
           "Rows of a pipeline by kind: in, out, dead_letter, late, discarded (dead letters beyond "
           "limits.dead_letter_bytes). Reset with each run."),
    Metric("mqbridge_pipeline_batches_total", "counter", ("pipeline",), "Finished batches of a pipeline."),
    Metric("mqbridge_pipeline_last_batch_timestamp_seconds", "gauge", ("pipeline",),
           "End of a pipeline's last batch in seconds since the epoch."),
    Metric("mqbridge_pipeline_last_error_timestamp_seconds", "gauge", ("pipeline",),
           "Time of a pipeline's last error in seconds since the epoch."),
    Metric("mqbridge_pipeline_waiting_messages", "gauge", ("pipeline",),
           "Messages that were waiting after the last batch, if the source reports that."),
    Metric("mqbridge_pipeline_spool_messages", "gauge", ("pipeline",),
           "Messages that a pipeline has taken off their queue, or acknowledged, and not yet processed."),
    Metric("mqbridge_pipeline_unread_messages", "gauge", ("pipeline",),
           "Of these, the messages whose queue or topic the pipeline no longer reads."),
    Metric("mqbridge_pipeline_stage_bytes", "gauge", ("pipeline",),
           "Size of the rows that a pipeline has staged and not yet written."),
    Metric("mqbridge_archive_lost_rows_total", "counter", (),
           "Rows that are missing from the archive because they could not be written in time or at all."),
    Metric("mqbridge_archive_files_missing", "gauge", (),
           "1 if finished files of the archive were missing or truncated when the bridge started, otherwise 0."),
    Metric("mqbridge_client_history_lost_events_total", "counter", (),
           "Events that are missing from the history of clients: there were too many at a time, or writing failed."),
)  # fmt: skip

CATALOGUE: Final = MappingProxyType({metric.name: metric for metric in METRICS})


def table() -> str:
    """Return the catalogue as a Markdown page for docs/."""
    lines = [
        "# Metrics",
        "",
        "Metrics of `/metrics` of the admin port, in addition to those of the process and of Python.",
        "",
        "| metric | type | labels | meaning |",
        "|---|---|---|---|",
    ]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.meaning} |")
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
        sample = Distribution(value) if isinstance(value, Histogram) else float(value)
        self._values[name].append((labels, sample))

    def __iter__(self) -> Iterator[tuple[Metric, list[tuple[tuple[str, ...], Value]]]]:
        """Yield each metric with its values, which may be empty."""
        for name, values in self._values.items():
            yield CATALOGUE[name], values
