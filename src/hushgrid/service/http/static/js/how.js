// Fills the figures of a zone into the explanation.

import { about, ask } from "./api.js";
import { find, items, say, state, width, zone } from "./dom.js";
import { most, number, percent, short } from "./format.js";
import { seenBy } from "./promise.js";

const card = find("#promise");

function render(promise) {
  const top = most(promise.epsilon);
  say(find("#sentence"), promise.sentence);
  items(find("#assumptions"), promise.assumptions);
  say(find("#after"), `seeing ${seenBy(promise)}`);
  say(find("#most"), percent(top));
  say(find("#houses"), `The ${number(promise.houses)} homes of the zone share one price, and so its noise.`);
  width(find(".part.before"), 0.5);
  width(find(".part.after"), top);
  find("#odds").setAttribute("aria-label", `Before 50 percent, after at most ${Math.round(100 * top)} percent.`);
  if (promise.leakage?.day) {
    const of = (name) => short(Math.exp(promise.leakage[name]));
    say(find("#figures"), `About any one interval of a home, the odds shift at most by a factor of ${of("step")} from one price, ${of("day")} from the prices of a day, ${of("week")} from those of a week.`);
  }
  if (promise.error !== null) {
    say(find("#cost"), `In this zone the published price is off by about ${percent(promise.error)} (root of the mean square of the relative error), about as often up as down.`);
  }
  say(find("#eta"), `The promise assumes the published model of occupancy. The dial η is the share of each reading's law that may differ from the published law of consumption: at η = 1 no law of consumption is assumed, at η = 0 the law is assumed to be exact. Here η is ${short(promise.eta)}.`);
}

if (!zone) {
  state(card, "empty");
} else {
  try {
    render(await ask(about("/v1/promise", zone)));
    state(card, "ready");
  } catch (error) {
    state(card, "error", error.message);
  }
  find("#explore").href = find("nav a[href^='/explore']").getAttribute("href");
}
