// Error of the price against epsilon, one line for each eta, with the choice of the zone.

import { about, ask } from "./api.js";
import { chart } from "./chart.js";
import { again, find, make, say, state, zone } from "./dom.js";
import { most, percent, short } from "./format.js";
import { t } from "./words.js";

const card = find("#picture");
const HUES = ["--hue-1", "--hue-3", "--hue-2", "--hue-4", "--hue-5"];
const KEYS = ["line", "dash", "dot", "dash", "dash"];
const DASHES = [undefined, [8, 4], [2, 3], [10, 3, 2, 3], [5, 5]];

let found = null; // the answer; constant while the page is open
let kind = "estimated";
let picture = null;
let tried = null;

const errors = () => found.curves.flatMap((curve) => curve.points.map((point) => point[kind]));

const LEADS = [[1, 2, 5], [1, 1.5, 2, 3, 4, 5, 6, 8], Array.from({ length: 45 }, (_, i) => 1 + i / 5)];

// Round values within a range: 1, 2, 5, 10, ..., or closer ones where it has fewer than three of these.
function steps(low, high) {
  const within = (leads) => {
    const all = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
      for (const lead of leads) all.push(lead * 10 ** power);
    }
    return all.filter((one) => one >= low * 0.999 && one <= high * 1.001);
  };
  return LEADS.map(within).find((all) => all.length >= 3) ?? within(LEADS.at(-1));
}

function bounds() {
  const all = [...errors(), found.forecast, found.chosen[kind]].filter((value) => value > 0);
  const low = Math.min(...all) / 1.25;
  const high = Math.max(...all) * 1.25;
  return [low, high];
}

const grid = () => [...new Set(found.curves.flatMap((curve) => curve.points.map((one) => one.epsilon)))].sort((a, b) => a - b);

function columns() {
  const x = grid();
  const row = (curve) => {
    const by = new Map(curve.points.map((point) => [point.epsilon, point[kind]]));
    return x.map((epsilon) => by.get(epsilon) ?? null);
  };
  return [x, ...found.curves.map(row)];
}

function makeChart() {
  const x = grid();
  return chart(find("#tradeoff"), {
    unit: t("Relative error of the price"),
    format: percent,
    at: (epsilon) => `ε = ${short(epsilon)}`,
    right: 76,
    below: [t("← stronger promise"), t("weaker promise →")],
    ends: true,
    x: {
      log: true,
      range: () => [x[0], x.at(-1)],
      splits: () => steps(x[0], x.at(-1)),
      values: (_, all) => all.map((one) => `ε ${short(one)}`),
    },
    y: {
      log: true,
      range: bounds,
      splits: () => steps(...bounds()),
      values: (_, all) => all.map((share) => `${short(100 * share)} %`),
    },
    series: found.curves.map((curve, i) => ({
      label: `η = ${short(curve.eta)}${trust(curve.eta) && ` (${trust(curve.eta)})`}`,
      end: `η = ${short(curve.eta)}`,
      colour: HUES[i % HUES.length],
      dash: DASHES[i % DASHES.length],
      key: KEYS[i % KEYS.length],
      points: 6,
      width: 2.25,
    })),
    marks: () => [
      { y: found.forecast, text: t("forecast alone, no meter used"), colour: "--quiet", right: true }, // curves fall
      { x: found.chosen.epsilon, y: found.chosen[kind], text: t("this zone's choice"), colour: "--ink", strong: true },
    ],
    table: {
      head: ["ε", ...found.curves.map((curve) => `η = ${short(curve.eta)}`)],
      kinds: ["number", ...found.curves.map(() => "number")],
      rows: () => {
        const [x, ...rest] = columns();
        return x.map((epsilon, i) => [short(epsilon), ...rest.map((row) => percent(row[i]))]);
      },
    },
    words: () => t("Error of a price against the promise epsilon, a line for each of {lines} settings of eta. This zone chose epsilon {epsilon} and eta {eta}, with an error of {error}. A forecast without meters has {forecast}. The table below has all values.", { lines: found.curves.length, epsilon: short(found.chosen.epsilon), eta: short(found.chosen.eta), error: percent(found.chosen[kind]), forecast: percent(found.forecast) }),
  });
}

function trust(eta) {
  if (eta === 1) return t("no law of consumption assumed");
  return eta === 0 ? t("law of consumption assumed exact") : "";
}

function read() {
  const x = grid();
  const epsilon = x[Number(find("#epsilon").value)];
  const curve = found.curves[Number(find("#eta").value)];
  const point = curve.points.find((one) => one.epsilon === epsilon);
  say(find("#epsilon-value"), short(epsilon));
  say(find("#eta-says"), trust(curve.eta));
  find("#epsilon").setAttribute("aria-valuetext", `epsilon ${short(epsilon)}`);
  if (!point) return;
  const top = Math.round(100 * most(epsilon));
  say(find("#verdict"), t("Under the assumptions of the promise, a fifty-fifty guess becomes at most {most} to {least}; a price is off by about {error}.", { most: top, least: 100 - top, error: percent(point[kind]) }));
  const ratio = point[kind] / found.chosen[kind];
  const same = Math.abs(ratio - 1) < 0.01;
  const values = { ratio: short(ratio), forecast: percent(found.forecast) };
  say(find("#against"), same
    ? t("The same error as this zone's choice; the forecast alone, which uses no meter, is off by {forecast}.", values)
    : t("{ratio} times the error of this zone's choice; the forecast alone, which uses no meter, is off by {forecast}.", values));
}

function nearest(list, value) {
  return list.reduce((best, one, i) => (Math.abs(one - value) < Math.abs(list[best] - value) ? i : best), 0);
}

function ready() {
  state(card, "ready");
  picture ??= makeChart();
  picture.set(columns());
  find("#reading").hidden = false;
  find("#trust").hidden = found.curves.length === 1; // a promise about windows trusts no model
  if (tried === null) {
    const x = grid();
    const slider = find("#epsilon");
    slider.max = String(x.length - 1);
    slider.value = String(nearest(x, found.chosen.epsilon));
    const chosen = nearest(found.curves.map((curve) => curve.eta), found.chosen.eta);
    found.curves.forEach((curve, i) => find("#eta").append(make("option", { value: String(i) }, `η = ${short(curve.eta)}`)));
    find("#eta").value = String(chosen);
    tried = true;
  }
  read();
}

async function load() {
  state(card, "loading");
  try {
    found = await ask(about("/v1/tradeoff", zone), { seconds: 120 });
    ready();
  } catch (error) {
    state(card, error.status === 404 ? "empty" : "error", error.message);
  }
}

for (const radio of document.querySelectorAll("[name=kind]")) {
  radio.addEventListener("change", () => {
    kind = radio.value;
    ready();
  });
}
find("#epsilon").addEventListener("input", read);
find("#eta").addEventListener("change", read);
again(card, load);
if (zone) load();
else state(card, "empty");
