// Fills the figures of a zone into the explanation.

import { ask, worded } from "./api.js";
import { find, items, say, state, width, zone } from "./dom.js";
import { most, number, percent, short } from "./format.js";
import { covered, seenBy, unbroken } from "./promise.js";
import { t } from "./words.js";

const card = find("#promise");

// The planned noise beside the expected load.
function share({ noise, publish }) {
  if (noise === null) return "";
  if (noise < 1) return t("In this zone it is {share} of the load of all homes together.", { share: percent(noise) });
  return publish === "estimate"
    ? t("In this zone it is {ratio} times the load of all homes together: the price is an estimate that follows many releases, not one.", { ratio: short(noise) })
    : t("In this zone it is {ratio} times the load of all homes together.", { ratio: short(noise) });
}

function render(promise) {
  const top = most(promise.epsilon);
  const minutes = promise.interval_s / 60;
  say(find("#remains"), t("An adversary who knows what all the other homes use only has to subtract. What remains is the load of your home: occupied or empty, every {minutes} minutes.", { minutes: short(minutes) }));
  say(find("#share"), share(promise));
  say(find("#words"), unbroken(promise.words));
  say(find("#sentence"), promise.sentence);
  items(find("#uncovered"), promise.not_covered);
  items(find("#assumptions"), promise.assumptions);
  items(find("#covers"), covered(promise));
  say(find("#after"), t("seeing {seen}", { seen: seenBy(promise) }));
  say(find("#most"), percent(top));
  say(find("#houses"), t("The {houses} homes of the zone share one price, and so its noise.", { houses: number(promise.houses) }));
  width(find(".part.before"), 0.5);
  width(find(".part.after"), top);
  find("#odds").setAttribute("aria-label", t("Before 50 percent, after at most {most} percent.", { most: Math.round(100 * top) }));
  if (promise.leakage?.day && promise.secret !== "window") {
    const of = (name) => short(Math.exp(promise.leakage[name]));
    say(find("#figures"), t("About any one interval of a home, the odds shift at most by a factor of {step} from one price, {day} from the prices of a day, {week} from those of a week.", { step: of("step"), day: of("day"), week: of("week") }));
  }
  if (promise.error !== null) {
    say(find("#cost"), t("In this zone the published price is off by about {error} (root of the mean square of the relative error), about as often up as down.", { error: percent(promise.error) }));
  }
  for (const id of ["#eta", "#joint"]) find(id).hidden = promise.secret === "window"; // it assumes no model
  say(find("#eta"), t("The promise assumes the published model of occupancy. The dial η is the share of each reading's law that may differ from the published law of consumption: at η = 1 no law of consumption is assumed, at η = 0 the law is assumed to be exact. Here η is {eta}.", { eta: short(promise.eta) }));
}

if (!zone) {
  state(card, "empty");
} else {
  try {
    render(await ask(worded("/v1/promise", zone)));
    state(card, "ready");
  } catch (error) {
    state(card, "error", error.message);
  }
  find("#explore").href = find("nav a[href^='/explore']").getAttribute("href");
}
