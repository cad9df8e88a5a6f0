"""The text of a data-protection impact assessment, with the figures of a replay.

The sections are those of Article 35(7) of the GDPR, in its order. The promise, its assumptions and
what it does not cover are in the words of the certificate. Plain Markdown; no id of a meter and no
reading of a home is in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from hushgrid._numbers import count_of
from hushgrid.files.toml import duration_text, seconds_of, window_text
from hushgrid.lab.evidence import (
    AttackFigures,
    Bills,
    Estimate,
    OtherPrice,
    PriceFigures,
    PromiseFigures,
    ReplayEvidence,
)
from hushgrid.mechanism.policy import Blocks, Even, Policy, assumptions
from hushgrid.report.promise import home_words, promise_sentence

if TYPE_CHECKING:
    from jinja2 import Template

EPSILONS = (0.5, 1.0, 2.0)
_NONE = "–"
_GIVES_AWAY = {
    "everything": "every reading, to someone who knows the other homes",
    "past days": "days that are over",
    "nothing": "nothing",
}
_SECRETS = {"absence": "two weeks away", "occupancy": "at home or not, one interval"}
_MEASURES = (
    "Noise that is drawn before the load is known, from a secure source, in whole Wh.",
    "An account of all prices ever published that admits a price from readings or refuses it; it"
    " goes on over changes of terms, restarts and copies.",
    "Signed records in a chain: what was published and what it cost cannot be changed unseen.",
    "An audit that anyone can repeat from the records and the public file, and a check of the chain"
    " by a script that needs nothing else.",
    "No reading in any log, metric, message or record; readings deleted after their retention.",
    "Connections that are authenticated and encrypted; scopes for each party; senders bound to"
    " their meters.",
    "Where no meter reports, or the account refuses, a forecast that uses no reading.",
)
_REMAINING = (
    "readings on their way to the utility and in its hands until they are deleted, and theft of the"
    " machine or of its key",
    "what the utility's own staff can see",
    "an absence or a habit that lasts longer than what the promise is about",
    "what section 4 says is not covered",
)


def dpia_text(evidence: ReplayEvidence) -> str:
    """The assessment as Markdown.

    Args:
        evidence: The figures of a replay.

    Returns:
        The text; it says first and last who may see it.
    """
    text = _template().render(_content(evidence))
    return "\n".join(_without_double_blanks(text.splitlines())) + "\n"


def _without_double_blanks(lines: Sequence[str]) -> Iterator[str]:
    """The lines without an empty one after another."""
    before = ""
    for line in lines:
        if line or before:
            yield line
        before = line


@cache
def _template() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("hushgrid.report"),
        autoescape=False,  # plain Markdown; texts from outside go through `_plain`
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    return environment.get_template("dpia.md")


class _Chosen(NamedTuple):
    """The recommended promise, in real time and a day ahead."""

    figures: PromiseFigures
    ahead: PromiseFigures | None
    policy: Policy
    window: str  # in words


def _content(evidence: ReplayEvidence) -> dict[str, Any]:
    """Everything that the template uses."""
    advice = _chosen(evidence)
    found = evidence.found
    words, sentence = "", ""
    not_covered: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    if advice is not None:
        secret, epsilon = advice.figures.secret, advice.figures.epsilon
        words, not_covered = home_words(secret, epsilon, advice.window)
        sentence = promise_sentence(
            advice.policy, secret, epsilon, continued=True, window=advice.window
        )
        assumed = assumptions(secret, advice.policy, None, 1)
    return {
        "notice": evidence.notice,
        "private": evidence.kind == "private",
        "interval": duration_text(found.interval).removeprefix("1 "),
        "homes": count_of("home", found.homes),
        "limit": _limit(evidence, advice),
        "noise": _noise(advice),
        "sources": list(_sources(evidence)),
        "necessity": _necessity(evidence, advice),
        "prices": list(_prices(evidence, advice)),
        "ladder": list(_ladder(evidence)),
        "chosen": "" if advice is None else _promise_words(advice.figures),
        "reasons": evidence.recommended.reason,
        "risks": list(_risks(evidence)),
        "words": words,
        "sentence": sentence,
        "assumptions": assumed,
        "not_covered": not_covered,
        "measures": _MEASURES,
        "residual": _residual(evidence, advice),
        "attacks": [_attack_row(row) for rows in evidence.attacks.values() for row in rows],
        "cuts": list(_cuts(evidence, advice)),
        "remaining": _REMAINING,
        "limits": evidence.limits,
        "run_assumptions": evidence.assumptions,
    }


def _chosen(evidence: ReplayEvidence) -> _Chosen | None:
    """The recommended promise; None where none is recommended."""
    terms = evidence.recommended
    key = (terms.secret, terms.window, terms.epsilon)
    by_ahead = {
        promise.ahead: promise
        for promise in evidence.promises
        if (promise.secret, promise.window, promise.epsilon) == key
    }
    if False not in by_ahead:
        return None
    figures = by_ahead[False]
    steps = max(figures.block // evidence.found.interval, 1)
    schedule = Blocks((steps,), (figures.epsilon,)) if steps > 1 else Even()
    clamp = (figures.clamp,) if figures.clamp else ()
    policy = Policy(figures.epsilon, horizon=steps, clamp=clamp, schedule=schedule)
    return _Chosen(figures, by_ahead.get(True), policy, _window_words(figures.window))


def _window_words(window: str | None) -> str:
    seconds = seconds_of(window)
    return "" if seconds is None else window_text(seconds)


def _promise_words(promise: PromiseFigures) -> str:
    if promise.secret == "window":
        return f"any {_window_words(promise.window)} of a home, ε = {promise.epsilon:g}"
    return f"occupancy in any one interval, ε = {promise.epsilon:g}"


def _plain(text: str) -> str:
    """Text from outside as one line of Markdown without marks."""
    printable = "".join(c if c.isprintable() else " " for c in text)
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|" else c for c in printable)


# ---- section 1


def _limit(evidence: ReplayEvidence, advice: _Chosen | None) -> str:
    if advice is None or not advice.figures.clamp:
        return f"the limit of the home's contract ({evidence.terms.bound} Wh)"
    return f"a public clamp of {advice.figures.clamp} Wh"


def _noise(advice: _Chosen | None) -> str:
    if advice is None:
        return "as large as the promise asks for"
    figures = advice.figures
    lasts = f", of one size for {duration_text(figures.block)}" if figures.block else ""
    return f"at a scale of {figures.scale:.0f} Wh{lasts}"


def _sources(evidence: ReplayEvidence) -> Iterator[str]:
    found, terms = evidence.found, evidence.terms
    if evidence.kind == "synthetic":
        yield "Synthetic homes, made from public statistics alone; no meter was read."
    for file in found.files:
        yield f"File {_plain(file.name)}, layout {_plain(file.layout)}, SHA-256 {file.sha256}"
    yield (
        f"{count_of('home', found.homes)}, {count_of('day', found.days)} from {found.first} to"
        f" {found.last}, a reading every {duration_text(found.interval).removeprefix('1 ')},"
        f" {found.missing:.1%} missing, times of {_plain(found.time_zone)}; errors are over"
        f" {count_of('day', found.judged_days)}"
    )
    for reason, count in found.left_out.items():
        yield f"Left out: {count_of('home', count)} ({_plain(reason)})"
    yield (
        f"Tariff: {_plain(terms.tariff)} ({_plain(terms.tariff_from)}); contract limit"
        f" {terms.bound} Wh ({_plain(terms.bound_from)}); use of a home in a year {terms.usual:g}"
        f" kWh ({_plain(terms.usual_from)}); {count_of('draw', terms.draws)} of noise"
    )


# ---- section 2


def _necessity(evidence: ReplayEvidence, advice: _Chosen | None) -> str:
    """Whether readings are needed for the purpose, by the figures."""
    free = [
        price.error.mean
        for price in evidence.others
        if price.gives_away == "nothing" and price.error is not None and not price.ahead
    ]
    if not free:
        return "No price without readings was played, so these figures show no necessity."
    best = min(free)
    start = f"The best price that uses no reading is off by {best:.1%} on these homes."
    if advice is None or advice.figures.error is None:
        return f"{start} No promise is recommended, so necessity is not shown."
    error = advice.figures.error.mean
    if error < best:
        return (
            f"{start} Under the recommended promise ({_promise_words(advice.figures)}) a price from"
            f" readings is off by {error:.1%}. So the purpose, a price that follows the load, is"
            " not met as well without them; whether the difference is worth the processing is for"
            " the controller to say."
        )
    return (
        f"{start} Under the recommended promise ({_promise_words(advice.figures)}) a price from"
        f" readings is off by {error:.1%}, which is no better. **The necessity of readings is not"
        " shown:** publish the price that needs none."
    )


def _prices(evidence: ReplayEvidence, advice: _Chosen | None) -> Iterator[list[str]]:
    if advice is not None:
        yield _price_row(
            f"**recommended: {_promise_words(advice.figures)}**",
            "what the promise bounds",
            advice.figures,
            advice.ahead,
        )
    lists = {price.name: price for price in evidence.others if price.ahead}
    shown = set[str]()
    for price in sorted(evidence.others, key=lambda price: price.ahead):
        if price.name not in shown:
            shown.add(price.name)
            yield _price_row(
                _plain(price.label),
                _GIVES_AWAY[price.gives_away],
                None if price.ahead else price,
                lists.get(price.name),
            )


def _price_row(
    label: str, says: str, now: PriceFigures | None, ahead: PriceFigures | OtherPrice | None
) -> list[str]:
    bills = next((price.bills for price in (now, ahead) if price is not None), None)
    errors = (None if price is None else price.error for price in (now, ahead))
    return [label, says, *map(_error, errors), _bills(bills)]


def _error(error: Estimate | None) -> str:
    if error is None:
        return _NONE
    low, high = error.ci95
    return f"{error.mean:.1%} ({low:.1%} to {high:.1%})"


def _bills(bills: Bills | None) -> str:
    return _NONE if bills is None else f"{bills.q05:+.2%} to {bills.q95:+.2%}"


def _ladder(evidence: ReplayEvidence) -> Iterator[list[str]]:
    """What each promise costs, a row for each secret and window."""
    now = [promise for promise in evidence.promises if not promise.ahead]
    for secret, window in dict.fromkeys((p.secret, p.window) for p in now):
        by_epsilon = {p.epsilon: p for p in now if (p.secret, p.window) == (secret, window)}
        about = f"any {_window_words(window)}" if window else "occupancy in any one interval"
        yield [about, *(_step(by_epsilon.get(epsilon)) for epsilon in EPSILONS)]


def _step(promise: PromiseFigures | None) -> str:
    if promise is None:
        return _NONE
    return f"refused: {_plain(promise.refusal)}" if promise.refusal else _error(promise.error)


# ---- sections 3 and 5


def _exact(evidence: ReplayEvidence, secret: str) -> AttackFigures | None:
    rows = evidence.attacks.get(secret, ())
    return next((row for row in rows if row.epsilon is None), None)


def _risks(evidence: ReplayEvidence) -> Iterator[list[str]]:
    absence, occupancy = _exact(evidence, "absence"), _exact(evidence, "occupancy")
    yield [
        "strangers learn that a home stands empty for days",
        "public prices, less what is known of the other homes",
        _NONE
        if absence is None
        else f"mean AUC {absence.auc:.3f}; {absence.detected:.0%} of absences found at one false"
        " alarm in 100",
        "high: burglary, fear",
    ]
    yield [
        "strangers learn when people are at home, and their habits",
        "the same, interval by interval",
        _NONE if occupancy is None else f"mean AUC {occupancy.auc:.3f} in one interval",
        "considerable: surveillance, inference about work, health, belief",
    ]
    yield [
        "readings are used for something else",
        "at the utility, its processors, or after a theft",
        "not measured by a replay",
        "high",
    ]
    yield [
        "a home pays more because its price is noisy",
        "noise in the price",
        "none without measures; with them see section 5",
        "by the sum, low to moderate",
    ]


def _residual(evidence: ReplayEvidence, advice: _Chosen | None) -> str:
    if advice is None:
        return (
            "With prices that use no reading, nothing of a home is in a price. What remains are the"
            " readings themselves. The table says what prices from readings would have given away."
        )
    parts = []
    key = (advice.figures.window, advice.figures.epsilon)
    for secret, about in _SECRETS.items():
        rows = evidence.attacks.get(secret, ())
        row = next((row for row in rows if (row.window, row.epsilon) == key), None)
        if row is not None:
            bound = "" if row.bound is None else f", and the promise allows {row.bound:.3f} at most"
            parts.append(
                f"Under the recommended promise the attack on “{about}” reaches a mean AUC of"
                f" {row.auc:.3f} ({row.auc_most:.3f} for the worst home){bound}."
            )
    if not parts:
        parts.append("The recommended promise was not attacked in this run.")
    if (bills := advice.figures.bills) is not None:
        parts.append(
            f"Bills change by {bills.q05:+.2%} to {bills.q95:+.2%} for nine homes in ten, at most"
            f" {bills.largest:.2%}; revenue by {bills.revenue_change:+.2%}."
        )
    parts.append(
        "An attack is an example and shows no upper limit; the promise is the limit, if its"
        " assumptions hold."
    )
    return " ".join(parts)


def _attack_row(row: AttackFigures) -> list[str]:
    return [
        _SECRETS[row.secret],
        _plain(row.prices),
        str(row.homes),
        f"{row.auc:.3f}",
        f"{row.auc_most:.3f}",
        f"{row.detected:.0%}",
        _NONE if row.bound is None else f"{row.bound:.3f}",
    ]


def _cuts(evidence: ReplayEvidence, advice: _Chosen | None) -> Iterator[list[str]]:
    if advice is None:
        return
    key = (
        advice.figures.secret,
        advice.figures.window,
        advice.figures.epsilon,
    )
    for row in evidence.cuts:
        if (row.secret, row.window, row.epsilon) == key:
            yield [
                _plain(row.use),
                str(row.homes),
                str(row.cut_homes),
                f"{row.readings:.2%}",
                f"{row.energy:.2%}",
            ]
