"""What waits at the source of a pipeline: messages that no batch has read, whether it runs or not."""

from __future__ import annotations

from bridge.config import PipelineConfig
from bridge.mq.mqi import MQError
from bridge.spark.flow.environment import PipelineEnvironment
from bridge.spark.flow.sources.shutdown import STOP
from bridge.spark.foreign_options import MQ_READS
from bridge.spark.mq.browsing import depth, managed_queue, open_for_browse
from bridge.spark.mq.source_options import READ_OPTIONS, source_options_of
from bridge.spark.options import Options
from bridge.spark.spool import spools_below
from bridge.wire import cmqc


def waiting(name: str, config: PipelineConfig, environment: PipelineEnvironment) -> int | None:
    """Return how many messages wait: on its queue (CURDEPTH), on that of its subscription, in its spool.

    Those of the batch under way are among them. None: nobody can say (files of an archive; a queue that is browsed; a
    subscription that is not made yet, or in use at this moment). What waits at a broker is not in it. Raises MQError,
    OSError, OptionError, SpoolDamaged.
    """
    if config.source.archive is not None:
        return None
    if config.source.mq is None:
        spools = spools_below(environment.directory_of(name, config) / "spool")
        return sum(spool.waiting for spool in spools if spool.source == config.source.mqtt)
    given = {key: value for key, value in environment.source_options(name, config).items() if key != STOP}
    options = source_options_of(Options("from: mq", given, READ_OPTIONS, MQ_READS))
    with options.queue_manager.connected() as connection:
        queues = options.queues
        if options.subscription is not None:
            try:
                queues = (managed_queue(connection, options.subscription, None),)
            except MQError as error:
                if error.reason in (cmqc.MQRC_NO_SUBSCRIPTION, cmqc.MQRC_SUBSCRIPTION_IN_USE):
                    return None
                raise
        return sum(depth(connection, open_for_browse(connection, queue)) for queue in queues)
