"""The sources `mq` and `mqtt` as pipelines have them: they can be told to end when a batch is done."""
