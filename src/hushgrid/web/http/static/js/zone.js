// The public page of a zone: published prices, forecast and promise. It requests nothing else.

import { about, ask, listen, liveness, throttled, worded } from "./api.js";
import { chart } from "./chart.js";
import { again, demo, find, items, say, state, zone } from "./dom.js";
import { clock, digits, number, percent, seconds } from "./format.js";
import { covered, unbroken } from "./promise.js";
import { t } from "./words.js";

const DAY = 86_400;
const SPEAK_EVERY = 60_000; // [ms] between two prices for screen readers
const now = find("#now");
const curve = find("#curve");
const live = liveness(find(".live"));
const here = Intl.DateTimeFormat().resolvedOptions().timeZone;

let place = here; // the time zone of the zone, if the service has it
let times = clock(place);
let current = null; // data of the chart: two days of prices at most
let present = null; // the price in force, by the service's clock
let picture = null;
let spoken = 0;

const last = (list) => list[list.length - 1];

// Present time: the clock, or in the demo the start of the price in force.
function moment(prices) {
  const known = present?.start ?? seconds((last(prices.published) ?? prices.forecast[0]).start);
  return demo ? known : Date.now() / 1000;
}

// The price is what is paid, with charges; the range is given for energy, and where there are charges for the total.
function entry(one) {
  const low = one.total_low ?? one.low ?? null, high = one.total_high ?? one.high ?? null;
  return { start: seconds(one.start), end: seconds(one.end), price: one.total, energy: one.price, low, high, source: one.source, feedIn: one.feed_in ?? null };
}

function parse(prices) {
  const at = moment(prices);
  const published = prices.published.map(entry);
  const forecast = prices.forecast.map(entry);
  const today = times.date(at);
  let from = published.find((one) => times.date(one.start) === today)?.start ?? at;
  from -= from % prices.interval_s;
  const kept = published.filter((one) => one.start >= from);
  const until = Math.min(Math.max(last(forecast)?.end ?? at, from + DAY), from + 1.5 * DAY);
  return {
    at, from, until, unit: prices.unit, interval: prices.interval_s, simulated: prices.simulated,
    published: kept, // expected prices of earlier intervals are not drawn
    forecast: forecast.filter((one) => one.start < until && one.start > (last(published)?.start ?? 0)),
    holds: holding([...published, ...forecast], at),
    newest: last(published),
  };
}

// The price whose interval holds the instant: the service's word, while its interval lasts.
function holding(all, at) {
  if (present && at < present.end) return present;
  return all.find((one) => one.start <= at && at < one.end) ?? last(all);
}

// Whether the tariff has a price for what is fed in.
const fed = () => current.holds.feedIn !== null;

// A price of the size that decides the digits. With a feed-in price net loads are near 0 at times, and so
// are prices: then it is the largest of the day.
const typical = () => (fed() ? Math.max(...[current.holds, ...current.published].map((one) => Math.abs(one.price))) : current.holds.price);

// Columns: times, high, low, published, expected, and any feed-in price, published and expected. Later
// columns are drawn on top.
function columns({ published, forecast }) {
  const x = [], price = [], expected = [], low = [], high = [], feedIn = [], fedLater = [];
  const known = (one, is, name) => (is === "published" || is === "joint" ? (is === "joint" ? last(published)[name] : one[name]) : null);
  const push = (s, one, is) => {
    x.push(s);
    price.push(known(one, is, "price"));
    expected.push(is === "published" ? null : one.price);
    low.push(one.low);
    high.push(one.high);
    feedIn.push(known(one, is, "feedIn"));
    fedLater.push(is === "published" ? null : one.feedIn);
  };
  for (const one of published) push(one.start, one, "published");
  forecast.forEach((one, i) => push(one.start, one, i === 0 && published.length ? "joint" : "forecast"));
  const end = last(forecast) ?? last(published);
  if (end) push(end.end, end, forecast.length ? "forecast" : "published");
  return [x, high, low, price, expected, ...(fed() ? [feedIn, fedLater] : [])];
}

function makeChart() {
  const places = digits(typical(), now.dataset.digits);
  const row = (kind) => (one) => [times.full(one.start), number(one.price, places), number(one.energy, places), one.low === null ? "–" : t("{from} to {to}", { from: number(one.low, places), to: number(one.high, places) }), ...(fed() ? [one.feedIn === null ? "–" : number(one.feedIn, places)] : []), kind(one)];
  return chart(find("#prices"), {
    unit: t("Price [{unit}], time zone {place}", { unit: current.unit, place: place.replace("_", " ") }),
    zone: place,
    format: (value) => number(value, places),
    at: (s) => times.full(s),
    x: { range: () => [current.from, current.until] },
    series: [
      { label: "high", colour: "--band", step: true, width: 0.5, quiet: true },
      { label: "low", colour: "--band", step: true, width: 0.5, quiet: true },
      { label: t("published"), colour: "--price", step: true, width: 2.5 },
      { label: t("expected"), colour: "--price", step: true, dash: [5, 4], width: 1.75 },
      ...(fed() ? [
        { label: t("feed-in"), colour: "--ink", step: true, width: 1.5 },
        { label: t("feed-in, expected"), colour: "--ink", step: true, dash: [5, 4], width: 1.25 },
      ] : []),
    ],
    bands: [{ series: [1, 2], colour: "--band", label: t("range of the exact price, 95 %") }],
    marks: () => [{ x: current.at, text: t("now {time}", { time: times.time(current.at) }), colour: "--ink" }],
    table: {
      head: [t("From"), t("Price [{unit}]", { unit: current.unit }), t("Of it energy"), t("95 % range"), ...(fed() ? [t("Feed-in")] : []), t("Kind")],
      kinds: ["when", "number", "number", "number", ...(fed() ? ["number"] : []), ""],
      rows: () => [...current.published.map(row((one) => KINDS[one.source])), ...current.forecast.map(row(() => t("expected")))],
    },
    words: () => t("Prices of today by the time of day: {published} published, {expected} expected. {summary} The table below has all of them.", { published: current.published.length, expected: current.forecast.length, summary: summary(current, places) }),
  });
}

function summary(now, places) {
  if (!now.published.length) return "";
  const [low, high] = extremes(now.published);
  return t("Lowest {low} at {lowAt}, highest {high} at {highAt}.", { low: number(low.price, places), lowAt: times.time(low.start), high: number(high.price, places), highAt: times.time(high.start) });
}

function extremes(list) {
  const by = (better) => list.reduce((best, one) => (better(one.price, best.price) ? one : best));
  return [by((a, b) => a < b), by((a, b) => a > b)];
}

function cheapest({ forecast, interval }) {
  const many = Math.max(Math.round(3600 / interval), 1);
  let best = null;
  for (let i = 0; i + many <= forecast.length; i += 1) {
    const mean = forecast.slice(i, i + many).reduce((sum, one) => sum + one.price, 0) / many;
    if (best === null || mean < best.mean) best = { mean, from: forecast[i].start, to: forecast[i + many - 1].end };
  }
  return best;
}

const KINDS = {
  readings: t("published, from readings"),
  forecast: t("published, a forecast without meters"),
  fallback: t("published, the fallback price"),
};

const SOURCES = {
  forecast: t("This price is the public forecast: no meter was used for it, because no meter reported or the promise left no room for a price from readings."),
  fallback: t("This is the fallback price: no model can be used, or none may be used without readings."),
};

function render() {
  const { holds, newest, published, unit, interval, at } = current;
  const places = digits(typical(), now.dataset.digits);
  say(find("#price"), number(holds.price, places));
  say(find("#unit"), unit);
  const energy = find("#energy");
  energy.hidden = holds.energy === holds.price;
  say(energy, t("Of it {energy} for energy; the rest is grid fees and taxes.", { energy: number(holds.energy, places) }));
  const feedIn = find("#feed-in");
  feedIn.hidden = !fed();
  const given = { price: number(holds.feedIn, places), unit };
  say(feedIn, !fed() ? "" : holds.feedIn < 0
    ? t("Feed-in: {price} {unit}: what you send to the grid costs you now.", given)
    : t("Feed-in: {price} {unit} for what you send to the grid.", given));
  say(find("#holds"), t("{day}, {from} to {to}", { day: times.day(holds.start), from: times.time(holds.start), to: times.time(holds.end) }));
  const late = newest && !demo && at > newest.end + interval;
  const source = find("#source");
  source.hidden = !late && !SOURCES[holds.source];
  say(source, late ? t("The newest price is late: it was valid until {time}.", { time: times.time(newest.end) }) : SOURCES[holds.source] ?? "");
  if (published.length) {
    const [low, high] = extremes(published);
    say(find("#lowest"), t("{price} at {time}", { price: number(low.price, places), time: times.time(low.start) }));
    say(find("#highest"), t("{price} at {time}", { price: number(high.price, places), time: times.time(high.start) }));
  }
  const hour = cheapest(current);
  say(find("#cheapest"), hour ? `${times.date(hour.from) === times.date(current.at) ? "" : `${times.day(hour.from)}, `}${t("{from} to {to}, about {price}", { from: times.time(hour.from), to: times.time(hour.to), price: number(hour.mean, places) })}` : t("no forecast"));
  find("#simulated").hidden = !current.simulated;
  if (Date.now() - spoken > SPEAK_EVERY) {
    spoken = Date.now();
    say(find("#said"), t("Price now {price} {unit}, {from} to {to}.", { price: number(holds.price, places), unit, from: times.time(holds.start), to: times.time(holds.end) }));
  }
}

async function refresh() {
  try {
    const prices = await ask(about("/v1/prices", zone));
    if (!prices.published.length && !prices.forecast.length) throw Object.assign(new Error(), { status: 404 });
    current = parse(prices);
  } catch (error) {
    const kind = error.status === 404 ? "empty" : "error";
    if (current === null || kind === "empty") for (const part of [now, curve]) state(part, kind, error.message);
    else live("off");
    return;
  }
  state(now, "ready");
  state(curve, "ready");
  render();
  picture ??= makeChart();
  picture.set(columns(current));
}

async function loadPromise() {
  const card = find("#promise");
  try {
    const promise = await ask(worded("/v1/promise", zone));
    if (promise.time_zone) {
      place = promise.time_zone;
      times = clock(place);
    }
    say(find("#words"), unbroken(promise.words));
    say(find("#sentence"), promise.sentence);
    items(find("#uncovered"), promise.not_covered);
    items(find("#assumptions"), promise.assumptions);
    items(find("#covers"), covered(promise));
    say(find("#cost"), promise.error === null ? "" : t("What it costs: the published price is off by about {error}.", { error: percent(promise.error) }));
    state(card, "ready");
  } catch (error) {
    state(card, "error", error.message);
  }
}

const renew = throttled(refresh, 400);
for (const part of [now, curve]) again(part, renew);
await loadPromise();
function priced(found) {
  present = entry(found);
  renew();
}
listen(about("/v1/stream", zone), { price: priced }, (is) => {
  live(is);
  renew();
});
