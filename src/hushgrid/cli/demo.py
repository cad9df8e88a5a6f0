"""hushgrid demo: a simulated zone, alive, with adversaries beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hushgrid.cli.common import Json, Seed, need, progress, put_json, say


def demo(
    once: Annotated[
        bool, typer.Option("--once", help="Play one day without a page, and judge it.")
    ] = False,
    epsilon: Annotated[
        float, typer.Option(help="Promised about any quarter hour of anybody in a week.")
    ] = 1.0,
    eta: Annotated[float, typer.Option(help="Share of a law that may be anything.")] = 0.05,
    seed: Seed = 1,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8080,
    speed: Annotated[float, typer.Option(min=1, max=1e6, help="Times as fast as life.")] = 720.0,
    out: Annotated[Path, typer.Option(help="Folder for what --once writes.")] = Path("out/demo"),
    json: Json = None,
) -> None:
    """Open a living zone of 1,000 simulated houses, with two adversaries who watch its prices.

    Curator, ledger, price server and pages are the real ones, on this machine alone.

    Example: hushgrid demo --once --json -
    """
    for module in ("uvicorn", "starlette", "paho.mqtt.client", "prometheus_client", "httpx"):
        need(module, "serve")
    import logging
    import signal
    import time

    from hushgrid.live.demo.living import Opening, Wishes, live
    from hushgrid.live.demo.setting import Dials
    from hushgrid.live.demo.show import DAY
    from hushgrid.live.logs import log_lines

    dials, wishes = Dials(epsilon, eta), Wishes()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: wishes.stop())
    log_lines(level=logging.WARNING)
    if once:
        _once(dials, out, wishes, seed, json)
        return
    midnight = int(time.time()) // DAY * DAY
    opening = Opening(dials, midnight, seed=seed, port=port, speed=speed)
    live(opening, wishes, lambda line: say(line, None))


def _once(dials: Any, out: Path, wishes: Any, seed: int, json: str | None) -> None:
    """One day, judged and written."""
    import time

    from hushgrid import report
    from hushgrid.files import json_text, make_folder, save_figures, write_text
    from hushgrid.live.demo.once import PIECES, play_once

    need("matplotlib", "plot")
    make_folder(out)
    begun = time.monotonic()
    with progress("one day of 1,000 houses", PIECES) as tick:
        kept = play_once(dials, out, wishes, seed=seed, tick=tick)
    figures = save_figures(out, {"demo": report.demo_figure(kept.day)})
    values = report.demo_json(kept.day) | {
        "seconds": round(time.monotonic() - begun, 3),
        "ledger": str(kept.ledger),
        "files": [str(path) for path in (*figures, *kept.files)],
    }
    written = [write_text(out / "demo.json", json_text(values)), *figures, *kept.files]
    written += put_json(values, json)
    say(f"{report.demo_prose(kept.day)}\n\n{report.demo_table(kept.day)}\n", json)
    say("Written:\n" + "\n".join(f"  {path}" for path in written), json)
    if not all(kept.day.holds.values()):
        raise typer.Exit(1)
