// The prices that a promise covers, in words.

import { t } from "./words.js";

export function seenBy({ secret }) {
  if (secret === "step") return t("one price, if the occupancy of all other homes is known");
  return t("all prices ever published");
}
