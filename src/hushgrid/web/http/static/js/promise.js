// The prices that a promise covers, in words.

import { number } from "./format.js";
import { t } from "./words.js";

export function seenBy({ secret }) {
  if (secret === "step") return t("one price, if the occupancy of all other homes is known");
  return t("all prices ever published");
}

const STRETCHES = {
  PT15M: () => t("15 minutes"),
  P1D: () => t("a day"),
  P7D: () => t("a week"),
  P14D: () => t("two weeks"),
  P30D: () => t("a month"),
};

// What the promise covers: a line for each stretch of time; figures are rounded up.
export function covered({ covers }) {
  return covers.map(({ duration, shift, auc_limit: limit, auc_typical: typical }) => t("Away for {stretch}: {limit} times for a home that uses its limit, {typical} for a typical one; the odds shift by at most e^{shift}.", {
    stretch: STRETCHES[duration](),
    limit: number(Math.ceil(100 * limit)),
    typical: number(Math.ceil(100 * typical)),
    shift: shift === null ? "∞" : number(Math.ceil(100 * shift) / 100, 2),
  }));
}
