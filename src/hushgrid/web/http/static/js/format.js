// Formats of numbers and times.

import { decimal, lang } from "./words.js";

export const seconds = (iso) => Date.parse(iso) / 1000;

// Decimal places: the tariff's, where it has a number of digits, else for four significant digits.
export function digits(typical, given) {
  if (given !== undefined) return Number(given);
  const size = Math.abs(typical) || 1;
  return Math.min(Math.max(3 - Math.floor(Math.log10(size)), 0), 6);
}

const numbers = new Map();
export function number(value, places = 0) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (!numbers.has(places)) {
    const both = { minimumFractionDigits: places, maximumFractionDigits: places };
    numbers.set(places, new Intl.NumberFormat(lang, both));
  }
  const text = numbers.get(places).format(value);
  return /^-[0.,]*$/.test(text) ? text.slice(1) : text; // no -0.00
}

// 0.0123 -> "1.2 %": about two significant digits.
export function percent(share) {
  if (share === null || share === undefined || !Number.isFinite(share)) return "–";
  const value = 100 * share;
  const size = Math.abs(value);
  return `${number(value, size >= 10 || size === 0 ? 0 : size >= 1 ? 1 : size >= 0.1 ? 2 : 3)} %`;
}

export function whole(share) {
  if (share > 0.995 && share < 1) return "> 99 %";
  return share > 0 && share < 0.005 ? "< 1 %" : `${Math.round(100 * share)} %`;
}

// Up to three significant digits: 0.05, 1.25, 12.
export function short(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) >= 1000 ? number(value) : decimal(String(Number(value.toPrecision(3))));
}

// Largest belief of someone who started at 50 %, after odds shift by e^epsilon.
export const most = (epsilon) => 1 / (1 + Math.exp(-epsilon));

export function clock(timeZone) {
  const as = (options) => new Intl.DateTimeFormat(lang === "en" ? "en-GB" : lang, { timeZone, ...options });
  const time = as({ hour: "2-digit", minute: "2-digit" });
  const day = as({ weekday: "short", day: "numeric", month: "short" });
  const full = as({ weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
  const parts = as({ year: "numeric", month: "numeric", day: "numeric" });
  const date = (s) => new Date(1000 * s);
  return {
    time: (s) => time.format(date(s)),
    day: (s) => day.format(date(s)),
    full: (s) => full.format(date(s)),
    date: (s) => parts.format(date(s)),
  };
}
