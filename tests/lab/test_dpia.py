"""The text of a data-protection impact assessment, made of the figures of a replay."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from hushgrid.audit.certificate import certify
from hushgrid.lab.evidence import (
    KEPT_PRIVATE,
    MAY_BE_PUBLISHED,
    Recommended,
    ReplayEvidence,
    SourceFile,
)
from hushgrid.mechanism.policy import Policy, assumptions
from hushgrid.operate.audit import terms_of
from hushgrid.report.certificate import certificate_json
from hushgrid.report.dpia import dpia_text
from hushgrid.report.promise import home_words, promise_sentence
from tests.curator.streets import BEGINS, load
from tests.lab.evidence import evidence


def section(text: str, number: int) -> str:
    (part,) = re.findall(rf"(?ms)^## {number}\. .*?(?=^## |\Z)", text)
    return str(part)


def test_the_sections_are_those_of_the_regulation_in_its_order() -> None:
    heads = re.findall(r"(?m)^## (.*)$", dpia_text(evidence()))
    assert [head[0] for head in heads] == list("1234567")
    letters = [re.findall(r"35\(7\)\((.)\)", head) for head in heads]
    assert letters[:4] == [["a"], ["b"], ["c"], ["d"]]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_promise_is_in_the_words_of_the_certificate(number: int) -> None:
    """Of each window; the certificate makes them by the same functions from its policy."""
    window, words = [("P1D", "24 hours"), ("P7D", "7 days"), ("P14D", "14 days")][number - 1]
    figures = replace(
        evidence(), recommended=Recommended("window", window, 1.0, False, ("It is enough.",))
    )
    text = section(dpia_text(figures), 4)
    home = home_words("window", 1.0, words)
    policy = Policy(1.0, clamp=(700,))
    assert home.words in text
    assert promise_sentence(policy, "window", 1.0, continued=True, window=words) in text
    assert f"Not covered: {', '.join(home.not_covered)}." in text
    stated = re.findall(r"(?m)^- (.*)$", text.split("It assumes:")[1].split("Not covered")[0])
    assert tuple(stated) == assumptions("window", policy, None, 1)
    assert "Readings are cut at the clamp" in text


def test_an_interval_promise_has_its_own_assumptions() -> None:
    figures = replace(
        evidence(), recommended=Recommended("interval", None, 0.5, False, ("It is cheap.",))
    )
    text = section(dpia_text(figures), 4)
    assert "All prices together, past and future" in text
    assert "The occupancy model is true." in text
    assert "within a block of steps" in text


def test_figures_of_the_run_are_in_their_sections() -> None:
    text = dpia_text(evidence())
    assert "SHA-256 " + "ab" * 32 in section(text, 1)
    assert "100 homes, 365 days from 2013-01-01 to 2013-12-31" in section(text, 1)
    assert "a public clamp of 700 Wh" in section(text, 1)
    necessity = section(text, 2)
    assert "uses no reading is off by 22.0%" in necessity
    assert "is off by 10.0%" in necessity
    assert "| flat price | nothing | 22.0% (20.0% to 24.0%) |" in necessity
    assert "| any 14 days | 20.0% (18.0% to 22.0%) | 10.0%" in necessity
    assert "mean AUC 1.000; 100% of absences found" in section(text, 3)
    residual = section(text, 5)
    assert (
        "a mean AUC of 0.560 (0.600 for the worst home), and the promise allows 0.620" in residual
    )
    assert "| highest fifth | 20 | 19 | 6.00% | 10.00% |" in residual
    assert "Homes do not react to prices." in section(text, 6)


def test_who_may_see_it_is_said_first_and_last() -> None:
    for kind, notice in (("private", KEPT_PRIVATE), ("synthetic", MAY_BE_PUBLISHED)):
        text = dpia_text(evidence(kind))  # type: ignore[arg-type]
        lines = [line for line in text.splitlines() if line]
        assert lines[1] == lines[-1] == f"> **{notice}**"
    assert KEPT_PRIVATE not in text
    assert "Synthetic homes, made from public statistics alone" in text


def test_necessity_is_not_shown_where_readings_gain_nothing() -> None:
    figures = evidence()
    cheap = replace(figures.others[0].error, mean=0.08)  # type: ignore[type-var]
    figures = replace(figures, others=(replace(figures.others[0], error=cheap),))
    assert "**The necessity of readings is not shown:**" in section(dpia_text(figures), 2)
    without = replace(figures, others=())
    assert "show no necessity" in section(dpia_text(without), 2)


def test_necessity_is_of_prices_in_real_time() -> None:
    """A list that is closer by chance does not make it another price."""
    figures = evidence()
    lists = [
        replace(price, ahead=True, error=replace(price.error, mean=0.9 * price.error.mean))
        for price in figures.others
        if price.gives_away == "nothing" and price.error is not None
    ]
    others = (*(price for price in figures.others if not price.ahead), *lists)
    text = dpia_text(replace(figures, others=others))
    assert "uses no reading is off by 22.0%" in section(text, 2)


def test_no_recommendation_is_said() -> None:
    figures = replace(
        evidence(),
        recommended=Recommended(None, None, None, False, ("No promise is below 10 %.",)),
        limits=("Ten days are too few to say anything about a year.",),
    )
    text = dpia_text(figures)
    assert "**No promise is recommended for these homes**" in section(text, 4)
    assert "so necessity is not shown" in section(text, 2)
    assert "nothing of a home is in a price" in section(text, 5)
    assert "Ten days are too few" in section(text, 5)


def test_a_refused_promise_says_why() -> None:
    figures = evidence()
    refused = tuple(
        replace(promise, error=None, bills=None, refusal="too few homes")
        if (promise.window, promise.epsilon) == ("P14D", 0.5)
        else promise
        for promise in figures.promises
    )
    assert "refused: too few homes" in section(dpia_text(replace(figures, promises=refused)), 2)


def named(name: str) -> ReplayEvidence:
    figures = evidence()
    file = SourceFile(name, "cd" * 32, "by its columns")
    return replace(figures, found=replace(figures.found, files=(file,)))


@pytest.mark.parametrize(
    "name", ["a|b.csv", "x\n## 9. Forged", "<img src=x>.csv", "`rm`[a](http://b)*c*.csv"]
)
def test_the_name_of_a_file_is_text(name: str) -> None:
    text = dpia_text(named(name))
    assert len(re.findall(r"(?m)^## ", text)) == 7
    (line,) = [line for line in text.splitlines() if line.startswith("- File ")]
    bare = re.sub(r"\\.", "", line)
    assert not set("`*<>[|#") & set(bare)


def test_the_text_is_plain_markdown() -> None:
    text = dpia_text(evidence())
    assert "\n\n\n" not in text
    assert "{{" not in text
    assert "None" not in text
    for table in re.findall(r"(?m)(?:^\|.*\n)+", text):
        widths = {len(re.split(r"(?<!\\)\|", row)) for row in table.splitlines()}
        assert len(widths) == 1, table


SECRETS = {
    "window": (('secret = "interval"', 'secret = "window"\nwindow = "P7D"'),),
    "interval": (),
}


@pytest.mark.parametrize("secret", SECRETS)
def test_a_certificate_of_the_same_promise_says_the_same(
    tmp_path: Path, secret: Literal["window", "interval"]
) -> None:
    """Of a real zone: its sentence, what it does not cover, and every assumption."""
    zone = load(tmp_path, BEGINS, *SECRETS[secret])
    values = certificate_json(certify(terms=(terms_of(zone),)))
    window = "P7D" if secret == "window" else None
    terms = Recommended(secret, window, 1.0, False, ("It is enough.",))
    figures = replace(evidence(), recommended=terms)
    steps = max(zone.policy.schedule.lengths, default=1)
    block = steps * figures.found.interval if steps > 1 else 0
    promises = (replace(promise, block=block) for promise in figures.promises)
    text = section(dpia_text(replace(figures, promises=tuple(promises))), 4)
    assert values["promise"]["words"] in text
    assert f'Exactly: "{values["promise"]["sentence"]}"' in text
    assert f"Not covered: {', '.join(values['promise']['not_covered'])}." in text
    assert values["assumptions"]
    assert [line for line in values["assumptions"] if f"- {line}\n" not in text] == []
