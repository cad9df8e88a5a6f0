"""hushgrid audit from end to end: files in, certificate out, exit codes, bad input."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgrid import SimulatedNoise
from hushgrid.audit import behaviour
from hushgrid.audit.bounds import CHECKS
from hushgrid.cli import main
from hushgrid.curator.curator import Curator
from hushgrid.files.service_file import load_deployment
from hushgrid.operate.audit import load_heads, load_terms
from hushgrid.report import certificate
from hushgrid.report.certificate import certificate_page
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.writer import load
from tests.audit.zones import SMALL, ledger, terms
from tests.curator.setups import street_in
from tests.curator.worlds import MemoryMeters
from tests.stores.ledger.ledgers import lines_of

ROOT = Path(__file__).parent.parent.parent
ZONE = ROOT / "examples" / "release.toml"


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "zone.toml"
    path.write_text(SMALL)
    return path


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the draws of noise that an audit looks at, where no verdict depends on them."""
    monkeypatch.setattr(behaviour, "ENOUGH", behaviour.ENOUGH // 10)


@pytest.mark.soak
def test_a_publisher_and_a_broken_one(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "c.html"
    good = ("--publisher", "hushgrid.audit.publishers:hushgrid", "--samples", 20_000)
    code, out, _ = run(capsys, "audit", small, *good, "--html", page, "--json", "-")
    values = json.loads(out)
    assert (code, values["verdict"]) == (0, "passed")
    assert 0.3 < values["epsilon_lower"] <= 0.5
    assert {check["id"] for check in values["checks"]} == set(CHECKS)
    check_page(page.read_text())
    assert "measured by nobody &lt;b&gt;" in page.read_text()
    bad = ("--publisher", "tests.audit.faults:weak_noise", "--samples", 5_000)
    code, out, _ = run(capsys, "audit", small, *bad, "--json", "-")
    values = json.loads(out)
    assert (code, values["verdict"]) == (1, "failed")
    (found,) = [check for check in values["checks"] if check["id"] == "noise_scale"]
    assert found["status"] == "failed"


@pytest.mark.parametrize(
    ("lines", "verdict", "status", "words"),
    [
        ('secret = "interval"\nblock_epsilon = [0.1]', "passed", "passed", "in any one interval"),
        ('secret = "interval"\nblock_epsilon = [0.5]', "failed", "failed", "in any one interval"),
        ("block_epsilon = [0.5]", "passed", "not_applicable", "as much as its whole block"),
    ],
)
@pytest.mark.sampled
def test_a_trace_of_blocks_is_held_to_what_its_file_promises(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: str, verdict: str, status: str,
    words: str,
) -> None:  # fmt: skip
    zone, trace = tmp_path / "zone.toml", tmp_path / "day.trace"
    zone.write_text(SMALL.replace("eta = 0.0", f"eta = 1.0\nblock_steps = [4]\n{lines}"))
    run(capsys, "simulate", "--config", zone, "--days", 1, "--trace", trace)
    _, out, _ = run(capsys, "audit", trace, "--json", "-")
    values = json.loads(out)
    (found,) = [check for check in values["checks"] if check["id"] == "promise"]
    assert (values["verdict"], found["status"]) == (verdict, status)
    assert words in json.dumps(values["promise"])


@pytest.mark.usefixtures("few_draws")
@pytest.mark.soak
def test_equal_seeds_give_equal_certificates(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("audit", small, "--publisher", "hushgrid.audit.publishers:hushgrid",
             "--samples", 2000, "--json", "-")  # fmt: skip
    one, two = (run(capsys, *words) for _ in range(2))
    assert one == two
    assert one[1] != run(capsys, *words, "--seed", 2)[1]


def test_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "day.trace"
    run(capsys, "simulate", "--config", ZONE, "--days", 1, "--trace", trace)
    code, out, _ = run(capsys, "audit", trace, "--config", ZONE, "--json", "-")
    values = json.loads(out)
    assert (code, values["verdict"]) == (0, "passed")
    assert values["zones"][0]["releases"] == 96
    assert len(values["zones"][0]["houses"]) == 120
    assert set(values["attack"]) == {"none", "others"}
    # what the truth says plays no part: an audit reads releases only
    public = tmp_path / "public.trace"
    public.write_text("".join(trace.read_text().splitlines(keepends=True)[:97]))
    _, again, _ = run(capsys, "audit", public, "--config", ZONE, "--json", "-")
    assert json.loads(again)["zones"][0]["houses"] == values["zones"][0]["houses"]


def test_a_service_with_its_ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = street_in(tmp_path / "zone")
    deployment = load_deployment(file)
    (zone,) = deployment.zones
    meters = MemoryMeters(zone)
    with (
        open_store(deployment.ledger) as store,
        Curator.open(
            zone,
            store,
            meters,
            SimulatedNoise(1),
            load(deployment.key),
            [],
            "simulation",
            now=zone.begins,
        ) as curator,  # fmt: skip
    ):
        for t in range(12):
            start = zone.begins + t * zone.seconds
            for house in range(len(zone.meters)):
                meters.rows[zone.id, house, start] = 40 + house
            curator.run(start + zone.seconds + zone.grace)
        head = store.witness(zone.id)
    for words in ((file,), (deployment.ledger, "--config", file)):
        code, out, _ = run(capsys, "audit", *words, "--head", head, "--json", "-")
        values = json.loads(out)
        assert (code, values["verdict"]) == (0, "passed"), values["summary"]
        status = {check["id"]: check["status"] for check in values["checks"]}
        assert status["chain"] == status["terms"] == "passed"
        assert values["zones"][0]["releases"] == 12
        assert values["eta_set_by"].startswith("not set yet")
    code, out, _ = run(capsys, "audit", deployment.ledger, "--json", "-")
    assert (code, json.loads(out)["verdict"]) == (0, "incomplete")
    code, out, _ = run(capsys, "audit", file, "--head", "0" * 64, "--json", "-")
    assert (code, json.loads(out)["verdict"]) == (1, "failed")
    code, out, _ = run(capsys, "audit", file, "--key", "0" * 64, "--json", "-")
    values = json.loads(out)
    assert (code, values["verdict"]) == (1, "failed")
    assert next(c for c in values["checks"] if c["id"] == "chain")["first_bad"] == 1


def test_an_export_and_its_terms(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = tmp_path / "ledger.ndjson"
    (own,), _ = load_terms(small)
    assert own.provenance == {
        "model guess": "made up & told",
        "laws of houses 0": "measured by nobody <b>",
    }
    book.write_bytes(lines_of(ledger(terms(epsilon=0.4))))
    code, out, _ = run(capsys, "audit", book, "--config", small, "--json", "-")
    values = json.loads(out)
    (found,) = [check for check in values["checks"] if check["id"] == "terms"]
    assert (code, found["status"], found["first_bad"]) == (1, "failed", 4)


BAD = {
    "no such file": (["audit", "nowhere.ndjson"], "nowhere.ndjson"),
    "publisher": (["audit", ZONE, "--publisher", "nothing"], "MODULE:FACTORY"),
    "module": (["audit", ZONE, "--publisher", "no_such_module:f"], "cannot be imported"),
    "factory": (["audit", ZONE, "--publisher", "json:f"], "has no f"),
    "zone": (["audit", ZONE, "--zone", "oak"], "elm-street"),
    "confidence": (
        ["audit", ZONE, "--publisher", "hushgrid.audit.publishers:hushgrid", "--confidence", "2"],
        "confidence",
    ),
    "head": (["audit", ROOT / "tests/data/ledger.ndjson", "--head", "x"], "hexadecimal"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, reason = BAD[case]
    code, out, err = run(capsys, *words)
    assert code == 2
    assert reason in err
    assert err.count("\n") == 1
    assert out == ""


def test_a_trace_out_of_order_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "day.trace"
    run(capsys, "simulate", "--config", ZONE, "--days", 1, "--trace", trace)
    lines = trace.read_text().splitlines(keepends=True)
    trace.write_text("".join([*lines[:5], lines[6], lines[5], *lines[7:]]))
    code, _, err = run(capsys, "audit", trace, "--config", ZONE)
    assert code == 2
    assert "line 6" in err


def test_heads_from_saved_prices(tmp_path: Path) -> None:
    path = tmp_path / "heads"
    path.write_text(f"{'a' * 64}\n{'b' * 64}\n")
    assert load_heads(path) == ["a" * 64, "b" * 64]
    path.write_text(json.dumps({"zones": [{"head": "c" * 64, "rate": 1.0}]}))
    assert load_heads(path) == ["c" * 64]


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)
        addresses = [value for name, value in attrs if name in ("src", "href")]
        assert all(value.startswith("data:image/svg+xml;base64,") for value in addresses)
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)


def check_page(page: str) -> None:
    """Well-formed, and it asks nothing of anybody."""
    tags = _Tags()
    tags.feed(page)
    assert not tags.seen & {"script", "link", "iframe"}
    assert page.count("<img") == page.count('src="data:image/svg+xml;base64,') > 0
    assert "://" not in page
    assert "@import" not in page


def leaves(value: Any, path: str = "") -> set[str]:
    """Every path of a JSON value, lists as []."""
    if isinstance(value, dict):
        return {leaf for key, item in value.items() for leaf in leaves(item, f"{path}.{key}")}
    if isinstance(value, list):
        return {leaf for item in value for leaf in leaves(item, f"{path}[]")} or {f"{path}[]"}
    return {path.lstrip(".")}


@pytest.mark.usefixtures("few_draws")
def test_the_documented_keys_are_those_written(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, figures = tmp_path / "day.trace", tmp_path / "attack.json"
    figures.write_text(json.dumps({"auc": 0.61, "auc_prior": 0.6}))
    run(capsys, "simulate", "--config", small, "--days", 1, "--trace", trace)
    _, out, _ = run(
        capsys, "audit", trace, "--config", small, "--attack", figures, "--json", "-",
        "--publisher", "hushgrid.audit.publishers:hushgrid", "--samples", 2000,
    )  # fmt: skip
    values = json.loads(out)
    assert values["attack"] == {"auc": 0.61, "auc_prior": 0.6}
    check_page(certificate_page(values))
    assert "0.61" in certificate_page(values)
    documented = re.findall(r"^ {4}([\w.*\[\]]+): ", certificate.__doc__ or "", re.M)
    stars = tuple(name[:-1] for name in documented if name.endswith("*"))
    plain = {name for name in documented if not name.endswith("*")}
    written = {leaf.lstrip(".") for leaf in leaves(values)}
    assert {leaf for leaf in written if not leaf.startswith(stars)} == plain
    assert all(any(leaf.startswith(star) for leaf in written) for star in stars)


@pytest.mark.usefixtures("few_draws")
def test_a_figure_can_be_recomputed_by_its_command(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, out, _ = run(
        capsys, "audit", small, "--publisher", "hushgrid.audit.publishers:hushgrid",
        "--samples", 2000, "--seed", 4, "--json", "-",
    )  # fmt: skip
    values = json.loads(out)
    command, path = values["black_box"]["recompute"].split(" | jq .")
    assert command.startswith("hushgrid ")
    _, again, _ = run(capsys, *command.split()[1:])
    assert json.loads(again)[path] == values["black_box"]


@pytest.fixture
def guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The publisher of docs/audit.md in a file, and the words of the command that tests it."""
    text = (ROOT / "docs" / "audit.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    (command,) = re.findall(r"^    hushgrid (audit zone\.toml --publisher .*)$", text, re.M)
    (tmp_path / "my_module.py").write_text(code)
    (tmp_path / "zone.toml").write_text(ZONE.read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield command
    sys.modules.pop("my_module", None)


@pytest.mark.soak
def test_the_publisher_of_the_guide_passes_its_audit(
    guide: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, *guide.split(), "--samples", 500, "--json", "-")
    values = json.loads(out)
    found = {check["id"]: check["status"] for check in values["checks"]}
    assert (code, values["verdict"]) == (0, "passed"), found
    for name in ("noise_scale", "protected_set", "budget", "republication", "seed_reuse"):
        assert found[name] == "passed"


def test_the_publisher_of_the_guide_ends_with_its_horizon(guide: str) -> None:
    """And noise that eta = 1 needs: the scale that it draws at is then the one that is due."""
    from hushgrid.audit.behaviour import check_behaviour
    from hushgrid.operate.audit import load_factory

    factory = load_factory(guide.split()[3])
    zone = terms(eta=1.0, horizon=10)
    found = {check.id: check.status for check in check_behaviour(factory, zone, seed=1)}
    assert set(found.values()) == {"passed", "not_applicable"}  # it publishes no estimate
    assert np.isclose(zone.first_state().scheduler.at(1).scale, 2000.0)
    publisher = factory(zone, seed=1)
    used = [publisher.publish(np.zeros(5, np.int64)).get("source") for _ in range(12)]
    assert used == [None] * 10 + ["fallback"] * 2
