"""The metrics of the queue manager and its queues."""

from __future__ import annotations

from typing import Final

from bridge.mq.host import QueueManagerStatus
from bridge.service.metrics.samples import Samples

#: MQQMSTA_RUNNING, and what stands for a queue manager that does not answer.
_RUNNING: Final = 2
_AWAY: Final = 0
#: As mq-metric-samples has it of a queue manager on Linux.
_PLATFORM: Final = "UNIX"


def gather_queue_manager(
    samples: Samples, found: QueueManagerStatus | None, name: str, transmission_queue: str
) -> None:
    """Add what the last inspection of a queue manager has found."""
    manager = name, _PLATFORM
    samples.add("ibmmq_qmgr_status", _AWAY if found is None else _RUNNING, *manager)
    if found is not None:
        _add(samples, found, manager, transmission_queue)


def _add(samples: Samples, found: QueueManagerStatus, manager: tuple[str, str], transmission_queue: str) -> None:
    for queue in found.queues:
        labels = (*manager, queue.name, "XMITQ" if queue.transmission else "NORMAL")
        age = queue.oldest_message_age if queue.depth else 0.0
        samples.add("ibmmq_queue_depth", queue.depth, *labels)
        samples.add("ibmmq_queue_attribute_max_depth", queue.max_depth, *labels)
        samples.add("ibmmq_queue_input_handles", queue.input_handles, *labels)
        samples.add("ibmmq_queue_output_handles", queue.output_handles, *labels)
        if age is not None:
            samples.add("ibmmq_queue_oldest_message_age", age, *labels)
        if queue.name != transmission_queue:
            continue
        samples.add("mqbridge_transmission_queue_depth", queue.depth)
        samples.add("mqbridge_transmission_queue_max_depth", queue.max_depth)
        if age is not None:
            samples.add("mqbridge_transmission_queue_oldest_message_age_seconds", age)
    samples.add("mqbridge_queues_left_out", found.left_out)
    if found.retained is not None:
        samples.add("mqbridge_retained_publications", found.retained)
    if found.disk_full is not None:
        samples.add("mqbridge_disk_full", found.disk_full)
    for what, size in found.file_sizes.items():
        samples.add("mqbridge_recovery_log_file_bytes", size, what)
