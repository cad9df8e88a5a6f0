"""Records and their format. The golden ledger is tests/data/ledger.ndjson: made once, with the
Ed25519 key whose seed is the bytes 0 to 31, and checked by hand with sha256sum and openssl."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.errors import LedgerError
from hushgrid.mechanism.release import Release
from hushgrid.stores.ledger import entries, rules
from hushgrid.stores.ledger.records import canonical, from_fields, from_line, seal
from tests import bodies
from tests.stores.ledger.ledgers import KEY, lines_of, read, sealed, story

GOLDEN = Path(__file__).parents[2] / "data" / "ledger.ndjson"
# printed by the sha256sum and openssl lines of docs/ledger.md for its records 1 and 10
RECORD_1 = "8f27bc713e2d6b5b8cf372b5c73255619eb346b30ea403e55dfb56fe21574c9c"
HEAD = "865eeedf44c5e2ed7ed0e0a4528bcf7a6cf67fb83863136de1bb1e1a2df84fd0"


def test_the_format_has_not_changed() -> None:
    assert lines_of(sealed(story())) == GOLDEN.read_bytes()
    assert sealed(story())[-1].digest == HEAD
    # the public key of this seed, as in many lists of Ed25519 examples
    assert KEY.public == "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"


TARIFF = {
    "begins": 900,
    "figures": {"alpha": 1.0, "beta": 2.0, "ahead": {"days": 1, "publish_at": 64_800}},
}


def test_the_form_of_a_tariff_has_not_changed() -> None:
    digest = "db6f3bd158663b95cec0553e0be25b3314cadf25c74e10608cd856d1226cc470"
    assert sealed([story()[0], ("tariff", dict(bodies.tariff(**TARIFF)))])[-1].digest == digest
    text = (
        "hushgrid-ledger/1\n"
        '"elm-street"\n'
        "2\n"
        "tariff\n"
        f"{RECORD_1}\n"
        '{"begins":900,"figures":{"ahead":{"days":1,"publish_at":64800},"alpha":1.0,"beta":2.0}}\n'
    )
    assert hashlib.sha256(text.encode()).hexdigest() == digest
    for wrong in ({"begins": -1}, {"begins": 0.5}, {"figures": {"alpha": "1"}}, {"figures": None}):
        with pytest.raises(LedgerError, match="of tariff does not fit"):
            entries.check_body("tariff", {**TARIFF, **wrong})


def test_a_digest_typed_out_by_hand() -> None:
    text = (
        "hushgrid-ledger/1\n"
        '"elm-street"\n'
        "1\n"
        "genesis\n"
        f"{'0' * 64}\n"
        '{"created_at":840,"format":1,"key":"03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664'
        '125531b8","mode":"production"}\n'
    )
    assert hashlib.sha256(text.encode()).hexdigest() == RECORD_1
    assert json.loads(GOLDEN.read_bytes().splitlines()[0])["digest"] == RECORD_1


def test_a_release_says_this_and_nothing_else() -> None:
    # no load, no optimal rate, no reading: whoever adds a field must add it here
    known = set(entries.ReleaseRecord.rules())
    followed = {"base", "model_share", "covariates"}  # where the estimate follows releases
    net = {"offset", "feed_in"}  # where homes export, or have a rate for what they feed in
    assert set(read(1)) | followed | net | {"block", "account", "windows"} == known == {
        "zone", "t", "applies_from", "load_hat", "put_back", "estimate", "rate", "scale",
        "epsilon", "epsilon_any", "rule", "digest", "simulated",
        "source", "start", "applies_start", "published_at", "counts", "noise",
        "base", "model_share", "covariates", "block", "offset", "feed_in", "account", "windows",
    }  # fmt: skip
    assert {field.name for field in fields(Release)} <= known
    assert rules.COUNTS == ("houses",)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"load": 41_234}, "'load'"),
        ({"counts": {"clamped": 3}}, "counts"),
        ({"counts": {"houses": 3.5}}, "counts"),
        ({"counts": {"houses": -1}}, "counts"),
        ({"load_hat": 41_234.5}, "load_hat"),
        ({"load_hat": True}, "load_hat"),
        ({"rate": "41234"}, "rate"),
        ({"scale": -1.0}, "scale"),
        ({"t": 0}, "t of release"),
        ({"t": 1.0}, "t of release"),
        ({"digest": "AB" * 32}, "digest"),
        ({"source": "guess"}, "source"),
        ({"rule": "a\nb"}, "rule"),
    ],
)
def test_other_bodies_are_refused_and_not_shown(change: dict[str, Any], says: str) -> None:
    with pytest.raises(LedgerError, match=says) as refused:
        entries.check_body("release", {**read(1), **change})
    assert "4123" not in str(refused.value)


def test_a_body_with_a_field_missing_is_refused() -> None:
    body = read(1)
    del body["epsilon"]
    with pytest.raises(LedgerError, match="has no epsilon"):
        entries.check_body("release", body)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(VALUES)
def test_canonical_text_comes_back_the_same(value: Any) -> None:
    text = canonical(value)
    again = json.loads(text)
    assert again == value
    assert canonical(again) == text
    assert "\n" not in text
    assert isinstance(again, type(value))
    if isinstance(value, float):
        assert math.copysign(1, again) == math.copysign(1, value)


@given(st.dictionaries(st.text("abc", min_size=1), VALUES, max_size=3))
def test_records_come_back_from_their_line_and_fields(body: dict[str, Any]) -> None:
    record = seal("Köln – 7", 1, "terms", body, "0" * 64, KEY.sign)
    assert from_line(f"{record.line}\n".encode()) == record
    text = canonical(body)
    assert from_fields(record.zone, 1, "terms", text, *_ends(record)) == record
    for other in (f"{text} ", text.replace(":", ": ")):
        if other != text:
            with pytest.raises(LedgerError):
                from_fields(record.zone, 1, "terms", other, *_ends(record))


def _ends(record: Any) -> tuple[str, str, str]:
    return record.prev, record.digest, record.signature


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, np.int64(3), {1: 2}, b"x", "\ud800", 2**63, object(), {"a": [math.nan]}],
)
def test_what_would_not_come_back_is_refused(value: Any) -> None:
    with pytest.raises(LedgerError):
        canonical(value)


def test_numpy_floats_are_written_as_floats() -> None:
    assert canonical(np.float64(0.1)) == "0.1"


def nested(depth: int) -> Any:
    return [] if depth == 0 else [nested(depth - 1)]


@pytest.mark.parametrize("depth", [10, 900])
def test_deep_nesting_is_refused_in_one_sentence(depth: int) -> None:
    with pytest.raises(LedgerError):
        canonical(nested(depth))
    with pytest.raises(LedgerError):
        from_line(b'{"body":' + b"[" * depth + b"]" * depth + b"}\n")
    with pytest.raises(LedgerError):
        from_fields("z", 1, "terms", "[" * depth + "]" * depth, "0" * 64, "0" * 64, "0" * 128)


@pytest.mark.parametrize(
    ("field", "value"),
    [("zone", ""), ("zone", "a\nb"), ("seq", 0), ("seq", True), ("kind", "gift"), ("body", [])],
)
def test_records_of_another_form_are_refused(field: str, value: Any) -> None:
    fields = {"zone": "z", "seq": 1, "kind": "terms", "body": {}, field: value}
    with pytest.raises(LedgerError):
        seal(prev="0" * 64, sign=KEY.sign, **fields)


def test_a_record_cannot_be_changed() -> None:
    record = sealed(story())[3]
    with pytest.raises(TypeError):
        record.body["rate"] = 0.0  # type: ignore[index]
    with pytest.raises(TypeError):
        record.body["counts"]["missing"] = 0
