"""The served description is true: a stranger's fuzzer finds no fault and no wrong answer."""

from __future__ import annotations

import os
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from openapi_spec_validator import validate
from schemathesis.generation import GenerationMode

from hushgrid.web.openadr.app import BASE
from tests.web.openadr.judge import operations, ours
from tests.web.openadr.setup import World

EXAMPLES = int(
    os.environ.get("HUSHGRID_EXAMPLES", "3")
)  # of each operation that fit its schema, and as many that do not
SCHEMA = schemathesis.openapi.from_dict(ours())
DESCRIBED = {one.ok().label: one.ok() for one in SCHEMA.get_all_operations()}


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("label", DESCRIBED)
@pytest.mark.sampled
def test_whatever_is_sent_the_answer_is_described(
    vtn: World, label: str, mode: GenerationMode
) -> None:
    operation = DESCRIBED[label]
    something = operation.query or operation.path_parameters or operation.body
    if mode is GenerationMode.NEGATIVE and not something:
        return  # there is nothing to get wrong
    client = "business" if operation.path.startswith(("/vens", "/resources")) else "ven-1"

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def run(case: Any) -> None:
        answer = case.call(base_url=vtn.url, headers=vtn.auth(client))
        case.validate_response(answer)

    run()


def test_the_description_is_openapi_and_names_every_operation(vtn: World) -> None:
    found = httpx.get(f"{vtn.url}/openapi.json").json()
    assert found == ours()
    validate(found)
    named = {
        operation["operationId"]
        for path in found["paths"].values()
        for method, operation in path.items()
        if method != "parameters"
    }
    assert named == {one.name for one in operations()} | {"getAuthServerInfo", "fetchToken"}
    assert found["servers"] == [{"url": BASE}]
