"""The mappings over columns: the rules of the service as functions of record batches, for `mapInArrow`.

    from mqbridge import to_messages

    messages = to_messages(publications, "orders", config="bridge.yaml")
    messages.write.format("mq").option("refused", "SYSTEM.DEAD.LETTER.QUEUE")…
    messages.where("refusal IS NOT NULL")          # what cannot be mapped, each with the reason

What comes out is byte for byte what the service makes of the same message, and is put as the service puts it.
"""

from __future__ import annotations

from bridge.spark.mapping.frames import to_messages, to_publications

__all__ = ["to_messages", "to_publications"]
