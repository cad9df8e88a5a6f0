"""A field of a release is declared once: everything else follows the declaration."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

from hushgrid.mechanism.release import Release
from tests.stores.ledger.ledgers import ROOT

NAMES = {field.name for field in fields(Release)}
FOLLOWS = """
import math
from dataclasses import replace
from pathlib import Path
from hushgrid.audit.evidence import from_recording
from hushgrid.stores.ledger.records import NOTHING, seal
from hushgrid.stores.ledger.entries import ReleaseRecord, check_body
from hushgrid.mechanism.release import Release
from hushgrid.adversary.attack import Recording
from hushgrid.files.models import load_trace, save_trace

said = dict(zone="z", t=1, applies_from=2, rule="r", digest="ab" * 32, simulated=True)
one = Release.free(**said, load_hat=7, scale=2.0, epsilon=math.inf, season=3)
when = dict(mode="simulation", start=900, applies_start=1800, published_at=1801)
for made, has in ((one, True), (replace(one, season=None), False)):
    body = ReleaseRecord.of(made, first=5, **when).to_body()
    assert ("season" in body) == has
    record = seal("z", 1, "release", body, NOTHING, lambda digest: 2 * digest)
    found = ReleaseRecord.from_record(record)
    assert found.in_week(5) == made
    assert found.season == made.season and found.to_body() == body
    day = Recording("z", made.digest, (made,), None)
    assert load_trace(save_trace(Path("day.trace"), day)).releases == (made,)
    assert from_recording(day).entries[0].season == made.season
assert "season" not in ReleaseRecord.stand_in("z", "fallback", t=1, rate=0.1, **when).to_body()
"""


def test_a_new_field_is_one_line(tmp_path: Path) -> None:
    """Records, traces and evidence take it along; only the declaration changes."""
    shutil.copytree(
        ROOT / "src" / "hushgrid",
        tmp_path / "hushgrid",
        ignore=shutil.ignore_patterns("__pycache__", "static"),
    )
    file = tmp_path / "hushgrid" / "mechanism" / "release.py"
    text, last = (
        file.read_text(),
        "    feed_in: Annotated[float | None, optional(number(-math.inf))] = None\n",
    )
    assert text.count(last) == 1
    field = "    season: Annotated[int | None, optional(whole_number(1))] = None\n"
    file.write_text(text.replace(last, last + field))
    subprocess.run(
        [sys.executable, "-c", FOLLOWS],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "NUMBA_DISABLE_JIT": "1"},
        check=True,
    )


def test_no_other_file_lists_the_fields() -> None:
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            listed = len(_names(node) & NAMES) > len(NAMES) - 4
            assert not listed or path.name == "release.py", f"{path} lists them"


def _names(node: ast.AST) -> set[object]:
    """What a call, a class, a mapping or a collection names."""
    if isinstance(node, ast.Call):
        return {one.arg for one in node.keywords}
    if isinstance(node, ast.ClassDef):
        declared = [one.target for one in node.body if isinstance(one, ast.AnnAssign)]
        return {one.id for one in declared if isinstance(one, ast.Name)}
    parts = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", ())
    return {one.value for one in parts if isinstance(one, ast.Constant)}
