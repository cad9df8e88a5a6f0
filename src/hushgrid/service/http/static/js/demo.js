// The adversary: occupancy of one home, and the beliefs of two adversaries with and without protection.

import { about, ask, listen, liveness, throttled } from "./api.js";
import { chart } from "./chart.js";
import { again, find, make, say, state, width, zone } from "./dom.js";
import { clock, digits, most, number, percent, seconds, short, whole } from "./format.js";

const live = liveness(find(".live"));
const card = find("#words");
const WAIT = 700; // [ms] after the last touch of a dial
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
    epsilon: found.epsilon, eta: found.eta, limits: found.limits, auc: found.auc, restarting: found.restarting,
    occupancy: found.occupancy.slice(), prior: found.prior.slice(),
    none: { open: found.attackers.none.open.slice(), private: found.attackers.none.private.slice() },
    others: { open: found.attackers.others.open.slice(), private: found.attackers.others.private.slice() },
  };
  if (day.restarting) day.occupancy.length = 0; // these values are of the day that ended
}

const count = () => Math.min(day.occupancy.length, day.others.private.length, day.none.private.length);

// Columns over the whole day, so that the axis is constant.
function columns(who) {
  const many = count();
  const x = Array.from({ length: many + 1 }, (_, i) => start(i));
  const row = (list) => {
    const kept = list.slice(0, many);
    if (many) kept.push(kept[many - 1]);
    return kept;
  };
  return [x, row(day.prior), row(day[who].open), row(day[who].private)];
}

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
    x: { range: () => [day.origin, start(day.steps)] },
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
  const strong = day.auc?.others;
  const gained = (strong?.private ?? 0) - (strong?.prior ?? 0) > 0.03;
  say(find("#others-word"), `Without protection it computes the load from the price, subtracts the other homes and is left with this one. ${gained ? "Under so weak a promise it does better than habits even with protection: reduce ε to hide more." : "With protection it is left with habits: when such homes are usually occupied."}`);
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
  charts ??= [["others", makeChart("others")], ["none", makeChart("none")]];
  for (const [who, one] of charts) one.set(columns(who));
}

// The dials: epsilon on a logarithmic scale, eta on a square-root scale.
const dial = { epsilon: find("#epsilon"), eta: find("#eta") };
const placeOf = {
  epsilon: (wanted) => (100 * Math.log(wanted / day.limits.epsilon[0])) / Math.log(day.limits.epsilon[1] / day.limits.epsilon[0]),
  eta: (wanted) => 100 * Math.sqrt((wanted - day.limits.eta[0]) / (day.limits.eta[1] - day.limits.eta[0])),
};
const atPlace = {
  epsilon: (at) => Number((day.limits.epsilon[0] * (day.limits.epsilon[1] / day.limits.epsilon[0]) ** (at / 100)).toPrecision(2)),
  eta: (at) => Number((day.limits.eta[0] + (day.limits.eta[1] - day.limits.eta[0]) * (at / 100) ** 2).toFixed(2)),
};
// Value of a dial; if it was not moved, exactly the value in force.
function value(name) {
  const at = Number(dial[name].value);
  return at === Math.round(placeOf[name](day[name])) ? day[name] : atPlace[name](at);
}

function labelDials() {
  const epsilon = value("epsilon");
  const eta = value("eta");
  say(find("#epsilon-value"), short(epsilon));
  say(find("#eta-value"), short(eta));
  dial.epsilon.setAttribute("aria-valuetext", `epsilon ${short(epsilon)}`);
  dial.eta.setAttribute("aria-valuetext", `eta ${short(eta)}`);
  const top = Math.round(100 * most(epsilon));
  say(find("#epsilon-word"), `Smaller hides more. Under the assumptions of the promise, a fifty-fifty guess becomes at most ${top} to ${100 - top} at ε = ${short(epsilon)}.`);
  say(find("#eta-word"), eta >= 1 ? "The model of consumption is not trusted at all: most noise." : `The model of consumption is trusted except for a share of ${percent(eta)}: ${eta < 0.3 ? "less noise" : "more noise"}.`);
}

function set() {
  for (const [name, one] of Object.entries(dial)) {
    one.value = String(Math.round(placeOf[name](day[name])));
    one.disabled = false;
  }
  labelDials();
}

let timer = 0;
let wanted = null; // requested values, until the day runs with them
const same = (one, other) => one.epsilon === other.epsilon && one.eta === other.eta;
const named = (dials) => `ε = ${short(dials.epsilon)}, η = ${short(dials.eta)}`;

async function restart() {
  say(find("#restart"), `Starting the day again with ${named(wanted)} …`);
  find("#dial-fault").hidden = true;
  try {
    await ask("/demo/day", { method: "POST", body: wanted, seconds: 60 });
  } catch (error) {
    wanted = null;
    say(find("#restart"), "");
    say(find("#dial-fault"), error.message);
    find("#dial-fault").hidden = false;
  }
  renew();
}

// The dials follow the day, except between a change and the day that starts with it.
function follow() {
  if (wanted !== null && (day.restarting || !same(wanted, day))) return;
  if (wanted !== null) say(find("#restart"), `The day has started again with ${named(day)}.`);
  wanted = null;
  set();
}

// Event: a new day is being computed, requested here or elsewhere, or could not be.
function restarts(dials) {
  if (wanted !== null && !same(wanted, dials)) wanted = null;
  renew();
}

for (const one of Object.values(dial)) {
  one.addEventListener("input", () => {
    wanted = { epsilon: value("epsilon"), eta: value("eta") };
    labelDials();
    clearTimeout(timer);
    timer = setTimeout(restart, WAIT);
  });
}
find("#dials").addEventListener("submit", (event) => event.preventDefault());

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
    promise = await ask(about("/v1/promise", found.zone));
    if (promise.time_zone) place = promise.time_zone;
    times = clock(place);
    say(find("#houses"), number(promise.houses));
  } catch {
    // the chart works without it
  }
  const door = find("#door");
  door.hidden = !found.operator;
  if (found.operator) {
    door.replaceChildren("The operator of this simulated zone logs in at ", make("a", { href: "/operator" }, "Operator"), ` with the client id ${found.operator.client} and the secret ${found.operator.secret}.`);
  }
}

function step(event) {
  if (day === null || day.restarting || event.day !== day.number || !follows(event)) {
    renew();
    return;
  }
  day.occupancy.push(event.occupancy);
  day.prior.push(event.prior);
  for (const [who, which] of FIELDS) day[who][which].push(event[who][which]);
  day.auc = event.auc;
  render();
}

// Whether a step is the next one of the day; if not, everything is loaded again.
function follows(event) {
  return (event.t - 1) % day.steps === day.occupancy.length && day.occupancy.length < day.steps;
}

async function priced(found) {
  say(find("#price"), `${number(found.price, digits(found.price))} ${found.currency}/kWh`);
}

const renew = throttled(load, 300);
again(card, renew);
listen("/demo/stream", { step, restart: restarts }, (is) => {
  live(is);
  renew();
});
listen(about("/v1/stream", zone), { price: priced }, () => {});
