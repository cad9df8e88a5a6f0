"""The promise beside what a ledger has spent, and in the fields of a public registry."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hushgrid.curator.clock import utc
from hushgrid.curator.promise import sentence, zone_assumptions
from hushgrid.curator.registry import registry_facts
from hushgrid.errors import LedgerError
from hushgrid.files.deployment import Promise, ZoneService
from hushgrid.report.registry import registry_entry, registry_prose, statement_prose
from tests.cli.commands import hushgrid
from tests.curator.curators import Shown, curator
from tests.curator.streets import BEGINS, HOUR, load, publish, standing
from tests.curator.worlds import service

WINDOW = ('secret = "interval"', 'secret = "window"\nwindow = "PT12H"')
LEARNED = f"""[learned]
provenance = "pooled"
homes = 20
epsilon = 0.6
digest = "{"ab" * 32}"
first_reading = {utc(BEGINS - 6 * HOUR)}
last_reading = {utc(BEGINS)}

[policy]"""

# what the registry's schema has, with the fields that it requires or that hold an enumeration
SCHEMA: dict[str, dict[str, Any]] = {
    "basic": {
        "name": str,
        "data_curators": list,
        "description": str,
        "intended_use": str,
        "data_product_type": {
            "Summary statistics", "Machine learning model", "Dataset", "Synthetic data",
            "Interactive API", "SQL queries",
        },
        "data_product_region": str,
        "data_product_sector": {
            "Technology", "Healthcare", "Education", "Government", "Energy", "Finance",
        },
        "publication_date": str,
    },
    "dp_variant": {
        "variant_name": {
            "Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom",
        },
        "data_domain": str,
        "unprotected_quantities": str,
    },
    "privacy_loss": {
        "privacy_unit": str,
        "privacy_unit_details": str,
        "number_of_privacy_units": int,
        "privacy_parameters": dict,
        "privacy_parameters_details": str,
    },
    "deployment_model": {
        "model_name": {"Local", "Central", "Shuffle", "Federated", "Varies"},
        "model_name_details": str,
        "trust_assumptions": str,
        "actors": str,
        "release_type": {"One release", "Many releases"},
        "release_type_details": str,
        "data_source_type": {"Static", "Dynamic"},
        "data_source_type_details": str,
        "access_type": {"Interactive", "Non-interactive"},
        "access_type_details": str,
    },
    "implementation": {
        "preprocessing_and_hyperparameter_tuning": str,
        "mechanisms": str,
        "composition": str,
        "post_processing": str,
        "justification": str,
        "utility": str,
        "additional_information": str,
    },
    "administrative": {"status": {"Draft"}, "registry_authors": list, "tier": {1, 2, 3}},
}  # fmt: skip


def check_fields(entry: dict[str, Any]) -> None:
    """Every field of the schema and no other, each of its kind."""
    assert set(entry) == {"url_slug", "deployment"}
    assert set(entry["deployment"]) == set(SCHEMA)
    for part, fields in SCHEMA.items():
        values = entry["deployment"][part]
        assert set(values) == set(fields), part
        for name, kind in fields.items():
            good = values[name] in kind if isinstance(kind, set) else isinstance(values[name], kind)
            assert good, (part, name)
            assert values[name] not in ("", []), (part, name)


@pytest.fixture(scope="module")
def street(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ZoneService]:
    """Thirty hours under a promise of any 12, with models that cost 0.6."""
    folder = tmp_path_factory.mktemp("street")
    zone = load(folder, BEGINS, WINDOW, ("[policy]", LEARNED))
    with curator(folder, zone, Shown(), now=BEGINS) as it:
        publish(it, 30)
    return folder, zone


def test_an_entry_has_the_fields_of_the_registry(street: tuple[Path, ZoneService]) -> None:
    folder, zone = street
    ledger = standing(folder)
    facts = registry_facts(zone, "production", ledger, curator="Elm Power", region="Switzerland")
    entry = registry_entry(facts)
    check_fields(json.loads(json.dumps(entry)))
    parts = entry["deployment"]
    assert parts["basic"]["publication_date"] == "2026-01-01"
    assert parts["dp_variant"]["variant_name"] == "Pure DP"
    loss = parts["privacy_loss"]
    assert loss["privacy_unit"] == "one home, any 12 hours"
    assert loss["privacy_parameters"] == {"epsilon": 1.0, "delta": 0.0}
    assert loss["number_of_privacy_units"] == len(zone.meters)
    details = loss["privacy_parameters_details"]
    assert sentence(zone) in details
    assert all(line in details for line in zone_assumptions(zone))
    assert f"epsilon {ledger.epsilon:.4g}" in details  # over its life
    assert "1 learned model" in details
    assert (
        "epsilon 0.6 for every home"
        in parts["implementation"]["preprocessing_and_hyperparameter_tuning"]
    )
    assert ledger.key in parts["implementation"]["additional_information"]
    # the ledger of this test is a simulation, whatever the file says
    assert facts.open_points == [
        "The noise is simulated and protects no one: this is no deployment."
    ]
    assert "SIMULATED" in parts["implementation"]["mechanisms"]


def test_the_sum_over_the_life_is_beside_the_promise(street: tuple[Path, ZoneService]) -> None:
    folder, zone = street
    facts = registry_facts(zone, "production", standing(folder))
    assert facts.losses is not None
    windows = facts.losses.windows
    assert facts.losses.life == pytest.approx(standing(folder).epsilon)
    assert windows["12 hours"] is not None
    assert windows["12 hours"] <= 1 + 1e-9
    assert windows["12 hours"] < facts.losses.life
    text = statement_prose(facts)
    assert f"any 12 hours: epsilon {windows['12 hours']:.4g}" in text
    assert f"epsilon {facts.losses.life:.4g}" in text
    assert "\n- " in text


@pytest.mark.parametrize("secret", ["step", "interval"])
def test_a_promise_about_occupancy_states_its_own_relation(secret: Any) -> None:
    zone = replace(service(), promise=Promise(secret, 0.5))
    facts = registry_facts(zone, "production", None)
    entry = registry_entry(facts)
    check_fields(json.loads(json.dumps(entry)))
    parts = entry["deployment"]
    assert parts["dp_variant"]["variant_name"] == "Custom"
    for name in ("Input metric", "Bound on input distance", "Output measure", "Bound on output"):
        assert name in parts["privacy_loss"]["privacy_unit_details"]
    assert facts.unit.startswith("one home, its occupancy in ")
    assert "Give --curator, who publishes the prices." in facts.open_points
    assert "Nothing is published yet, so there is no day of publication." in facts.open_points
    assert "Before it is handed in:" in registry_prose(entry, facts.open_points)


def test_another_promise_than_that_of_the_ledger_is_refused(
    street: tuple[Path, ZoneService],
) -> None:
    folder, zone = street
    assert zone.promise is not None
    other = replace(zone, promise=replace(zone.promise, epsilon=0.5))
    with pytest.raises(LedgerError, match="epsilon 1 about any 12 hours and the file"):
        registry_facts(other, "production", standing(folder))


def test_the_command(street: tuple[Path, ZoneService], tmp_path: Path) -> None:
    folder, _ = street
    file, ledger, out = folder / "service.toml", folder / "ledger.db", tmp_path / "entry.json"
    answer = hushgrid("certificate", file, "--ledger", ledger)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "Unit: one home, any 12 hours. Epsilon 1, delta 0." in answer.stdout
    answer = hushgrid(
        "certificate", file, "--ledger", ledger, "--registry", "--curator", "Elm Power",
        "--region", "Switzerland", "--out", out, "--json", "-",
    )  # fmt: skip
    assert (answer.returncode, answer.stderr) == (0, "")
    values = json.loads(answer.stdout)
    assert values["entry"] == json.loads(out.read_text())
    assert values["unit"] == "one home, any 12 hours"
    assert values["spent"]["life"] > values["epsilon"]
    check_fields(values["entry"])
    text = hushgrid("certificate", file, "--ledger", ledger, "--registry").stdout
    assert "privacy_loss\n  privacy_unit: one home, any 12 hours" in text
    assert max(map(len, text.splitlines())) <= 110


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--zone", "oak"], "give one of them with --zone"),
        (["--out", "entry.json"], "with --registry"),
        (["--registry", "--out", "entry.yaml"], "ends with .json"),
        (["--ledger", "absent.db"], "absent.db does not exist"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(
    street: tuple[Path, ZoneService], words: list[str], why: str
) -> None:
    answer = hushgrid("certificate", street[0] / "service.toml", *words)
    assert (answer.returncode, answer.stdout, answer.stderr.count("\n")) == (2, "", 1)
    assert why in answer.stderr


def test_a_changed_ledger_says_nothing(street: tuple[Path, ZoneService], tmp_path: Path) -> None:
    folder, _ = street
    export = tmp_path / "ledger.ndjson"
    hushgrid("ledger", "export", folder / "ledger.db", "--out", export)
    export.write_text(export.read_text().replace('"scale":', '"scale":1', 1))
    answer = hushgrid("certificate", folder / "service.toml", "--ledger", export)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "of the ledger is bad" in answer.stderr
