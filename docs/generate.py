"""The parts of the site that are made from the code: commands, HTTP, keys of files, API."""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_type_hints

import hushgrid

FOLDERS = [
    "model", "belief", "mechanism", "accounting", "planning", "adversary", "learning", "lab",
    "audit", "intake", "report", "files", "testing", "statistics", "errors",
]  # fmt: skip


# ---- API


def modules(folder: str) -> list[str]:
    """The public modules of a folder, the folder itself first."""
    found = import_module(f"hushgrid.{folder}")
    inner = pkgutil.iter_modules(getattr(found, "__path__", ()), f"{found.__name__}.")
    public = (one.name for one in inner if not one.name.rpartition(".")[2].startswith("_"))
    return [found.__name__, *sorted(public)]


def api_pages(app: Any) -> None:
    """Write one page for each folder of the package."""
    place = Path(app.srcdir) / "api"
    place.mkdir(exist_ok=True)
    for page in place.glob("*.rst"):
        if page.stem not in FOLDERS:  # of a folder that was renamed
            page.unlink()
    for folder in FOLDERS:
        first, *others = modules(folder)
        lines = [first, "=" * len(first), "", *_automodule(first)]
        for name in others:
            lines += [name, "-" * len(name), "", *_automodule(name)]
        text, page = "\n".join(lines), place / f"{folder}.rst"
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def _automodule(name: str) -> list[str]:
    return [f".. automodule:: {name}", "   :members:", "   :ignore-module-all:", ""]


def api() -> str:
    """The public names with their summaries, and the pages of the folders."""
    homes = {name: inspect.getmodule(getattr(hushgrid, name)) for name in hushgrid.__all__}
    lines = []
    for folder in FOLDERS:
        names = [
            f"{home.__name__}.{name}"
            for name, home in homes.items()
            if home is not None and home.__name__.split(".")[1] == folder
        ]
        if names:
            lines += [f"## {folder}\n", "```{eval-rst}", ".. autosummary::", ""]
            lines += [*(f"   ~{name}" for name in names), "```\n"]
    pages = "\n".join(f"api/{folder}" for folder in FOLDERS)
    return "\n".join(lines) + f"\n## By folder\n\n```{{toctree}}\n:maxdepth: 1\n\n{pages}\n```\n"


def adapt_docstring(
    _app: Any, what: str, _name: str, _found: Any, _options: Any, lines: list[str]
) -> None:
    """Read a docstring as it is written: names of pages are links, indented text is literal."""
    made: list[str] = []
    for before, line in zip(["", *lines], lines, strict=False):
        literal = line.startswith(("    ", "| ", "|-"))
        if what == "module" and literal and not before.strip():
            made += ["::", ""]
        if not literal:
            line = re.sub(r"`?\bdocs/([\w/-]+)\.md`?", r":doc:`\1 </\1>`", line.replace("|", r"\|"))
        made.append(f"    {line}" if what == "module" and line.startswith("|") else line)
    lines[:] = made


# ---- commands


def commands() -> str:
    """Each command with its arguments and options, as `--help` has them."""
    from typer.cli import get_docs_for_click
    from typer.main import get_command

    from hushgrid.cli import app

    root: Any = get_command(app)
    context = type(root).context_class(root, info_name="hushgrid")
    text = get_docs_for_click(obj=root, ctx=context, name="hushgrid", indent=1)
    return re.sub(r"\f.*?(?=\*\*Usage)", "", text, flags=re.S)  # which --help leaves out as well


# ---- HTTP


def routes() -> str:
    """Each route with its parameters, body and answers; then the models of answers."""
    from hushgrid.curator.ingest import Ingest
    from hushgrid.files.settings import Http
    from hushgrid.web.http.app import make_app
    from hushgrid.web.http.metrics import Metrics, ZoneStates

    nothing: Any = None  # no request is answered here
    described = make_app(Ingest([], nothing), ZoneStates(), Metrics(), Http()).openapi()
    lines = []
    for path, methods in described["paths"].items():
        for method, one in methods.items():
            scopes = [scope for way in one.get("security", []) for scope in way.get("bearer", [])]
            needs = f"Needs the scope `{'` or `'.join(scopes)}`." if scopes else "For anyone."
            lines += [f"## {method.upper()} {path}\n", f"{one['summary']} {needs}\n"]
            if one.get("parameters"):
                rows = [
                    (f"`{each['name']}`", each["in"], _kind(each["schema"]), _text(each))
                    for each in one["parameters"]
                ]
                lines.append(_table(("parameter", "in", "value", "meaning"), rows))
            if body := one.get("requestBody"):
                lines.append(f"Body: {', '.join(f'`{media}`' for media in body['content'])}.\n")
            rows = [(code, _content(each), _text(each)) for code, each in one["responses"].items()]
            lines.append(_table(("status", "body", "meaning"), rows))
    lines.append("## Models\n")
    for name, schema in sorted(described["components"]["schemas"].items()):
        says = schema.get("description", "")
        meaning, needed = _attributes(says), schema.get("required", ())
        lines += [f"### {name}\n", says.split("\n\n")[0] + "\n"]
        rows = [
            (f"`{key}`", _kind(value), "yes" if key in needed else "no", meaning.get(key, ""))
            for key, value in schema.get("properties", {}).items()
        ]
        lines.append(_table(("field", "value", "always there", "meaning"), rows))
    return "\n".join(lines)


def _text(described: dict[str, Any]) -> str:
    return str(described.get("description", ""))


def _content(answer: dict[str, Any]) -> str:
    return ", ".join(_kind(one.get("schema", {})) for one in answer.get("content", {}).values())


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_kind, schema["anyOf"])))
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    if "items" in schema:
        return f"list of {_kind(schema['items'])}"
    return str(schema.get("type", "any"))


# ---- files


def keys() -> str:
    """Each table of a service or zone file, and [learn] of `hushgrid learn`, with its keys."""
    from hushgrid.files import laws, learn_file, service_file, settings, zone_file
    from hushgrid.files._tables import _key, keys_of
    from hushgrid.model.consumption import Elasticity, LoadShape
    from hushgrid.model.curve import Curve
    from hushgrid.model.zone import FeedIn, Tariff

    found: dict[str, list[Any]] = {
        "[service]": [settings.Service],
        "[stores]": [settings.Stores],
        "[http]": [settings.Http],
        "[mqtt]": [settings.Mqtt],
        "[openadr]": [settings.OpenAdr],
        "[publish]": [settings.Publish],
        "[zone]": [zone_file.ZoneTable],
        "[tariff]": [Tariff, settings.Presentation],
        "[tariff.feed_in]": [FeedIn],
        "[tariff.curve]": [Curve],
        "[tariff.charges]": [settings.Charges],
        "[[tariff.charges.seasons]]": [settings.Season],
        "[policy]": [zone_file.PolicyTable, service_file.PromiseKeys],
        "[prices]": [zone_file.PricesAhead],
        "[[houses]]": [settings.Metered],
        "[[models]]": [laws.Chained, laws.ModelFile],
        "[models.chains.NAME]": [laws.Chain],
        "periods, weekend": [laws.Period],
        "[[covariates]]": [zone_file.PublicSeries],
        "[elasticity]": [Elasticity],
        "[learned]": [zone_file.Provenance],
        "[learn]": [learn_file.LearnTable],
        "a load shape": [LoadShape],
    }
    lines = []
    for name, kinds in found.items():
        rows: dict[str, tuple[str, ...]] = {}
        for kind in kinds:
            hints, meaning = get_type_hints(kind, include_extras=True), _meanings(kind)
            held = {_key(one.name): one for one in fields(kind)}
            for key in keys_of(kind):
                name_of, rules = held[key].name, "; ".join(_rules(hints[held[key].name]))
                row = f"`{key}`", _default(held[key]), _linked(meaning.get(name_of, "")), rules
                rows.setdefault(key, row)
        head = ("key", "default", "meaning", "a value")
        lines += [f"## {name}\n", _table(head, list(rows.values()))]
    mapping = ("`NAME`", "", "mapping of readings that senders may name so", "path of its file")
    lines += ["## [mappings]\n", _table(head, [mapping])]
    return "\n".join(lines)


def _meanings(kind: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        found |= _attributes(inspect.getdoc(one) or "")
    return found


def _attributes(docstring: str) -> dict[str, str]:
    """The Attributes of a docstring."""
    _, _, text = docstring.partition("Attributes:\n")
    return {
        name: re.sub(r"\s+", " ", says).strip()
        for name, says in re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", text.split("\n\n")[0], re.M)
    }


def _linked(meaning: str) -> str:
    """Names of pages as links."""
    return re.sub(r"docs/([\w/-]+)\.md", r"[\1](\1.md)", meaning)


def _rules(hint: Any) -> Iterator[str]:
    """What a value must be, as the message about a wrong one says it."""
    from hushgrid.files._tables import fix

    for one in getattr(hint, "__metadata__", ()):
        if isinstance(one, fix):
            yield one.text
    for one in get_args(hint):
        yield from _rules(one)


def _default(one: Any) -> str:
    if one.default is MISSING and one.default_factory is MISSING:
        return "required"
    value = one.default if one.default_factory is MISSING else one.default_factory()
    if is_dataclass(value):
        return "as its table"
    written = str(value).lower() if isinstance(value, bool) else value
    return "" if value is None or value == () or value == "" else f"`{written}`"


# ---- certificate


def certificate() -> str:
    """The keys of a certificate, as the module that writes it describes them."""
    from hushgrid.report import certificate as module

    text = inspect.getdoc(module) or ""
    rows = [
        (f"`{key}`", _linked(" ".join(meaning.split())))
        for key, meaning in re.findall(r"^ {4}([\w.*\[\]]+): (.*(?:\n {8}.*)*)", text, re.M)
    ]
    return _table(("key", "meaning"), rows)


# ---- pages

PARTS = {
    "api": api,
    "commands": commands,
    "routes": routes,
    "keys": keys,
    "certificate": certificate,
}


def fill_in(_app: Any, _name: str, source: list[str]) -> None:
    """Put a generated part into the page that asks for it."""
    for part, make in PARTS.items():
        mark = f"<!-- generated: {part} -->"
        if mark in source[0]:
            source[0] = source[0].replace(mark, make())


def _table(head: tuple[str, ...], rows: list[Any]) -> str:
    def line(cells: Any) -> str:
        return (
            "| "
            + " | ".join(" ".join(str(one).split()).replace("|", "\\|") for one in cells)
            + " |"
        )

    return "\n".join([line(head), line("---" for _ in head), *map(line, rows)]) + "\n"
