// The adversary: occupancy of one home, and the beliefs of two adversaries with and without protection.

import { ask, listen, liveness, logIn, throttled } from "./api.js";
import { chart } from "./chart.js";
import { again, find, make, say, state, width } from "./dom.js";
import { clock, digits, number, percent, seconds, short, whole } from "./format.js";

const live = liveness(find(".live"));
const card = find("#words");
const WAIT = 100; // [ms] after the last touch of the dial
const EVENING = 32; // steps that the charts have room for at first
const PRICES = ["exact", "published", "forecast"];
const FIELDS = [["none", "open"], ["none", "private"], ["others", "open"], ["others", "private"]];

let day = null; // one day of steps, never more; a new day begins with empty columns
let times = clock("UTC");
let charts = null;
let place = "UTC";
let promise = null;

const start = (i) => day.origin + i * day.step;

function begin(found) {
  day = {
    number: found.day, zone: found.zone, steps: found.steps, step: found.step_seconds, origin: seconds(found.origin),
    epsilon: found.epsilon, words: found.words, uncovered: found.not_covered, choices: found.choices, auc: found.auc, restarting: found.restarting,
    prices: Object.fromEntries(PRICES.map((name) => [name, found.prices[name].slice()])), errors: found.errors, cold: found.cold,
    occupancy: found.occupancy.slice(), prior: found.prior.slice(),
    none: { open: found.attackers.none.open.slice(), private: found.attackers.none.private.slice() },
    others: { open: found.attackers.others.open.slice(), private: found.attackers.others.private.slice() },
  };
  if (day.restarting) day.occupancy.length = 0; // these values are of the day that ended
}

const count = () => Math.min(day.occupancy.length, day.others.private.length, day.none.private.length);

// Columns of the steps so far; the last value lasts until the end of its step.
function columns(...lists) {
  const many = count();
  const x = Array.from({ length: many + 1 }, (_, i) => start(i));
  const row = (list) => {
    const kept = list.slice(0, many);
    if (many) kept.push(kept[many - 1]);
    return kept;
  };
  return [x, ...lists.map(row)];
}

// The evening, then as much of the day as there is.
const span = () => [day.origin, start(Math.max(EVENING, count()))];

function spans() {
  const found = [];
  for (let i = 0; i < count(); i += 1) {
    if (!day.occupancy[i]) continue;
    if (found.length && found.at(-1)[1] === start(i)) found.at(-1)[1] = start(i + 1);
    else found.push([start(i), start(i + 1)]);
  }
  return found;
}

function makeChart(who) {
  const name = { none: "that sees only the price", others: "that knows every other reading" }[who];
  return chart(find(`#${who}`), {
    unit: "Belief that anyone is home",
    zone: place,
    format: whole,
    at: (s) => times.time(s),
    latest: () => count() - 1,
    right: 150,
    ends: true,
    x: { range: span },
    y: { range: () => [0, 1], splits: () => [0, 0.25, 0.5, 0.75, 1], values: (_, all) => all.map(whole) },
    series: [
      { label: "habits only", end: "habits only", colour: "--wide", words: "--habit", key: "wide", width: 9, step: true },
      { label: "without protection", end: "without protection", colour: "--secret", width: 2, step: true },
      { label: "with protection", end: "with protection", colour: "--price", width: 3, step: true },
    ],
    shade: { colour: "--home", label: "occupied", spans },
    table: {
      head: ["Time", "Truth", "Habits only", "Without protection", "With protection"],
      kinds: ["", "", "number", "number", "number"],
      rows: () => Array.from({ length: count() }, (_, i) => [
        times.time(start(i)), day.occupancy[i] ? "home" : "away",
        whole(day.prior[i]), whole(day[who].open[i]), whole(day[who].private[i]),
      ]),
    },
    words: () => `Beliefs of the adversary ${name} through the day, without and with protection, over the times the home was occupied. ${sentence(who)} The table below has all values.`,
  });
}

function makePrices() {
  const price = (value) => number(value, digits(day.prices.exact[0]));
  return chart(find("#prices"), {
    unit: "Price [EUR/kWh]",
    zone: place,
    format: price,
    at: (s) => times.time(s),
    latest: () => count() - 1,
    right: 150,
    ends: true,
    x: { range: span },
    series: [
      { label: "forecast without meters", end: "without meters", colour: "--habit", dash: [6, 4], width: 2, step: true },
      { label: "exact", end: "exact", colour: "--secret", width: 2, step: true },
      { label: "published", end: "published", colour: "--price", width: 3, step: true },
    ],
    table: {
      head: ["Time", "Exact", "Published", "Forecast without meters"],
      kinds: ["", "number", "number", "number"],
      rows: () => Array.from({ length: count() }, (_, i) => [times.time(start(i)), ...PRICES.map((name) => price(day.prices[name][i]))]),
    },
    words: () => `Exact price, published price and forecast without meters. Since ${since()} the published price is off by ${percent(day.errors.published)}, the forecast by ${percent(day.errors.forecast)}. The table below has all values.`,
  });
}

const since = () => times.time(seconds(day.errors.since));

function prices() {
  const { prices: all, errors } = day;
  const i = count() - 1;
  say(find("#since"), since());
  for (const row of document.querySelectorAll("[data-price]")) {
    const name = row.dataset.price;
    const [, now, off, running] = row.cells;
    say(now, i < 0 ? "–" : number(all[name][i], digits(all.exact[i])));
    if (name === "exact") continue;
    say(off, i < 0 ? "–" : percent(Math.abs(all[name][i] / all.exact[i] - 1)));
    if (!running.firstElementChild) running.replaceChildren(make("span"), make("div", { class: "bar", "aria-hidden": "true" }, make("span", { class: "part" })));
    say(running.firstElementChild, percent(errors[name]));
    width(find(".part", running), (errors[name] ?? 0) / Math.max(errors.published, errors.forecast, 0.1));
  }
  const button = find("#cold");
  button.disabled = false;
  say(button, day.cold ? "Back to a usual evening" : "A cold evening: everyone uses 30 % more");
  say(find("#weather"), day.cold
    ? `Cold since ${since()}: everyone uses 30 % more. No model says so: the published price follows because there are meters, the forecast stays where it was.`
    : "A usual evening: everyone uses what the models expect, so the forecast does well.");
}

// Compares a belief with the truth and with what follows from habits.
function compare(belief, habit, truth) {
  const right = truth ? belief : 1 - belief;
  if (Math.abs(belief - habit) <= 0.1) return "little more than from habits";
  if (right > 0.9) return "confident and right";
  if (right < 0.1) return "confident but wrong";
  return (belief > habit) === Boolean(truth) ? "closer to the truth" : "further from the truth";
}

// The present belief of an adversary, in words.
function verdict(who) {
  const i = count() - 1;
  if (i < 0) return null;
  const habit = day.prior[i];
  const word = (belief) => ({ share: `${whole(belief)} home`, word: compare(belief, habit, day.occupancy[i]) });
  return { open: word(day[who].open[i]), kept: word(day[who].private[i]), habit: whole(habit) };
}

function sentence(who) {
  const found = verdict(who);
  if (found === null) return "Nothing has happened yet.";
  return `Now: without protection ${found.open.share}, ${found.open.word}; with it ${found.kept.share}, ${found.kept.word}.`;
}

function describe(node, who) {
  const { open, kept, habit } = verdict(who);
  if (!node.firstElementChild) {
    node.replaceChildren(
      make("b", { class: "key open" }), make("span"), make("br"), make("b", { class: "key private" }), make("span"), make("br"), make("span", { class: "quiet" }),
    );
  }
  const [first, one, , second, two, , three] = node.children;
  say(first, open.share);
  say(one, ` without protection: ${open.word}.`);
  say(second, kept.share);
  say(two, ` with it: ${kept.word}.`);
  say(three, `Habits only: ${habit}.`);
}

function scores() {
  let seen = false;
  for (const row of document.querySelectorAll("[data-who]")) {
    for (const cell of row.querySelectorAll("[data-is]")) {
      const value = day.auc?.[row.dataset.who]?.[cell.dataset.is] ?? null;
      if (!cell.firstElementChild) cell.replaceChildren(make("span"), make("div", { class: "bar", "aria-hidden": "true" }, make("span", { class: "part" })));
      say(cell.firstElementChild, value === null ? "–" : whole(value));
      width(find(".part", cell), value ?? 0);
      seen ||= value !== null;
    }
  }
  prices();
  const strong = day.auc?.others;
  const gain = (strong?.private ?? 0) - (strong?.prior ?? 0);
  say(find("#others-word"), `Without protection it computes the load from the price, subtracts the other homes and is left with this one. ${gain > 0.1 ? "Under so weak a promise it does better than habits even with protection: reduce ε to hide more." : `With protection it is left with ${gain > 0.03 ? "little more than " : ""}habits: when such homes are usually occupied.`}`);
  const done = seen && strong?.open != null && strong?.private != null;
  say(find("#score-word"), done
    ? `An adversary that knows all other readings picks the occupied home in ${whole(strong.open)} of such pairs without protection, in ${whole(strong.private)} with it. Habits only, without any price: ${whole(strong.prior)}.`
    : "Scores follow with the first prices.");
}

function render() {
  const many = count();
  if (day.restarting || many === 0) {
    state(card, "empty");
  } else {
    const i = many - 1;
    say(find("#clock"), `${times.time(start(i))} (day ${day.number})`);
    say(find("#truth"), day.occupancy[i] ? "Someone is home" : "No one is home");
    describe(find("#say-none"), "none");
    describe(find("#say-others"), "others");
    state(card, "ready");
  }
  scores();
  if (charts === null && many) charts = { others: makeChart("others"), none: makeChart("none"), prices: makePrices() };
  for (const who of ["others", "none"]) charts?.[who].set(columns(day.prior, day[who].open, day[who].private));
  charts?.prices.set(columns(day.prices.forecast, day.prices.exact, day.prices.published));
}

// The dial has the choices whose plans the service keeps.
const dial = find("#epsilon");
const placeOf = () => day.choices.reduce((best, one, i, all) => (Math.abs(one - day.epsilon) < Math.abs(all[best] - day.epsilon) ? i : best), 0);

// Value of the dial; if it was not moved, exactly the value in force.
function value() {
  const at = Number(dial.value);
  return at === placeOf() ? day.epsilon : day.choices[at];
}

function labelDial() {
  const epsilon = short(value());
  say(find("#epsilon-value"), epsilon);
  dial.setAttribute("aria-valuetext", `epsilon ${epsilon}`);
}

function set() {
  dial.max = String(day.choices.length - 1);
  dial.value = String(placeOf());
  dial.disabled = false;
  labelDial();
  say(find("#promise"), day.words);
  say(find("#uncovered"), `Not covered: ${day.uncovered.join(", ")}.`);
}

let timer = 0;
let wanted = null; // requested epsilon, until the day runs with it
const named = (epsilon) => `ε = ${short(epsilon)}`;

function restarted(text) {
  find("#restart").hidden = !text;
  say(find("#restart"), text);
}

async function restart() {
  find("#dial-fault").hidden = true;
  try {
    await ask("/demo/day", { method: "POST", body: { epsilon: wanted }, seconds: 60 });
  } catch (error) {
    wanted = null;
    restarted("");
    say(find("#dial-fault"), error.message);
    find("#dial-fault").hidden = false;
  }
  renew();
}

// The dial follows the day, except between a change and the day that starts with it.
function follow() {
  if (wanted !== null && (day.restarting || wanted !== day.epsilon)) return;
  if (wanted !== null) restarted(`The evening has started again with ${named(wanted)}.`);
  wanted = null;
  set();
}

// Event: a new day is being computed, requested here or elsewhere, or could not be.
function restarts({ epsilon }) {
  if (wanted !== epsilon) wanted = null;
  renew();
}

dial.addEventListener("input", () => {
  wanted = value();
  labelDial();
  restarted(`Starting the evening again with ${named(wanted)} …`);
  clearTimeout(timer);
  timer = setTimeout(restart, WAIT);
});
find("#dial").addEventListener("submit", (event) => event.preventDefault());

find("#cold").addEventListener("click", async () => {
  find("#cold").disabled = true; // until the next price
  try {
    await ask("/demo/cold", { method: "POST", body: { cold: !day.cold } });
  } catch (error) {
    say(find("#weather"), error.message);
  }
});

async function load() {
  try {
    const found = await ask("/demo/state");
    if (promise === null) await context(found);
    begin(found);
    follow();
    render();
  } catch (error) {
    if (day === null) state(card, "error", error.message);
    else live("off");
  }
}

// Constant data: time zone, number of homes, login of the operator.
async function context(found) {
  promise = {};
  try {
    promise = await ask(`/v1/promise?zone=${encodeURIComponent(found.zone)}`);
    if (promise.time_zone) place = promise.time_zone;
    times = clock(place);
    say(find("#houses"), number(promise.houses));
  } catch {
    // the chart works without it
  }
  find("#door").disabled = false;
  find("#door").onclick = async () => {
    try {
      await logIn(found.operator);
      location.href = "/operator";
    } catch (error) {
      say(find("#door-fault"), error.message);
      find("#door-fault").hidden = false;
    }
  };
}

function step(event) {
  if (day === null || day.restarting || event.day !== day.number || !follows(event)) {
    renew();
    return;
  }
  day.occupancy.push(event.occupancy);
  day.prior.push(event.prior);
  for (const [who, which] of FIELDS) day[who][which].push(event[who][which]);
  for (const name of PRICES) day.prices[name].push(event.prices[name]);
  Object.assign(day, { auc: event.auc, errors: event.errors, cold: event.cold });
  draw();
}

// Whether a step is the next one of the day; if not, everything is loaded again.
function follows(event) {
  return (event.t - 1) % day.steps === day.occupancy.length && day.occupancy.length < day.steps;
}

const renew = throttled(load, 300);
const draw = throttled(render, 100); // steps may come faster than charts are drawn
again(card, renew);
listen("/demo/stream", { step, restart: restarts }, (is) => {
  live(is);
  renew();
});
