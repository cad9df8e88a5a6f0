"""hushgrid demo: a simulated zone, alive, with adversaries beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hushgrid.cli.common import Json, Seed, need, progress, put_json, say

_PIECES = 96 + 24 + 2  # of work: releases, days foreseen, a plan and an audit


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
    if once:
        need("matplotlib", "plot")
        _once((epsilon, eta), out, seed, json)
    else:
        _live((epsilon, eta), seed, port, speed)


def _live(dials: tuple[float, float], seed: int, port: int, speed: float) -> None:
    """Days after each other, until told to stop."""
    import time
    from contextlib import ExitStack

    with ExitStack() as bar:
        tick = bar.enter_context(progress("opening 1,000 houses", 2))
        from hushgrid.live.demo.living import Opening, live
        from hushgrid.live.demo.setting import Dials
        from hushgrid.live.demo.show import DAY

        tick()
        midnight = int(time.time()) // DAY * DAY
        opening = Opening(Dials(*dials), midnight, seed=seed, port=port, speed=speed)

        def told(line: str) -> None:
            tick()
            bar.close()
            say(line, None)

        live(opening, _wishes(), told)


def _once(dials: tuple[float, float], out: Path, seed: int, json: str | None) -> None:
    """One day, judged and written."""
    import time

    begun = time.monotonic()
    with progress("one day of 1,000 houses", _PIECES) as tick:
        from hushgrid import report
        from hushgrid.files import json_text, make_folder, save_figures, write_text
        from hushgrid.live.demo.once import play_once
        from hushgrid.live.demo.setting import Dials

        asked = Dials(*dials)
        make_folder(out)
        kept = play_once(asked, out, _wishes(), seed=seed, tick=tick)
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


def _wishes() -> Any:
    """Signals become a wish to stop; logs are told where something is wrong."""
    import logging
    import signal

    from hushgrid.live.demo.living import Wishes
    from hushgrid.live.logs import log_lines

    wishes = Wishes()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: wishes.stop())
    log_lines(level=logging.WARNING)
    return wishes
