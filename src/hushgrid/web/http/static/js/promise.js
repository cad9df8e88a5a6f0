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

// Words with odds in them, which never break at their colon.
export const unbroken = (text) => text.replaceAll(" : ", "\u00a0:\u00a0");

// What even odds become at most after a shift by e^epsilon, in parts of a hundred.
function odds(epsilon) {
  const less = epsilon === null ? 0 : 100 / (1 + Math.exp(epsilon));
  const places = less < 0.005 ? 0 : Math.max(-Math.floor(Math.log10(less)), 0);
  return `${number(100 - less, places)} : ${number(less, places)}`;
}

// What the promise covers: a line for each stretch of time; times of 100 are rounded up.
export function covered({ covers }) {
  return covers.map(({ duration, shift, auc_limit: limit, auc_typical: typical }) => unbroken(t("Away for {stretch}: the best attack tells two homes apart at most {limit} times of 100 where they use their limit, {typical} where they are typical; about one home, a 50 : 50 guess becomes {odds} at most (odds times e^{shift}).", {
    stretch: STRETCHES[duration](),
    limit: number(Math.ceil(100 * limit)),
    typical: number(Math.ceil(100 * typical)),
    odds: odds(shift),
    shift: shift === null ? "∞" : number(Math.ceil(100 * shift) / 100, 2),
  })));
}
