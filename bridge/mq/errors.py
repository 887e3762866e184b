"""The error of the MQ interface: completion code, reason code, and the words that tell a person what to do."""

from __future__ import annotations

from bridge.wire import cmqc


class MQError(Exception):
    """An MQI call that did not complete: MQCC_FAILED (or MQCC_WARNING) with a reason code.

    `reason` is the number of an MQRC_, `detail` says what was being done to which object.
    """

    def __init__(self, reason: int, detail: str = "", comp_code: int = cmqc.MQCC_FAILED) -> None:
        super().__init__(reason, detail, comp_code)
        self.reason = reason
        self.detail = detail
        self.comp_code = comp_code

    @property
    def name(self) -> str:
        """Return the name of the reason code, such as MQRC_Q_FULL."""
        return cmqc.reason_name(self.reason)

    def __str__(self) -> str:
        return f"{self.name} ({self.reason})" + (f": {self.detail}" if self.detail else "")
