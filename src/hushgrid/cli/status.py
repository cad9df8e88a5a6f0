"""hushgrid status: where the zones of a service stand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushgrid.cli.common import Json, need, put_json, say


def status(
    service: Annotated[
        str, typer.Argument(metavar="FILE|URL", help="Service file, or http://HOST:PORT.")
    ],
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with an operator's bearer token, for a URL; else $HUSHGRID_TOKEN."),
    ] = None,
    json: Json = None,
) -> None:
    """Show each zone's last step, budget spent and left, and state.

    How many meters were missing in the last interval is for operators: give a URL and a token.

    Example: hushgrid status service.toml
    """
    import os
    import time
    from dataclasses import asdict

    from hushgrid.files import read_text
    from hushgrid.live.config import load_deployment
    from hushgrid.live.status import from_ledger, from_service

    if service.startswith(("http://", "https://")):
        need("httpx", "serve")
        given = read_text(token_file) if token_file else os.environ.get("HUSHGRID_TOKEN", "")
        found = from_service(service, given.strip())
    else:
        found = from_ledger(load_deployment(Path(service)), time.time())
    shared = any(one.curator for one in found)
    curator = " curator" if shared else ""
    say(f"{'zone':<20} {'t':>7} {'spent':>10} {'left':>10} {'missing':>8} state{curator}", json)
    for one in found:
        left = "-" if one.left is None else f"{one.left:.6g}"
        missing = "-" if one.missing is None else str(one.missing)
        figures = f"{one.t:7d} {one.spent:10.6g} {left:>10} {missing:>8}"
        state = f"{one.state} {one.curator or '-'}" if shared else one.state
        say(f"{one.zone:<20} {figures} {state}", json)
    for one in found:
        if one.leakage is not None:
            counted = f"all prices together tell at most {one.leakage:.6g} about one interval"
            say(f"{one.zone}: {counted} of one home (leakage)", json)
    zones = [asdict(one) for one in found]
    put_json({**(zones[0] if len(zones) == 1 else {}), "zones": zones}, json)
