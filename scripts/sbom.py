"""A bill of materials of hushgrid as it is installed here: CycloneDX 1.6, JSON.

    python scripts/sbom.py --extra serve --extra postgres > sbom.json

Names, versions and licences come from the metadata of the installed packages that hushgrid with
these extras needs; no index is asked, and none is named. The same environment gives the same file.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def needed(name: str, extras: set[str]) -> dict[str, tuple[Distribution, set[str]]]:
    """Installed packages by name, each with the names of those it needs."""
    found: dict[str, tuple[Distribution, set[str]]] = {}
    seen: set[tuple[str, str]] = set()
    left = [(canonicalize_name(name), extra) for extra in ("", *sorted(extras))]
    while left:
        at, extra = left.pop()
        if (at, extra) in seen:
            continue
        seen.add((at, extra))
        try:
            package = distribution(at)
        except PackageNotFoundError:
            sys.exit(f"{at} is not installed; install hushgrid with these extras first.")
        _, needs = found.setdefault(at, (package, set()))
        for line in package.requires or ():
            one = Requirement(line)
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                other = canonicalize_name(one.name)
                if other != at:
                    needs.add(other)
                left += [(other, ""), *((other, more) for more in one.extras)]
    return found


def licence(package: Distribution) -> list[dict[str, Any]]:
    """What the package says of its licence, as CycloneDX has it."""
    known = package.metadata
    if expression := known.get("License-Expression"):
        return [{"expression": expression}]
    text = (known.get("License") or "").strip()
    kinds = [
        c.rpartition(" :: ")[2] for c in known.get_all("Classifier") or () if "License ::" in c
    ]
    name = text if text and "\n" not in text and len(text) < 80 else "; ".join(kinds)
    return [{"license": {"name": name}}] if name else []


def component(package: Distribution, kind: str = "library") -> dict[str, Any]:
    """A package as a component."""
    name, version = canonicalize_name(package.metadata["Name"]), package.version
    reference = f"pkg:pypi/{name}@{version}"
    made = {"type": kind, "bom-ref": reference, "name": name, "version": version}
    return {**made, "licenses": licence(package), "purl": reference}


def bill(extras: set[str]) -> dict[str, Any]:
    """The bill of materials of hushgrid with these extras."""
    found = needed("hushgrid", extras)
    parts = {name: component(package) for name, (package, _) in sorted(found.items())}
    own = component(found["hushgrid"][0], "application")
    own["authors"] = [{"name": "the hushgrid contributors"}]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own},
        "components": [part for name, part in parts.items() if name != "hushgrid"],
        "dependencies": [
            {"ref": parts[name]["bom-ref"], "dependsOn": sorted(parts[n]["bom-ref"] for n in needs)}
            for name, (_, needs) in sorted(found.items())
        ],
    }


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--extra", action="append", default=[], help="An extra of hushgrid.")
    json.dump(bill(set(words.parse_args().extra)), sys.stdout, indent=1)
    sys.stdout.write("\n")
