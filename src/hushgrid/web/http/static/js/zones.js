// The list of zones: names are in the page, prices are loaded for the visible rows.

import { about, ask } from "./api.js";
import { again, find, say, state } from "./dom.js";
import { clock, digits, number, seconds } from "./format.js";
import { t } from "./words.js";

const EVERY = 15_000; // [ms]
const AT_ONCE = 4; // requests
const card = find("#zones");
const rows = [...find("#list").rows];
const times = clock();
const seen = new Set();
const STATES = {
  publishing: t("publishing"),
  "no readings": t("no readings"),
  "forecast only": t("forecast only"),
  fallback: t("fallback"),
  behind: t("behind"),
  "closed after an error": t("closed after an error"),
  "forecast until hushgrid resume": t("forecast until hushgrid resume"),
  "forecast until the next block": t("forecast until the next block"),
  "forecast until the account admits a block": t("forecast until the account admits a block"),
  "waits: the clock was set forward": t("waits: the clock was set forward"),
  "waits: the last release is old": t("waits: the last release is old"),
  "waits: the clock is behind the ledger": t("waits: the clock is behind the ledger"),
};

function inWords(state) {
  const due = state.match(/^not begun; first price at (.+)$/)?.[1];
  if (due) return t("not begun; first price on {day} at {time}", { day: times.day(seconds(due)), time: times.time(seconds(due)) });
  return STATES[state] ?? state;
}

const watch = new IntersectionObserver((found) => {
  for (const one of found) {
    if (one.isIntersecting) seen.add(one.target);
    else seen.delete(one.target);
  }
  prices();
});
for (const row of rows) watch.observe(row);

const field = (row, name) => find(`[data-field="${name}"]`, row);

async function price(row) {
  try {
    const found = await ask(about("/v1/price", row.dataset.zone));
    say(field(row, "price"), `${number(found.total, digits(found.total, row.dataset.digits))} ${found.currency}/kWh`);
    say(field(row, "holds"), t("{from} to {to}", { from: times.time(seconds(found.start)), to: times.time(seconds(found.end)) }));
  } catch (error) {
    say(field(row, "price"), error.status === 404 ? t("none yet") : "–");
  }
}

let busy = false;
async function prices() {
  if (busy) return;
  busy = true;
  const waiting = [...seen].filter((row) => !row.hidden);
  const work = async () => {
    for (let row = waiting.pop(); row; row = waiting.pop()) await price(row);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  busy = false;
}

async function states() {
  try {
    const found = await ask("/v1/status");
    const by = new Map(found.zones.map((one) => [one.zone, one.state]));
    for (const row of rows) say(field(row, "state"), inWords(by.get(row.dataset.zone) ?? "–"));
    if (card.dataset.state === "error") filter();
  } catch (error) {
    state(card, "error", error.message);
  }
}

function filter() {
  const wanted = find("#filter").value.trim().toLowerCase();
  let count = 0;
  for (const row of rows) {
    row.hidden = !row.dataset.zone.toLowerCase().includes(wanted);
    count += Number(!row.hidden);
  }
  state(card, count ? "ready" : "empty");
  say(find("#count"), t("{count} of {all} zones", { count, all: rows.length }));
}

async function all() {
  await Promise.all([states(), prices()]);
}

find("#filter").addEventListener("input", filter);
again(card, all);
filter();
all();
setInterval(() => document.hidden || all(), EVERY);
