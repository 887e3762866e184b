"""Users of the password files that the configuration names: channels, the console, and MQ applications."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from bridge.administration.answers import PasswordFileStatus
from bridge.administration.protocol import Answer, Invalid, NotFound, Refused
from bridge.administration.requests import DeleteUser, ListUsers, SetPassword, UserChange
from bridge.config.authentication import PasswordAuthenticationConfig, ScramAuthenticationConfig
from bridge.config.queue_manager import EmbeddedQueueManagerConfig
from bridge.security.password_changes import InvalidUser, delete_user, set_password
from bridge.security.password_file import PasswordFileError, read_password_file
from bridge.service.administration.parts import Parts

T = TypeVar("T")

#: Methods of authentication with a password file.
_METHODS = (PasswordAuthenticationConfig, ScramAuthenticationConfig)


def password_files(parts: Parts) -> dict[Path, list[str]]:
    """Return the password files of the configuration, each with the parts of the bridge that use it."""
    configuration = parts.configuration
    files: dict[Path, list[str]] = {}
    for channel in parts.host.telemetry_channels.channels:
        for method in channel.authentication:
            if isinstance(method, _METHODS):
                _add(files, method.file, f"channel {channel.name}")
    for method in configuration.admin.authentication:
        if isinstance(method, _METHODS):
            _add(files, method.file, "console")
    manager = configuration.queue_manager
    listener = manager.listener if isinstance(manager, EmbeddedQueueManagerConfig) else None
    if listener is not None:
        if listener.password_file is not None:
            _add(files, listener.password_file, "MQ applications")
        for method in listener.authentication:
            if isinstance(method, _METHODS):
                _add(files, method.file, "MQ applications")
    return files


def _add(files: dict[Path, list[str]], file: Path, user: str) -> None:
    users = files.setdefault(file, [])
    if user not in users:
        users.append(user)


async def list_users(parts: Parts, request: ListUsers) -> list[PasswordFileStatus]:
    return await asyncio.to_thread(lambda: [_status(file, used_by) for file, used_by in password_files(parts).items()])


def _status(file: Path, used_by: list[str]) -> PasswordFileStatus:
    status = PasswordFileStatus(file=str(file), used_by=used_by, users=[])
    try:
        status.users = sorted(read_password_file(file, plain=True))
    except (OSError, PasswordFileError) as error:
        status.problem = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return status


async def set_user_password(parts: Parts, request: SetPassword) -> Answer:
    file, used_by = _file(parts, request)
    is_new = await _change(lambda: set_password(file, request.user_name, request.password, plain=True))
    lines = [f"{file}: {'added user' if is_new else 'set the password of user'} {request.user_name}"]
    return Answer(lines=lines if is_new else [*lines, *_hints(used_by)])


async def delete_user_of_file(parts: Parts, request: DeleteUser) -> Answer:
    file, used_by = _file(parts, request)
    if not await _change(lambda: delete_user(file, request.user_name, plain=True)):
        raise NotFound(f"{file} has no user {request.user_name!r}")
    return Answer(lines=[f"{file}: deleted user {request.user_name}", *_hints(used_by)])


def _hints(used_by: list[str]) -> list[str]:
    """Return hints on ending connections that were made with a former password."""
    hints = []
    if any(user.startswith("channel ") for user in used_by):
        hints.append("connected clients stay connected; disconnect them to make them log in again")
    if "console" in used_by:
        hints.append("logins at the console end with the next reload")
    return hints


def _file(parts: Parts, request: UserChange) -> tuple[Path, list[str]]:
    """Return the password file of a request, and its users: channels, console or applications. Raises NotFound or Invalid."""
    files = password_files(parts)
    if request.file:
        file = Path(request.file)
        if file not in files:
            raise NotFound(f"{file} is not a password file of the configuration")
        return file, files[file]
    if len(files) != 1:
        names = ", ".join(map(str, files)) or "none"
        raise Invalid(f"name a password file of the configuration: {names}")
    return next(iter(files.items()))


async def _change(change: Callable[[], T]) -> T:
    """Change a file on a separate thread, because hashing takes half a second. Raises Invalid or Refused."""
    try:
        return await asyncio.to_thread(change)
    except InvalidUser as error:
        raise Invalid(str(error)) from error
    except PasswordFileError as error:
        raise Refused(str(error)) from error
    except OSError as error:
        text = f"{error.filename or 'the file'} cannot be written: {error.strerror or error}"
        raise Refused(f"{text}; hint: run `mqbridge passwd` as a user that may write it") from error
