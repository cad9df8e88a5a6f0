"""Laws of a reading: discretised families, moments, transforms, sampling."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from hushgrid import FileError, Gamma, Histogram, Law, LogNormal, TruncatedNormal, Uniform
from hushgrid.files.zone_file import load_zone

LAWS: list[Law] = [
    Uniform(40),
    Uniform(0),
    TruncatedNormal(20.0, 6.0, 50),
    TruncatedNormal(-10.0, 6.0, 50),
    Gamma(2.0, 8.0, 120),
    LogNormal(15.0, 0.7, 200),
    Histogram([1, 0, 0, 5, 2]),
]


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_moments_follow_from_the_pmf(law: Law) -> None:
    x = np.arange(law.top + 1)
    assert law.pmf.sum() == pytest.approx(1, abs=1e-12)
    assert law.mean == pytest.approx((law.pmf * x).sum(), abs=1e-12)
    assert law.variance == pytest.approx((law.pmf * x**2).sum() - law.mean**2, abs=1e-9)


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_sampling_has_the_law(law: Law) -> None:
    """Chi-square at level 1e-6 on cells that expect at least 5."""
    n = 40_000
    sample = law.sample(np.random.default_rng(2).random(n))
    seen = np.bincount(sample, minlength=law.top + 1)
    assert seen.size == law.top + 1
    assert not seen[law.pmf == 0].any()
    common = law.pmf * n >= 5
    expected = np.append(law.pmf[common], law.pmf[~common].sum()) * n
    counted = np.append(seen[common], seen[~common].sum())
    cells = expected > 0
    statistic = ((counted - expected)[cells] ** 2 / expected[cells]).sum()
    assert statistic < stats.chi2.isf(1e-6, max(cells.sum() - 1, 1))


def test_families_are_scipys_laws_rounded_to_whole_wh() -> None:
    edges = np.arange(202) - 0.5
    for law, peer in (
        (TruncatedNormal(60.0, 25.0, 200), stats.norm(60, 25)),
        (Gamma(2.5, 30.0, 200), stats.gamma(2.5, scale=30)),
        (LogNormal(50.0, 0.6, 200), stats.lognorm(0.6, scale=50)),
    ):
        bins = np.diff(peer.cdf(np.r_[-np.inf, edges[1:]]))
        assert law.pmf == pytest.approx(bins / bins.sum(), rel=1e-9, abs=1e-15)


def test_tails_do_not_cancel() -> None:
    """Far out, 1 - cdf would round to 0; each bin is taken from its own tail."""
    assert TruncatedNormal(0.0, 10.0, 200).pmf[150] == pytest.approx(
        2 * stats.norm(0, 10).pdf(150) / (1 + 2 * (stats.norm(0, 10).cdf(0.5) - 0.5)), rel=0.2
    )
    assert (Gamma(1.0, 2.0, 400).pmf > 0).all()


def test_scaled_law_is_the_law_of_the_scaled_reading() -> None:
    law = Gamma(2.0, 8.0, 60)
    for factor, bound in ((0.5, 60), (1.3, 60), (1.0, 60)):
        moved = law.scaled(factor, bound)
        by_hand = np.zeros(bound + 1)
        for x, p in enumerate(law.pmf):
            by_hand[min(int(np.floor(x * factor + 0.5)), bound)] += p
        assert moved.pmf == pytest.approx(by_hand[: moved.top + 1])
        assert by_hand[moved.top + 1 :].sum() == 0


def test_mixtures_and_bins_in_a_zone_file(tmp_path: Path) -> None:
    """A mixture of bins and a log-normal law, by hand; what is wrong is named by its place."""
    mixed = (
        '{ law = "mixture", parts = [{ share = 0.25, law = "bins", edges = [0, 2, 4],'
        ' weights = [1, 3] }, { share = 0.75, law = "uniform", top = 9 }] }'
    )
    text = (Path(__file__).parents[2] / "examples" / "release.toml").read_text()
    plain = 'absent = { law = "gamma", shape = 2.0, scale = 20.0 }'
    assert plain in text
    path = tmp_path / "zone.toml"
    path.write_text(text.replace(plain, f"absent = {mixed}"))
    law = load_zone(path).scenario.consumption.laws[0]
    rest = 0.001 / 2501
    assert law.pmf[0] == pytest.approx(0.25 * (0.999 / 8 + rest) + 0.075)
    assert law.pmf[3] == pytest.approx(0.25 * (0.999 * 3 / 8 + rest) + 0.075)
    assert law.pmf[100] == pytest.approx(0.25 * rest)
    for spoilt, says in (
        (mixed.replace("0.25", "0.5"), "shares"),
        (mixed.replace("share = 0.25, ", ""), "share"),
        (mixed.replace("[0, 2, 4]", "[0, 4, 2]"), "edges"),
        (mixed.replace("[1, 3]", "[1]"), "weights"),
        (mixed.replace('"bins"', '"boxes"'), r"parts\[0\].law"),
        ('{ law = "mixture" }', "parts"),
    ):
        path.write_text(text.replace(plain, f"absent = {spoilt}"))
        with pytest.raises(FileError, match=says):
            load_zone(path)


@pytest.mark.parametrize(
    "law",
    [
        Gamma(2.0, 2.3e-308, 4000),
        LogNormal(2.2e-313, 0.8, 4000),
        TruncatedNormal(7.2, 2.3e-308, 4000),
    ],
    ids=["gamma", "log-normal", "normal"],
)
def test_a_law_much_narrower_than_a_wh(law: Law) -> None:
    assert law.pmf.sum() == pytest.approx(1.0)
    assert law.pmf.max() == pytest.approx(1.0)
