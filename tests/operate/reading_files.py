"""Files of readings for the commands."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from hushgrid.cli import main
from tests.curator.setups import street_in
from tests.curator.worlds import TOKEN
from tests.web.brokers import free_port

DIGEST = hashlib.sha256(TOKEN.encode()).hexdigest()


NOTHING = dict.fromkeys(
    ("accepted", "duplicate", "late", "clamped", "unknown", "malformed", "early", "damaged"), 0
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The service file of a street and its key, with a token and a port of its own."""
    path = street_in(tmp_path / "zone")
    text = path.read_text().replace("token_digests = []", f'token_digests = ["{DIGEST}"]')
    path.write_text(text.replace("port = 8080", f"port = {free_port()}"))
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err
