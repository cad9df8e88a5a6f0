// The prices that a promise covers, in words.

import { t } from "./words.js";

export function seenBy({ secret, horizon, interval_s: interval }) {
  if (secret === "step") return t("one price, if the occupancy of all other homes is known");
  const hours = Math.round((horizon * interval) / 3600);
  if (hours === 24) return t("all prices of a day together");
  if (hours % 24 === 0) return t("all prices of {days} days together", { days: hours / 24 });
  return t("all prices of {hours} hours together", { hours });
}
