// Zones and the figures of one zone for the operator, loaded again with every release.

import { about, ask, listen, liveness, throttled } from "./api.js";
import { chart } from "./chart.js";
import { again, fill, find, items, make, pairs, say, state, width } from "./dom.js";
import { clock, digits, number, percent, seconds, short } from "./format.js";
import { unbroken } from "./promise.js";

const RECENT = 12; // releases in the table
const CALM = 1000; // [ms] between two requests
const part = find("#zone");
const list = find("#zones");

let current = null; // the newest answer: two days of releases at most
let times = clock();
let charts = null;
let place = null;
let watched = false;

const last = (all) => all[all.length - 1];
const kWh = (wh) => (wh === null || wh === undefined ? null : wh / 1000);
// The noisy load is of readings cut at the clamp: with what is expected above it, it compares with the load.
const noisy = (one) => (one.load_hat === null ? null : kWh(one.load_hat + one.put_back));

export function overview(first, ended) {
  const live = liveness(find(".live"));
  let zone = first || null;
  let stream = null;
  let over = false;
  const gone = new AbortController();
  const { signal } = gone;

  async function zones() {
    const found = await ask("/v1/operator", { signal });
    zone ??= found.zones[0]?.zone ?? null;
    list.hidden = found.zones.length < 2;
    rows(found.zones, zone, choose);
  }
  async function refresh() {
    if (over) return;
    try {
      await zones();
      if (zone === null || over) return;
      const next = await ask(about("/v1/operator/zone", zone), { signal });
      if (over || next.zone !== zone) return;
      current = next;
      render();
    } catch (error) {
      if (over) return;
      if (error.status === 401) ended();
      else if (error.status === 403) ended("This client lacks the scope operate.");
      else if (current === null || current.zone !== zone) state(part, error.status === 404 ? "empty" : "error", error.message);
      else live("off");
    }
  }
  const renew = throttled(refresh, CALM);
  function follow() {
    stream?.close();
    stream = listen(about("/v1/stream", zone), { release: renew }, (is) => {
      live(is);
      renew();
    });
  }
  function choose(other) {
    if (other === zone) return;
    zone = other;
    current = null;
    state(part, "loading");
    follow();
  }
  if (!watched) again(part, () => renew());
  watched = true;
  (async () => {
    await refresh();
    if (!over) follow();
  })();
  return {
    stop() {
      over = true;
      gone.abort();
      current = null; // keep nothing secret
      stream?.close();
      forget();
    },
  };
}

function rows(all, zone, choose) {
  const body = find("#zone-list");
  fill(body, all.map((one) => ["", one.state, String(one.t ?? "–"), number(one.missing), number(one.alerts)]), ["", "", "number", "number", "number"]);
  all.forEach((one, i) => {
    const cell = body.rows[i].cells[0];
    let button = cell.querySelector("button");
    if (button?.dataset.zone !== one.zone) {
      button = make("button", { type: "button", class: "button", "data-zone": one.zone }, one.zone);
      button.addEventListener("click", () => choose(one.zone));
      cell.replaceChildren(button);
    }
    button.setAttribute("aria-pressed", String(one.zone === zone));
  });
}

function render() {
  const { series } = current;
  say(find("#heading"), current.zone);
  document.title = `${current.zone} · Operator · hushgrid`;
  alerts(current.alerts);
  if (!series.length) {
    state(part, "empty");
    return;
  }
  const here = current.time_zone ?? Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (here !== place) {
    place = here;
    times = clock(place);
    charts = null;
  }
  state(part, "ready");
  tiles(last(series));
  why();
  room();
  recent(series);
  const query = about("/v1/operator/certificate", current.zone);
  find("#certificate").href = `${query}&format=html`;
  find("#certificate-json").href = query;
  say(find("#head"), current.head ?? "–");
  charts ??= pictures();
  for (const [one, columns] of charts) one.set(columns(current.series));
}

function alerts(all) {
  const place = find("#alert-list");
  const wanted = all.length ? all : [{ level: "none", text: "No alerts." }];
  while (place.children.length > wanted.length) place.lastElementChild.remove();
  wanted.forEach(({ level, text }, i) => {
    const item = place.children[i] ?? place.appendChild(make("li"));
    item.dataset.level = level;
    say(item, level === "none" ? text : `${level === "error" ? "Error" : "Warning"}: ${text}`);
  });
}

function tiles(one) {
  const { noise, missing, houses, currency, promise } = current;
  const places = digits(one.rate);
  say(find("#state"), current.state);
  say(find("#step"), `${current.mode}, ${times.full(seconds(one.start))} (${place})`);
  say(find("#load"), one.load === null ? "purged" : `${number(kWh(one.load), 1)} kWh`);
  say(find("#load-hat"), one.load_hat === null ? "no noisy load" : `with noise ${number(noisy(one), 1)} kWh`);
  say(find("#rate"), `${number(one.rate, places)} ${currency}/kWh`);
  say(find("#optimal"), one.optimal === null ? "exact price unknown" : `exact ${number(one.optimal, places)}, off by ${percent(Math.abs(one.rate / one.optimal - 1))}`);
  say(find("#scale"), spread(one.spread));
  say(find("#scale-share"), one.load && one.spread ? `one standard deviation, ${percent(one.spread / Math.abs(one.load))} of the load` : "");
  say(find("#protected"), number(noise.protected));
  say(find("#protected-share"), `of ${number(houses)}`);
  say(find("#missing"), number(missing.meters));
  say(find("#missing-share"), percent(missing.share));
  say(find("#words"), unbroken(promise.words));
  say(find("#sentence"), promise.sentence);
  items(find("#uncovered"), promise.not_covered);
  items(find("#assumptions"), promise.assumptions);
}

function spread(wh) {
  return wh ? `± ${number(kWh(wh), kWh(wh) < 10 ? 1 : 0)} kWh` : "none";
}

function why() {
  const { noise, promise, houses } = current;
  pairs(find("#why"), [
    ["Next noise", noise.spread ? `${spread(noise.spread)} (one standard deviation)` : "none"],
    ["Why", noise.why],
    ["Decided by", noise.house === null ? "–" : `house ${noise.house}, model ${noise.model}`],
    ["Loss of a release", `${short(noise.epsilon)} under the model, ${short(noise.epsilon_any)} for any consumption`],
    ["Promise", `ε = ${short(promise.epsilon)}, about one ${promise.secret}`],
    ["Dial η", `${short(promise.eta)}${promise.eta_set_by ? `, set by: ${promise.eta_set_by}` : ""}`],
    ["Protected", `${number(noise.protected)} of ${number(houses)} homes at this step`],
  ]);
}

function room() {
  const share = current.room;
  pairs(find("#room"), [["Left of the promise", share === null ? "–" : `${Math.round(100 * share)} %`]]);
}

function recent(series) {
  const places = digits(last(series).rate);
  const kinds = ["number", "when", "number", "number", "number", "number", "number", "number", ""];
  const newest = series.slice(-RECENT).reverse();
  fill(find("#recent"), newest.map((one) => [
    String(one.t), times.full(seconds(one.start)), number(kWh(one.load), 1), number(noisy(one), 1),
    number(one.optimal, places), number(one.rate, places), number(kWh(one.spread), 1), number(one.missing), one.source,
  ]), kinds);
}

// Times at the start of each interval, and the end of the last one.
function columns(...fields) {
  return (series) => {
    const x = series.map((one) => seconds(one.start));
    const rows = fields.map((field) => series.map(field));
    if (x.length) {
      x.push(last(x) + current.interval_s);
      for (const row of rows) row.push(last(row));
    }
    return [x, ...rows];
  };
}

function pictures() {
  const places = digits(last(current.series).rate);
  const zone = place;
  const below = [`Time zone ${place}`, ""];
  const at = (s) => times.full(s);
  const latest = () => current.series.length - 1;
  const table = (head, row) => ({
    head: [`Interval (${place})`, ...head],
    kinds: ["when", ...head.map(() => "number")],
    rows: () => current.series.map((one) => [times.full(seconds(one.start)), ...row(one)]),
  });
  const secret = { colour: "--secret", step: true, width: 1.75 };
  const open = { colour: "--price", step: true, width: 2.25 };
  const rates = chart(find("#rates"), {
    unit: `Price [${current.currency}/kWh]`, zone, below, at, latest, format: (value) => number(value, places),
    series: [{ ...open, label: "published" }, { ...secret, label: "exact (secret)", dash: [4, 3] }],
    table: table(["Published", "Exact"], (one) => [number(one.rate, places), number(one.optimal, places)]),
    words: () => `Published and exact price of the last ${current.series.length} intervals. The table below has all of them.`,
  });
  const loads = chart(find("#loads"), {
    unit: "Load of an interval [kWh]", zone, below, at, latest, format: (value) => number(value, 1),
    series: [{ ...open, label: "with noise" }, { ...secret, label: "load (secret)", dash: [4, 3] }],
    table: table(["With noise", "Load"], (one) => [number(noisy(one), 1), number(kWh(one.load), 1)]),
    words: () => `Load with noise and load of the last ${current.series.length} intervals. The table below has all of them.`,
  });
  const scales = chart(find("#scales"), {
    unit: "Noise, one standard deviation [kWh]", zone, below, at, latest, format: (value) => number(value, 1),
    y: { range: (_, low, high) => [0, 1.15 * (high || 1)] },
    series: [{ ...open, label: "noise" }],
    table: table(["Noise [kWh]", "Missing meters"], (one) => [number(kWh(one.spread), 1), number(one.missing)]),
    words: () => `Standard deviation of the noise of the last ${current.series.length} intervals. The table below has all of them.`,
  });
  return [
    [rates, columns((one) => one.rate, (one) => one.optimal)],
    [loads, columns(noisy, (one) => kWh(one.load))],
    [scales, columns((one) => kWh(one.spread))],
  ];
}

// After logging out: remove all figures from the page.
function forget() {
  charts = null;
  for (const id of ["rates", "loads", "scales", "recent", "why", "room", "alert-list", "zone-list"]) find(`#${id}`).replaceChildren();
  for (const node of document.querySelectorAll(".tiles dd")) say(node, "–");
  say(find("#words"), "");
  say(find("#sentence"), "");
  items(find("#uncovered"), []);
  items(find("#assumptions"), []);
  say(find("#head"), "–");
}
