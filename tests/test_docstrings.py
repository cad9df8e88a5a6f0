"""Public functions and classes have Google-style docstrings: Args, Returns, Raises, Attributes.

A function or class is public if neither its name nor its module's begins with an underscore.
The whole of `src/hushgrid` is held to the goal, and so is each folder in `FINISHED` ("." are its
own files); add a folder there once `share_documented` of it reaches the goal.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import hushgrid

SOURCE = Path(hushgrid.__file__).parent
GOAL = 0.95
FINISHED = (
    ".",
    "accounting",
    "adversary",
    "audit",
    "belief",
    "cli",
    "curator",
    "demo",
    "files",
    "intake",
    "lab",
    "learning",
    "mechanism",
    "model",
    "operate",
    "planning",
    "report",
    "stores",
    "web",
)
GENERATED = ("web/openadr/_generated.py",)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    args = function.args
    named = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
    return [one.arg for one in named if one is not None and one.arg not in ("self", "cls")]


def raises(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether the body itself raises an error; nested functions and re-raises do not count."""
    pending: list[ast.AST] = [*function.body]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Raise) and node.exc is not None:
            return True
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
            pending += ast.iter_child_nodes(node)
    return False


def missing_sections(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[str]:
    """The sections that a docstring needs and does not have."""
    text = ast.get_docstring(node) or ""
    if isinstance(node, ast.ClassDef):
        fields = [
            one.target.id
            for one in node.body
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        ]
        inits = [one for one in node.body if isinstance(one, FUNCTIONS) and one.name == "__init__"]
        needed = any(not name.startswith("_") for name in fields) or any(map(parameters, inits))
        return ["Attributes"] if needed and not ("Attributes:" in text or "Args:" in text) else []
    returned = ast.unparse(node.returns) if node.returns else "None"
    sections = {
        "Args": bool(parameters(node)),
        "Returns": returned not in ("None", "NoReturn", "Never") and "Yields:" not in text,
        "Raises": raises(node),
    }
    return [name for name, needed in sections.items() if needed and f"{name}:" not in text]


def public(folder: str) -> Iterator[tuple[str, list[str]]]:
    """(place and name, missing sections) of each public function and class of a folder."""
    paths = SOURCE.glob("*.py") if folder == "." else (SOURCE / folder).rglob("*.py")
    for path in sorted(paths):
        place = path.relative_to(SOURCE)
        private = any(part.startswith("_") for part in place.parts if part != "__init__.py")
        if private or place.as_posix() in GENERATED:
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and not node.name.startswith("_"):
                yield f"{place}:{node.lineno} {node.name}", missing_sections(node)


def share_documented(*folders: str) -> tuple[float, list[str]]:
    """The share of complete docstrings in some folders, and what the others lack."""
    found = [one for folder in folders for one in public(folder)]
    lacking = [f"{name}: {', '.join(missing)}" for name, missing in found if missing]
    return 1 - len(lacking) / max(len(found), 1), lacking


@pytest.mark.parametrize("folder", FINISHED)
def test_public_names_are_documented(folder: str) -> None:
    share, lacking = share_documented(folder)
    assert share >= GOAL, "\n".join(lacking)


def test_the_whole_package_is_documented() -> None:
    share, lacking = share_documented(
        ".", *(path.parent.name for path in SOURCE.glob("*/__init__.py"))
    )
    assert share >= GOAL, "\n".join(lacking)


def test_finished_folders_exist() -> None:
    assert all((SOURCE / folder / "__init__.py").is_file() for folder in FINISHED)


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ("def f(x: int) -> int: ...", ["Args", "Returns"]),
        ("def f() -> None: raise ValueError('no')", ["Raises"]),
        ("def f() -> None:\n    def g() -> None: raise ValueError('no')", []),
        ("def f(*x: int) -> Iterator[int]:\n    '''x.\n\n    Args:\n\n    Yields:\n    '''", []),
        ("class C:\n    x: int", ["Attributes"]),
        ("class C:\n    def __init__(self, x: int) -> None: ...", ["Attributes"]),
        ("class C:\n    '''x.\n\n    Attributes:\n    '''\n    x: int", []),
        ("class C:\n    _x: int", []),
    ],
)
def test_missing_sections_are_found(source: str, missing: list[str]) -> None:
    (node,) = ast.parse(source).body
    assert isinstance(node, (*FUNCTIONS, ast.ClassDef))
    assert missing_sections(node) == missing
