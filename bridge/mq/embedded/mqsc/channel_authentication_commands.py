"""SET and DISPLAY CHLAUTH: the MQSC commands on channel authentication records.

Source: IBM MQ documentation, "SET CHLAUTH", "DISPLAY CHLAUTH". The records count for telemetry channels. Those of the YAML
file are shown, and set there only; those that commands set are kept by the queue manager, and count beside them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
from pydantic import ValidationError

from bridge.config import ChannelAuthenticationConfig
from bridge.mq.embedded.attributes import Value
from bridge.mq.embedded.mqsc.amq import CommandRefused, message
from bridge.mq.embedded.mqsc.definitions import Answer
from bridge.mq.embedded.mqsc.language import Command, MQSCSyntaxError, Parameter
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.unit import Unit
from bridge.security.channel_authentication import KIND as CHLAUTH, Connecting, is_default, matches_channel

#: Keywords, and the keys of the YAML file.
_KEYS = {
    "TYPE": "type",
    "ADDRESS": "address",
    "CLNTUSER": "client_user",
    "SSLPEER": "ssl_peer",
    "SSLCERTI": "ssl_cert_issuer",
    "USERSRC": "user_source",
    "MCAUSER": "mcauser",
    "USERLIST": "user_list",
    "ADDRLIST": "address_list",
    "WARN": "warn",
    "DESCR": "description",
}
_LISTS = ("USERLIST", "ADDRLIST")
_CHECKS = ("ASQMGR", "REQDADM", "REQUIRED")
_ACTIONS = ("ADD", "REPLACE", "REMOVE", "REMOVEALL")
_OF_FILE = "the bridge's configuration file has that record; change it there"
_ASKED = ("ADDRESS", "CLNTUSER", "SSLPEER", "SSLCERTI")


class ChannelAuthenticationCommands:
    """The CHLAUTH commands of one queue manager. Call them with its lock held."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self._register = queue_manager.channel_authentication

    def set(self, command: Command) -> Answer:
        """Do SET CHLAUTH. Raises MQSCSyntaxError or CommandRefused."""
        if not command.name:
            detail = "CHLAUTH takes the name of a channel, or the beginning of one with *"
            raise MQSCSyntaxError(detail, command.where, "CHLAUTH")
        action = _choice(command.parameter("ACTION"), _ACTIONS) or "ADD"
        kind = command.parameter("TYPE")
        if kind is not None and kind.value == "QMGRMAP":
            return message("AMQ8877I", hint=" It has no effect: no queue manager connects by a telemetry channel."), None
        values: dict[str, Any] = {"channel": command.name}
        hint = ""
        for parameter in command.parameters:
            if parameter.keyword == "ACTION":
                continue
            if parameter.keyword == "CHCKCLNT":
                _choice(parameter, _CHECKS)
                hint = " CHCKCLNT has no effect: queue_manager.listener decides who needs a password."
                continue
            if parameter.keyword not in _KEYS:
                detail = f"SET CHLAUTH knows no {parameter.keyword} here"
                raise MQSCSyntaxError(detail, parameter.where, parameter.keyword)
            values[_KEYS[parameter.keyword]] = _value(parameter)
        if action == "REMOVEALL":
            return self._remove_all(command, values)
        if action == "REMOVE":
            # What identifies it is enough.
            values = {key: value for key, value in values.items() if key not in ("user_source", "mcauser")}
            if not str(values.get("type")).startswith("BLOCK"):
                values["user_source"] = "CHANNEL"
        try:
            record = ChannelAuthenticationConfig.model_validate(values)
        except ValidationError as error:
            detail = "; ".join(one["msg"].removeprefix("expected ") for one in error.errors())
            raise MQSCSyntaxError(f"expected {detail}", command.where, "CHLAUTH") from None
        if record.key in {one.key for one in self._register.of_file}:
            raise CommandRefused("AMQ8101E", detail=_OF_FILE)
        if action == "REMOVE":
            return self._remove(record)
        return self._add(record, hint, replace=action == "REPLACE")

    def _add(self, record: ChannelAuthenticationConfig, hint: str, *, replace: bool) -> Answer:
        known = self._register.known(record.key)
        if known is not None and not replace:
            if not record.type.startswith("BLOCK"):
                raise CommandRefused("AMQ8883E", name=record.channel, kind=record.type)
            lists = {key: [*getattr(known, key), *getattr(record, key)] for key in ("user_list", "address_list")}
            record = record.model_copy(update={key: list(dict.fromkeys(values)) for key, values in lists.items()})
        return message("AMQ8877I", hint=hint), self._kept(record)

    def _remove(self, record: ChannelAuthenticationConfig) -> Answer:
        known = self._register.known(record.key)
        if known is None:
            raise CommandRefused("AMQ8884E", name=record.channel)
        left = {
            key: [one for one in getattr(known, key) if one not in getattr(record, key)]
            for key in ("user_list", "address_list")
        }
        if any(left.values()):
            return message("AMQ8877I", hint=""), self._kept(known.model_copy(update=left))
        return self._dropped([known])

    def _remove_all(self, command: Command, values: dict[str, Any]) -> Answer:
        records = [one for one in self._register.records if (one.channel, one.type) == (command.name, values.get("type"))]
        if not records:
            raise CommandRefused("AMQ8884E", name=command.name)
        if {one.key for one in records} & {one.key for one in self._register.of_file}:
            raise CommandRefused("AMQ8101E", detail=_OF_FILE)
        return self._dropped(records)

    def _kept(self, record: ChannelAuthenticationConfig) -> Unit:
        unit = Unit()
        row = _row(record)
        unit.changes.definitions.append((CHLAUTH, _name(record), row))
        unit.changes.effects.append(lambda: self._register.set(record))
        return unit

    def _dropped(self, records: list[ChannelAuthenticationConfig]) -> Answer:
        unit = Unit()
        hint = ""
        for record in records:
            # That one of the defaults is removed has to be kept, for it is made anew at each start.
            row = _row(record, removed=True) if is_default(record.key) else None
            unit.changes.definitions.append((CHLAUTH, _name(record), row))
            unit.changes.effects.append(partial(self._register.forget, record.key))
            if row is not None:
                hint = " Privileged users are refused all the same, unless a record maps a client to one."
        return message("AMQ8877I", hint=hint), unit

    def show(self, command: Command) -> tuple[str, list[dict[str, Value]]]:
        """Do DISPLAY CHLAUTH: return the AMQ message, and the records.

        MATCH(RUNCHECK) says which record would decide for a client. Raises CommandRefused or MQSCSyntaxError.
        """
        for parameter in command.parameters:
            if parameter.keyword not in (*_KEYS, "MATCH", "ALL", "QMNAME"):
                detail = f"DISPLAY CHLAUTH knows no {parameter.keyword}"
                raise MQSCSyntaxError(detail, parameter.where, parameter.keyword)
        profile = command.name or "*"
        match = _choice(command.parameter("MATCH"), ("EXACT", "GENERIC", "ALL", "RUNCHECK")) or "EXACT"
        if match == "RUNCHECK":
            found = self._run_check(command, profile)
        else:
            kind = command.parameter("TYPE")
            wanted = None if kind is None or kind.value in (None, "ALL") else kind.value
            every = match != "EXACT" or profile.endswith("*")
            found = [
                one
                for one in self._register.records
                if wanted in (None, one.type)
                and (one.channel == profile or (every and matches_channel(profile, one.channel))
                     or (match == "GENERIC" and matches_channel(one.channel, profile)))
            ]  # fmt: skip
        if not found:
            raise CommandRefused("AMQ8884E", name=profile)
        return message("AMQ8878I"), [_shown(one) for one in found]

    def _run_check(self, command: Command, channel: str) -> list[ChannelAuthenticationConfig]:
        """Return the record that decides for a client of these properties; none where the channel's rules hold.

        The client's identifier is not said: as whom a client of a channel with USECLTID(YES) acts is not looked at.
        """
        if channel.endswith("*"):
            raise MQSCSyntaxError("MATCH(RUNCHECK) takes the name of one channel", command.where, "MATCH")
        said = {key: one.value or "" for key in _ASKED if (one := command.parameter(key)) is not None}
        if not said.get("ADDRESS"):
            raise MQSCSyntaxError("MATCH(RUNCHECK) takes the client's ADDRESS", command.where, "ADDRESS")
        user = said.get("CLNTUSER", "")
        client = Connecting(channel, said["ADDRESS"], user, said.get("SSLPEER", ""), said.get("SSLCERTI", ""))
        verdict = self._register.at_work.verdict(client, self._register.own_user(channel, user))
        if verdict.refusal and verdict.record is None:
            raise CommandRefused("AMQ8101E", detail=f"no record decides, and the client is refused: {verdict.refusal}")
        return [] if verdict.record is None else [verdict.record]


def _name(record: ChannelAuthenticationConfig) -> str:
    return " ".join(record.key)


def _row(record: ChannelAuthenticationConfig, **more: Any) -> str:
    return msgspec.json.encode(record.model_dump(exclude_defaults=True) | {"type": record.type} | more).decode()


def _shown(record: ChannelAuthenticationConfig) -> dict[str, Value]:
    shown: dict[str, Value] = {"CHLAUTH": record.channel, "TYPE": record.type, "DESCR": record.description}
    for keyword, key in _KEYS.items():
        value = getattr(record, key)
        if keyword in _LISTS:
            if value:
                shown[keyword] = ",".join(value)
        elif keyword == "WARN":
            shown[keyword] = "YES" if value else "NO"
        elif keyword == "USERSRC":
            if not record.type.startswith("BLOCK"):
                shown[keyword] = value
        elif value is not None:
            shown[keyword] = value
    return shown


def _value(parameter: Parameter) -> Any:
    """Return the value of a parameter as the YAML file has it. Raises MQSCSyntaxError."""
    values = [one for one in parameter.values or () if isinstance(one, str)]
    if parameter.keyword in _LISTS:
        return [one for one in values if one]
    if parameter.keyword == "WARN":
        return _choice(parameter, ("YES", "NO")) == "YES"
    if len(values) != 1 or len(parameter.values or ()) != 1:
        raise MQSCSyntaxError(f"{parameter.keyword} takes one value", parameter.where, parameter.keyword)
    return values[0].strip() or None if parameter.keyword != "DESCR" else values[0]


def _choice(parameter: Parameter | None, known: tuple[str, ...]) -> str | None:
    if parameter is None:
        return None
    if parameter.value not in known:
        raise MQSCSyntaxError(f"{parameter.keyword} is one of {', '.join(known)}", parameter.where, parameter.keyword)
    return parameter.value
