"""scripts/names.py counts pronouns and participles that are identifiers, and nothing else."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent.parent / "scripts" / "names.py"
# found 3, given 2, one 2, other 1; the operator's two, text and longer names are none
TEXT = '''"""found and given."""


class Reading:
    def __eq__(self, other: object) -> bool:
        return other is self

    def difference(self, other: "Reading") -> int:
        return self.found  # given


def count(given: list[int]) -> int:
    found = [one for one in given]
    text = "found" + f"{found}"
    return len(found) + len(text)


foundation, known_names = 1, 2
'''


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), str(folder), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def program(folder: Path, text: str = TEXT) -> Path:
    (folder / "package").mkdir()
    (folder / "package" / "program.py").write_text(text)
    return folder


def test_what_is_counted(tmp_path: Path) -> None:
    result = run(program(tmp_path), "--most", "10000")
    assert (result.returncode, result.stderr) == (0, "")
    total, words, file = result.stdout.splitlines()
    assert total == "8 names in 18 lines: 4444.4 for 10,000 lines"
    assert words == "found 3, given 2, one 2, other 1"
    assert file.startswith("    8 ")
    assert file.endswith(f"program.py: {words}")


def test_the_limit(tmp_path: Path) -> None:
    program(tmp_path)
    assert run(tmp_path, "--most", "4445").returncode == 0
    result = run(tmp_path, "--most", "4444")
    assert (result.returncode, result.stderr) == (1, "more than 4444: name these things by nouns\n")
    assert run(tmp_path).returncode == 1  # the usual limit is far below


def test_a_program_of_nouns(tmp_path: Path) -> None:
    result = run(program(tmp_path, "releases = [1, 2]\n"), "--most", "0")
    assert (result.returncode, result.stdout.splitlines()[0]) == (
        0,
        "0 names in 1 lines: 0.0 for 10,000 lines",
    )


def test_no_program(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.returncode == 2
    assert "has no line of Python" in result.stderr
