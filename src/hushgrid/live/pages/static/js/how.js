// The zone's own figures in the explanation; the words are in the page.

import { about, ask } from "./api.js";
import { find, say, state, width, zone } from "./dom.js";
import { most, number, percent, short } from "./format.js";
import { seenBy } from "./promise.js";

const card = find("#promise");

function told(promise) {
  const top = most(promise.epsilon);
  say(find("#sentence"), promise.sentence);
  say(find("#after"), `seeing ${seenBy(promise)}`);
  say(find("#most"), percent(top));
  say(find("#houses"), `The ${number(promise.houses)} homes of the zone share one price, and so its noise.`);
  width(find(".part.before"), 0.5);
  width(find(".part.after"), top);
  find("#odds").setAttribute("aria-label", `Before 50 percent, after at most ${Math.round(100 * top)} percent.`);
  if (promise.error !== null) {
    say(find("#cost"), `In this zone the published price is off by about ${percent(promise.error)} (root of the mean square of the relative error), about as often up as down.`);
  }
  say(find("#eta"), `How much noise is enough rests on a public model of how homes are used. The dial η says how far its figures for consumption are trusted: at η = 1 not at all, at η = 0 entirely. Here η is ${short(promise.eta)}.`);
}

if (!zone) {
  state(card, "empty");
} else {
  try {
    told(await ask(about("/v1/promise", zone)));
    state(card, "ready");
  } catch (error) {
    state(card, "error", error.message);
  }
  find("#explore").href = find("nav a[href^='/explore']").getAttribute("href");
}
