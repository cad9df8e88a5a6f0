"""What others install: the wheel with all it needs, and the bill of materials."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from importlib.metadata import version
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.services import free_port

ROOT = Path(__file__).parents[1]
SHIPPED = ("pyproject.toml", "README.md", "LICENSE", "src")  # as in deploy/Dockerfile
ABSENT = (
    "No matching distribution",
    "Could not find a version",
    "Failed to establish",
    "resolution",
)


def run(*words: str | Path, **more: object) -> subprocess.CompletedProcess[str]:
    """A command that does not see the packages of this repository."""
    own = ("PYTHONPATH", "SSL_CERT_DIR")  # the second is set for the tests alone
    env = {name: value for name, value in os.environ.items() if name not in own}
    return subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, check=False, env=env, **more
    )  # type: ignore[call-overload, no-any-return]


def pip(python: Path | str, *words: str | Path) -> None:
    done = run(sys.executable, "-m", "pip", "--python", python, *words)
    if done.returncode and any(word in done.stderr for word in ABSENT):
        pytest.skip("no index of packages can be reached, and the wheel cannot be built without it")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: a build leaves files in its folder."""
    folder = tmp_path_factory.mktemp("build")
    for name in SHIPPED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    new = tuple(map(int, version("setuptools").split(".")[:1])) >= (77,)
    alone = ["--no-build-isolation"] if new else []
    out = folder / "dist"
    pip(sys.executable, "wheel", "--quiet", "--no-deps", *alone, "--wheel-dir", out, folder)
    (found,) = out.glob("hushgrid-*.whl")
    return found


def test_the_wheel_has_all_that_the_package_reads(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        names = {name for name in packed.namelist() if not name.endswith("/")}
        metadata = packed.read(next(n for n in names if n.endswith("METADATA"))).decode()
    kept = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "hushgrid").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {n for n in names if n.startswith("hushgrid/")} == kept
    assert all(n.startswith(("hushgrid/", "hushgrid-")) for n in names)
    assert re.search(r"^License-Expression: Apache-2.0$", metadata, re.M)
    assert "Provides-Extra: serve" in metadata


def venv(folder: Path) -> Path:
    done = run(sys.executable, "-m", "venv", "--without-pip", folder)
    assert done.returncode == 0, done.stderr
    return folder / "bin" / "python"


@pytest.mark.soak
def test_a_service_begins_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    """In an environment with the wheel and, by their path, the packages it depends on."""
    python = venv(tmp_path / "env")
    pip(python, "install", "--quiet", "--no-deps", "--no-compile", wheel)
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    others = [path for path in sys.path if path.endswith("site-packages")]
    (site / "dependencies.pth").write_text("\n".join(others))
    hushgrid = python.with_name("hushgrid")
    where = run(python, "-c", "import hushgrid; print(hushgrid.__file__)", cwd=tmp_path)
    assert where.stdout.startswith(str(site)), where.stderr
    assert run(hushgrid, "init", "zone", cwd=tmp_path).returncode == 0
    done = run(hushgrid, "doctor", "zone/service.toml", cwd=tmp_path)  # check would compile loops
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Nothing to repair.\n"


@pytest.mark.soak
def test_install_with_pip_into_a_clean_environment_and_serve(wheel: Path, tmp_path: Path) -> None:
    """pip install 'hushgrid[serve]' without make: init, check, serve, a page and a price list."""
    python = venv(tmp_path / "env")
    pip(python, "install", "--quiet", "-c", ROOT / "constraints.txt", f"{wheel}[serve]")
    hushgrid, port = python.with_name("hushgrid"), free_port()
    assert run(hushgrid, "init", tmp_path / "zone").returncode == 0
    file = tmp_path / "zone" / "service.toml"
    file.write_text(file.read_text().replace("port = 8080", f"port = {port}"))
    assert run(hushgrid, "check", file).returncode == 0
    log = tmp_path / "log"
    with log.open("wb") as stream:
        running = subprocess.Popen([hushgrid, "serve", file], stdout=stream, stderr=stream)
    try:
        until = time.monotonic() + 120
        while True:
            try:
                page = urlopen(f"http://127.0.0.1:{port}/", timeout=5).read()
                break
            except OSError:
                assert time.monotonic() < until, log.read_text()
                assert running.poll() is None, log.read_text()
                time.sleep(0.2)
        assert b"<html" in page
        assert json.load(urlopen(f"http://127.0.0.1:{port}/v1/promise", timeout=60))["epsilon"]
    finally:
        running.terminate()
        assert running.wait(60) == 0


def test_the_bill_of_materials() -> None:
    """Every package that hushgrid[serve] needs, with its version and licence, and no address."""
    done = run(sys.executable, ROOT / "scripts" / "sbom.py", "--extra", "serve")
    assert (done.returncode, done.stderr) == (0, "")
    bill = json.loads(done.stdout)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    parts = {one["name"]: one for one in bill["components"]}
    assert {"numpy", "opendp", "fastapi", "sqlalchemy", "starlette", "pyarrow"} <= set(parts)
    assert not {"pyspark", "pytest", "hushgrid"} & set(parts)
    for name, one in parts.items():
        assert one["version"] == version(name)
        assert one["licenses"], name
    refs = [one["bom-ref"] for one in [bill["metadata"]["component"], *parts.values()]]
    assert sorted(one["ref"] for one in bill["dependencies"]) == sorted(refs)
    assert all(ref in refs for one in bill["dependencies"] for ref in one["dependsOn"])
    assert "http" not in done.stdout.lower().replace('"name": "http', "").replace("/http", "")
    assert (
        run(sys.executable, ROOT / "scripts" / "sbom.py", "--extra", "serve").stdout == done.stdout
    )
