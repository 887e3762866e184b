"""Administration requests: handlers, results and descriptions agree with them."""

from __future__ import annotations

from types import NoneType
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from bridge.administration.protocol import Answer, Request, result_of, result_type
from bridge.administration.requests import AnyRequest, ExportDeadLetters, ListMappings, Reload
from bridge.service.administration.handlers import HANDLERS

REQUESTS: tuple[type[Request[Any]], ...] = get_args(AnyRequest)


def test_each_request_has_one_handler() -> None:
    assert set(HANDLERS) == set(REQUESTS)


@pytest.mark.parametrize("request_type", REQUESTS)
def test_the_handler_returns_the_result_that_the_request_specifies(request_type: type[Request[Any]]) -> None:
    returned, result = get_type_hints(HANDLERS[request_type])["return"], result_type(request_type)
    assert returned == (Answer if result is NoneType else result)


@pytest.mark.parametrize("request_type", REQUESTS)
def test_a_request_has_a_description(request_type: type[Request[Any]]) -> None:
    assert (request_type.__doc__ or "").partition("\n")[0].endswith(".")


def test_a_result_has_the_type_of_its_request() -> None:
    mappings = msgspec.Raw(b'[{"name": "orders", "state": "running", "taken": 7}]')
    (status,) = result_of(ListMappings(), Answer(result=mappings))
    assert (status.name, status.taken) == ("orders", 7)
    assert result_of(ExportDeadLetters(), Answer(result=msgspec.Raw(b'"lines"'))) == "lines"
    assert result_of(Reload(), Answer(lines=["reloaded"])) is None
