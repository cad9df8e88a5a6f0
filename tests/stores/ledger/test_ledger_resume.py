"""From the mechanism through the ledger and back: what is resumed is what was."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hushgrid import (
    Consumption,
    OccupancyModel,
    Policy,
    SecureNoise,
    SimulatedNoise,
    Tariff,
    Uniform,
    Zone,
    init,
    step,
)
from hushgrid.errors import LedgerError
from hushgrid.mechanism.release import State
from hushgrid.stores.ledger import writer as keys
from hushgrid.stores.ledger.store import SqliteLedger
from hushgrid.stores.ledger.writer import Ledger
from tests import bodies
from tests.stores.ledger.ledgers import KEY, TERMS, opened, terms, times


def state(**policy: object) -> State:
    theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]])
    f = Consumption.by_class(absent=[Uniform(500)], present=[Uniform(1000)])
    promise = Policy(0.5, horizon=8, eta=0.0, **policy)  # type: ignore[arg-type]
    first = init(Zone("elm-street", [1000]), Tariff(1.0, 62.5), [theta], f, promise)
    return replace(first, digest=TERMS)


def begin(ledger: Ledger, at: int) -> None:
    ledger.append("terms", terms(first=at))


@pytest.mark.parametrize("at", [1, 42])
def test_state_and_releases_are_refolded(tmp_path: Path, at: int) -> None:
    path, now = tmp_path / "ledger.db", state()
    made = []
    with opened(path) as ledger:
        begin(ledger, at)
        for load in (700, 300, 999):
            release, now = step(now, load, SecureNoise())
            made.append(release)
            body = bodies.release(release, mode="production", first=at, **times(at + release.t - 1))
            shown = ledger.publish(body)
            assert shown.t == at + release.t - 1
    with opened(path) as ledger:
        standing = ledger.standing
    assert [one.in_week(at) for one in standing.releases] == made
    assert tuple(one.rate for one in standing.current) == now.rates


def test_simulated_noise_goes_into_a_simulation_ledger_alone(tmp_path: Path) -> None:
    first = state()
    release, _ = step(first, 700, SimulatedNoise(1))
    with opened(tmp_path / "real.db") as ledger:
        begin(ledger, 1)
        with pytest.raises(LedgerError, match="simulated noise"):
            ledger.publish(bodies.release(release, mode="production", **times(1)))
        # nor does it help to say otherwise
        with pytest.raises(LedgerError, match="simulated noise"):
            ledger.publish(bodies.release(release, mode="simulation", **times(1)))
    with opened(tmp_path / "play.db", mode="simulation") as ledger:
        begin(ledger, 1)
        assert ledger.publish(bodies.release(release, mode="simulation", **times(1))).simulated


def test_keys(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    key = keys.create(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert keys.load(path).public == key.public != keys.create(tmp_path / "other.pem").public
    digest = "ab" * 32
    assert keys.verify_signature(key.public, digest, keys.load(path).sign(digest))
    assert not keys.verify_signature(key.public, "ac" * 32, key.sign(digest))
    assert not keys.verify_signature(KEY.public, digest, key.sign(digest))
    assert not keys.verify_signature("ff" * 32, digest, key.sign(digest))
    assert not keys.verify_signature(key.public, digest, "")
    assert "PRIVATE" in path.read_text()
    assert "PRIVATE" not in repr(key)
    with pytest.raises(LedgerError, match="never overwritten"):
        keys.create(path)
    with pytest.raises(LedgerError, match="cannot be written"):
        keys.create(tmp_path / "absent" / "key.pem")
    assert keys.load(path).public == key.public


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o610])
def test_a_key_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key.pem"
    keys.create(path)
    path.chmod(mode)
    with pytest.raises(LedgerError, match=f"mode {mode:04o}; .* chmod 600"):
        keys.load(path)
    path.chmod(0o400)
    keys.load(path)


def test_files_that_hold_no_key_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    other = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    for content in (b"", b"secret words", other):
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(LedgerError, match="holds no Ed25519 key") as refused:
            keys.load(path)
        assert "secret" not in str(refused.value)
    with pytest.raises(LedgerError, match="cannot be read"):
        keys.load(tmp_path / "absent.pem")


def test_a_ledger_whose_chain_is_bad_is_not_opened(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "ledger.db"
    with opened(path):
        pass
    database = sqlite3.connect(path)
    database.execute("DROP TRIGGER records_stay")
    database.execute("UPDATE records SET signature = ?", ("0" * 128,))
    database.commit()
    database.close()
    with (
        SqliteLedger(path) as store,
        pytest.raises(LedgerError, match="signature of record 1"),
        Ledger.open(store, "elm-street", KEY, "production", 0),
    ):
        pass
