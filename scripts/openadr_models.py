"""Prints the pydantic models of the objects of OpenADR, made from its specification.

    python scripts/openadr_models.py openadr-3.1.0.yaml > src/hushgrid/web/openadr/_generated.py

The texts of the specification are left out. `corrected` says what else is changed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
HEADER = '''\
"""Models of OpenADR 3.1.0.

Generated from its specification by scripts/openadr_models.py, which lists the changes: do not edit.
Copyright the OpenADR Alliance. SPDX-License-Identifier: Apache-2.0
"""'''
LISTS = ("Programs", "Reports", "Events", "Subscriptions", "Vens", "Resources")
BASE = "hushgrid.web.openadr"
OPTIONS = (
    "--input-file-type=openapi", "--openapi-scopes", "schemas", "paths", "parameters",
    "--output-model-type=pydantic_v2.BaseModel", "--target-python-version=3.11",
    f"--base-class={BASE}.Members",
    "--base-class-map", json.dumps({f"{n}GetParametersQuery": f"{BASE}.Query" for n in LISTS}),
    "--type-overrides", json.dumps({"DateTime": f"{BASE}.DateTime"}),
    "--type-mappings", "uri=string",
    "--use-annotated", "--use-type-alias", "--enum-field-as-literal=all", "--use-title-as-name",
    "--use-default",
    "--custom-file-header", HEADER, "--formatters=builtin",
)  # fmt: skip
TEXTS = {"description", "summary", "example", "tags"}
PAGE = {"skip": {"default": 0, "maximum": 2**31 - 1}, "limit": {"default": 50}}
URL = r"^https?://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?([/?][!-~]*)?$"


def without_texts(node: Any) -> Any:
    """Return a part of the specification without its descriptions and examples."""
    if isinstance(node, list):
        return [without_texts(each) for each in node]
    if isinstance(node, dict):
        return {name: without_texts(each) for name, each in node.items() if name not in TEXTS}
    return node


def corrected(book: dict[str, Any]) -> dict[str, Any]:
    """Correct what no server can follow, and add what this one asks for."""
    schemas = book["components"]["schemas"]
    # the words of this discriminator would be names of schemas, which no object has
    del schemas["notification"]["properties"]["object"]["discriminator"]
    for kind in ("Ven", "Resource"):
        schemas[f"{kind.lower()}Request"]["discriminator"] = {"propertyName": "objectType"}
        # a ven would have to be a VEN and a BL_VEN_REQUEST
        request = schemas[f"Bl{kind}Request"]
        own = {name: each for name, each in request["properties"].items() if name != "objectType"}
        needed = [name for name in request["required"] if name != "objectType"]
        schemas[kind.lower()]["allOf"][1] = {"properties": own, "required": needed}
    schemas["VenResourceRequest"]["required"].remove("venID")  # by default the sender's
    digits = schemas["duration"]["pattern"].replace(r"\d", "[0-9]")  # of ASCII
    schemas["duration"]["pattern"] = digits.replace("$", r"(?!\n)$")  # Python's $ allows it
    schemas["BlVenRequest"]["properties"]["targets"]["default"] = None  # "null -"
    report = schemas["reportRequest"]["properties"]
    report["resources"]["items"]["title"] = "ReportResource"
    report["reportName"]["maxLength"] = 128  # as every other name
    report["programID"] = {"$ref": "#/components/schemas/objectID"}  # of OpenADR 3.0
    operations = schemas["subscriptionRequest"]["properties"]["objectOperations"]
    operations["minItems"] = 1  # without one there is nothing to notify of
    operation = operations["items"]
    verbs = operation["properties"]["operations"]["items"]
    verbs["enum"] = [*verbs["enum"], "GET", "POST", "PUT"]  # of OpenADR 3.0
    operation["properties"]["callbackUrl"]["pattern"] = URL  # a host and a port, no user
    operation["properties"]["bearerToken"] |= {"pattern": "^[!-~]*$", "maxLength": 4096}
    for path in book["paths"].values():
        for parameter in path.get("get", {}).get("parameters", ()):
            if parameter["name"] in PAGE:
                parameter["required"] = True  # it has a default, and is never null
                parameter["schema"] |= PAGE[parameter["name"]]
    return book


def models(specification: str) -> str:
    """Make the source of the models."""
    book = corrected(without_texts(yaml.safe_load(specification)))
    text = json.dumps(book)
    as_file = ("--stdin-filename=src/hushgrid/web/openadr/_generated.py", "-")
    for command in (
        ["datamodel_code_generator", *OPTIONS],
        ["ruff", "check", "--quiet", "--fix", "--select=I,UP", *as_file],
        ["ruff", "format", "--quiet", *as_file],
    ):
        text = subprocess.run(
            [sys.executable, "-m", *command],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        ).stdout
    return text


if __name__ == "__main__":
    sys.stdout.write(models(Path(sys.argv[1]).read_text()))
