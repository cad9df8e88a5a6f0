"""python -m benchmarks [--json FILE|-] [id ...], from the project's root (needs hushgrid[bench]).

Exit 0: every goal met; 1: a goal missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import (
    adversary,
    batch,
    calibrate,
    clients,
    compose,
    follow,
    intake,
    leakage,
    learn,
    many,
    meters,
    million,
    schedule,
    simulate,
    start,
    step,
    web,
    webhooks,
    years,
)
from benchmarks.measure import Question, Result

QUESTIONS: dict[str, Question] = (
    step.QUESTIONS
    | schedule.QUESTIONS
    | simulate.QUESTIONS
    | calibrate.QUESTIONS
    | leakage.QUESTIONS
    | compose.QUESTIONS
    | follow.QUESTIONS
    | meters.QUESTIONS
    | clients.QUESTIONS
    | intake.QUESTIONS
    | million.QUESTIONS
    | many.QUESTIONS
    | adversary.QUESTIONS
    | web.QUESTIONS
    | webhooks.QUESTIONS
    | learn.QUESTIONS
    | batch.QUESTIONS
    | start.QUESTIONS
    | years.QUESTIONS
)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    unknown = [name for name in options.ids if name not in QUESTIONS]
    if unknown:
        print(f"id is {unknown[0]!r}; give some of {', '.join(QUESTIONS)}.", file=sys.stderr)
        return 2
    results = {}
    for name in options.ids or QUESTIONS:
        results[name] = QUESTIONS[name]()
        # with --json - standard output is for the JSON alone
        print(_line(name, results[name]), file=sys.stderr if options.json == "-" else None)
    _write(results, options.json)
    return int(any(result.missed for result in results.values()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Speed and memory as ratios against a peer or a limit, taken in one run.",
        epilog="example: python -m benchmarks --json bench.json step calibrate",
    )
    parser.add_argument("--json", metavar="FILE|-", help="write {id: {value, unit, ratio, goal}}")
    parser.add_argument("ids", nargs="*", metavar="id", help=f"some of {', '.join(QUESTIONS)}")
    return parser


def _line(name: str, result: Result) -> str:
    verdict = "no goal" if result.goal is None else f"goal {result.goal}: met"
    if result.missed:
        verdict = f"GOAL MISSED: {result.goal}"
    return f"{name:22}ratio {result.ratio:<9.4g}{verdict:24}({result.value:.4g} {result.unit})"


def _write(results: dict[str, Result], target: str | None) -> None:
    if target is None:
        return
    text = json.dumps({name: result._asdict() for name, result in results.items()}, indent=2) + "\n"
    if target == "-":
        sys.stdout.write(text)
    else:
        Path(target).write_text(text)


if __name__ == "__main__":
    sys.exit(main())
