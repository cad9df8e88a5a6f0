"""Group privacy: a house's whole day counts as one group of T readings, noise T u / epsilon."""

from __future__ import annotations

from hushgrid.baselines.method import Method, MethodSetting, Ready, noisy


def _prepare(setting: MethodSetting) -> Ready:
    b = setting.horizon * setting.largest / setting.promise.epsilon
    return noisy(
        setting,
        [b] * setting.horizon,
        "pure epsilon for a house's whole trajectory, whatever anyone consumes: T readings of at"
        " most u each",
    )


GROUP = Method("group", "group privacy", True, 1.0, _prepare)
