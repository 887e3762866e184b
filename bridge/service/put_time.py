"""When a message was put: as the queue manager tells it, or as its MQMD does."""

from __future__ import annotations

import calendar

from bridge.telemetry.transmission import Transmission


def put_time_of(transmission: Transmission) -> float:
    """Return when a message was put, in seconds since the epoch; 0.0 where nobody says so."""
    if transmission.put_time:
        return transmission.put_time
    md = transmission.message.md
    return _time(md.PutDate, md.PutTime)


def _time(date: bytes, time: bytes) -> float:
    """Return MQMD.PutDate (YYYYMMDD) and PutTime (HHMMSSTH, in GMT) in seconds since the epoch; 0.0 for what is no time."""
    if len(date) != 8 or len(time) != 8 or not (date + time).isdigit():
        return 0.0
    moment = (
        int(date[:4]), int(date[4:6]), int(date[6:]), int(time[:2]), int(time[2:4]), int(time[4:6]), 0, 0, 0
    )  # fmt: skip
    try:
        return calendar.timegm(moment) + int(time[6:]) / 100
    except ValueError:
        return 0.0
