// A chart on uPlot: lines, bands, shaded times, marks, a legend with values, and the same numbers
// as a table.

import { fill, make, say } from "./dom.js";
import { clock, number } from "./format.js";
import { t } from "./words.js";

const { uPlot } = globalThis;
const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';
const NARROW = 560; // [px] below this width lines have no labels at their ends

let known = new Map();
export function colour(name) {
  if (!known.has(name)) {
    known.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  }
  return known.get(name);
}

const charts = new Set();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  known = new Map();
  for (const one of charts) one.redraw();
});

// spec: unit, format, zone (time zone; absent where x is no time), x: {range, splits, values, log},
// y: {range, splits, log}, series: [{label, colour, dash, step, width, points, quiet, key, end, words}],
// bands: [{series: [high, low], colour, label}], shade: {colour, label, spans()}, marks(), ends,
// below: [left, right], table: {head, kinds, rows()}, words()
export function chart(figure, spec) {
  const plot = make("div", { class: "plot", role: "img" });
  const legend = make("ul", { class: "legend" });
  const body = make("tbody");
  const details = table(spec.table, body);
  const axis = make("p", { class: "axis", "aria-hidden": "true" }, make("span", {}, spec.unit));
  const aside = make("span");
  axis.append(aside);
  figure.replaceChildren(axis, plot, legend, details);
  if (spec.below) {
    plot.after(make("p", { class: "axis", "aria-hidden": "true" }, ...spec.below.map((text) => make("span", {}, text))));
  }
  const reads = keys(legend, spec);
  let u = null;
  let data = null;

  function build() {
    if (plot.clientWidth < 40 || data === null) return;
    u = new uPlot(options(spec, plot, show), data, plot);
  }
  function show(index) {
    const at = index ?? spec.latest?.() ?? null;
    reads.forEach(({ node, row }) => {
      const value = at === null ? null : data?.[row]?.[at];
      say(node, value === null || value === undefined ? "" : spec.format(value));
    });
    say(aside, at === null || index === null || index === undefined ? "" : spec.at(data[0][at]));
  }
  function listed() {
    if (details.open) fill(body, spec.table.rows(), spec.table.kinds);
  }
  details.addEventListener("toggle", listed);
  new ResizeObserver(() => {
    if (u === null) build();
    else u.setSize({ width: plot.clientWidth, height: plot.clientHeight });
  }).observe(plot);
  charts.add({ redraw: () => u?.redraw(false, true) });

  return {
    set(next) {
      data = next;
      if (u === null) build();
      else u.setData(next);
      if (u === null || u.cursor.idx === null || u.cursor.idx === undefined) show(null);
      else show(u.cursor.idx);
      plot.setAttribute("aria-label", spec.words());
      listed();
    },
  };
}

function table(spec, body) {
  const head = make("tr");
  spec.head.forEach((text, i) => {
    head.append(make("th", { scope: "col", class: spec.kinds?.[i] ?? "" }, text));
  });
  const scroll = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": t("Numbers of the chart") });
  scroll.append(make("table", { class: "table" }, make("thead", {}, head), body));
  return make("details", { class: "numbers" }, make("summary", {}, t("The numbers as a table")), scroll);
}

function keys(legend, spec) {
  const reads = [];
  const add = (label, name, kind, row) => {
    const swatch = make("span", { class: "swatch", "data-kind": kind, "aria-hidden": "true" });
    swatch.style.setProperty("--key", `var(${name})`);
    const item = make("li", {}, swatch, label);
    if (row !== undefined) {
      const node = make("span", { class: "at" });
      item.append(node);
      reads.push({ node, row });
    }
    legend.append(item);
  };
  spec.series.forEach((one, i) => {
    if (!one.quiet) add(one.label, one.colour, one.key ?? (one.dash ? "dash" : "line"), i + 1);
  });
  for (const one of spec.bands ?? []) add(one.label, one.colour, "area");
  if (spec.shade) add(spec.shade.label, spec.shade.colour, "area");
  return reads;
}

function options(spec, plot, show) {
  const timed = spec.zone !== undefined;
  const narrow = () => plot.clientWidth < NARROW;
  const axis = {
    stroke: () => colour("--quiet"),
    font: FONT,
    grid: { stroke: () => colour("--grid"), width: 1 },
    ticks: { stroke: () => colour("--line"), width: 1, size: 5 },
  };
  const times = timed ? clock(spec.zone) : null;
  return {
    width: plot.clientWidth,
    height: plot.clientHeight,
    padding: [14, spec.right && !narrow() ? spec.right : 34, 0, 0],
    tzDate: timed ? (s) => uPlot.tzDate(new Date(1000 * s), spec.zone) : undefined,
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, points: { size: 8, width: 2 } },
    scales: {
      x: { time: timed, distr: spec.x?.log ? 3 : 1, range: spec.x?.range },
      y: { distr: spec.y?.log ? 3 : 1, range: spec.y?.range },
    },
    axes: [
      {
        ...axis,
        size: 32,
        space: timed ? 58 : 46,
        ...(spec.x?.splits && { splits: spec.x.splits, filter: (_, all) => all }),
        values: spec.x?.values ?? (timed ? (_, all) => labels(all, times) : undefined),
      },
      {
        ...axis,
        size: (_, all) => 16 + 7 * Math.max(...(all ?? [""]).map((text) => `${text}`.length)),
        space: 36,
        ...(spec.y?.splits && { splits: spec.y.splits, filter: (_, all) => all }),
        values: spec.y?.values ?? ((_, all) => ticks(all)),
      },
    ],
    series: [{}, ...spec.series.map(line)],
    bands: (spec.bands ?? []).map((one) => ({ series: one.series, fill: () => colour(one.colour) })),
    hooks: {
      drawClear: [(u) => spec.shade && shade(u, spec.shade)],
      draw: [(u) => {
        for (const mark of spec.marks?.() ?? []) draw(u, mark);
        if (spec.ends && !narrow()) ends(u, spec);
      }],
      setCursor: [(u) => show(u.cursor.idx)],
    },
  };
}

function line(one) {
  return {
    label: one.label,
    stroke: () => colour(one.colour),
    width: one.width ?? 2,
    dash: one.dash,
    paths: one.step ? uPlot.paths.stepped({ align: 1 }) : uPlot.paths.linear(),
    points: { show: true, size: one.points ?? 6, fill: () => colour(one.colour), filter: one.points ? undefined : lone },
  };
}

// Indices of values without neighbours, which a line alone would not show.
function lone(u, series) {
  const row = u.data[series];
  const at = (i) => row[i] !== null && row[i] !== undefined;
  return Array.from(row.keys()).filter((i) => at(i) && !at(i - 1) && !at(i + 1));
}

// Hours of the day; at midnight the date.
function labels(all, times) {
  return all.map((s) => (times.time(s) === "00:00" ? times.day(s).replace(",", "") : times.time(s)));
}

function ticks(all) {
  const gap = all.length > 1 ? Math.abs(all[1] - all[0]) : 1;
  let places = 0;
  while (places < 6 && Math.abs(gap * 10 ** places - Math.round(gap * 10 ** places)) > 1e-6) places += 1;
  return all.map((value) => (value === null ? "" : number(value, places)));
}

function shade(u, spec) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.fillStyle = colour(spec.colour);
  for (const [from, to] of spec.spans()) {
    const left = Math.max(u.valToPos(from, "x", true), bbox.left);
    const right = Math.min(u.valToPos(to, "x", true), bbox.left + bbox.width);
    if (right > left) ctx.fillRect(left, bbox.top, right - left, bbox.height);
  }
  ctx.restore();
}

// A labelled line (x or y; y at the right end if so marked), or a ring around a point (x and y).
function draw(u, mark) {
  const { ctx, bbox } = u;
  const scale = devicePixelRatio;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colour(mark.colour ?? "--quiet");
  ctx.lineWidth = (mark.width ?? 1.5) * scale;
  ctx.font = `${mark.strong ? "600 " : ""}${12 * scale}px ${FONT.slice(5)}`;
  const x = mark.x === undefined ? bbox.left : u.valToPos(mark.x, "x", true);
  const y = mark.y === undefined ? bbox.top : u.valToPos(mark.y, "y", true);
  ctx.beginPath();
  if (mark.x !== undefined && mark.y !== undefined) {
    ctx.lineWidth = 3 * scale;
    ctx.arc(x, y, 7 * scale, 0, 7);
  } else {
    ctx.setLineDash([3 * scale, 3 * scale]);
    ctx.moveTo(x, y);
    ctx.lineTo(mark.x === undefined ? bbox.left + bbox.width : x, mark.y === undefined ? bbox.top + bbox.height : y);
  }
  ctx.stroke();
  if (mark.text) {
    ctx.setLineDash([]);
    const half = ctx.measureText(mark.text).width / 2;
    const ring = mark.x !== undefined && mark.y !== undefined;
    const gap = (ring ? 10 : 5) * scale;
    const end = bbox.left + bbox.width;
    const wanted = mark.right ? end - half - gap : x + half + gap;
    const left = mark.x !== undefined && wanted + half > end; // below a ring then, else above
    const middle = left ? x - half - gap : wanted;
    ctx.textAlign = "center";
    ctx.textBaseline = mark.y === undefined || (ring && left) ? "top" : "bottom";
    outlined(
      ctx, mark.text,
      Math.min(Math.max(middle, bbox.left + half), bbox.left + bbox.width - half),
      ring ? y + (left ? 6 : -6) * scale : mark.y === undefined ? y + 2 * scale : y - 4 * scale,
    );
  }
  ctx.restore();
}

// Text with an outline in the colour of the background, readable over lines.
function outlined(ctx, text, x, y) {
  ctx.save();
  ctx.strokeStyle = colour("--card");
  ctx.lineWidth = 4 * devicePixelRatio;
  ctx.lineJoin = "round";
  ctx.strokeText(text, x, y);
  ctx.restore();
  ctx.fillText(text, x, y);
}

// The name of each line at its end, moved apart where names would overlap.
function ends(u, spec) {
  const { ctx, bbox } = u;
  const scale = devicePixelRatio;
  const found = [];
  spec.series.forEach((one, i) => {
    if (one.quiet || !one.end) return;
    const row = u.data[i + 1];
    let last = row.length - 1;
    while (last >= 0 && (row[last] === null || row[last] === undefined)) last -= 1;
    if (last < 0) return;
    const x = u.valToPos(u.data[0][last], "x", true);
    found.push({ one, x, y: u.valToPos(row[last], "y", true) });
  });
  found.sort((a, b) => a.y - b.y);
  const gap = 15 * scale;
  for (let i = 1; i < found.length; i += 1) found[i].y = Math.max(found[i].y, found[i - 1].y + gap);
  const over = found.length ? found.at(-1).y - (bbox.top + bbox.height - 4 * scale) : 0;
  if (over > 0) for (const each of found) each.y -= over;
  for (let i = found.length - 2; i >= 0; i -= 1) found[i].y = Math.min(found[i].y, found[i + 1].y - gap);
  ctx.save();
  ctx.font = `600 ${12 * scale}px ${FONT.slice(5)}`;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  for (const { one, x, y } of found) {
    ctx.fillStyle = colour(one.words ?? one.colour);
    outlined(ctx, one.end, x + 8 * scale, y);
  }
  ctx.restore();
}
