// The world of week.py.
(() => {
  // the browser slows timers that set timers; messages come at once
  const { port1, port2 } = new MessageChannel();
  const waiting = [];
  port1.onmessage = () => waiting.shift()();
  const later = (work) => { waiting.push(work); port2.postMessage(0); };
  const START = Date.parse("2026-01-05T00:00:00Z") / 1000, STEP = 900;
  const streams = new Set();
  window.setTimeout = (work) => later(work);
  window.EventSource = class extends EventTarget {
    constructor(url) {
      super();
      this.path = url.split("?")[0];
      streams.add(this);
      later(() => this.onopen?.());
    }
    close() { streams.delete(this); }
  };
  const strokes = { count: 0 };
  for (const [type, names] of [[Path2D, ["lineTo", "rect"]], [CanvasRenderingContext2D, ["fillText", "fillRect", "stroke"]]]) {
    for (const name of names) {
      const own = type.prototype[name];
      type.prototype[name] = function (...rest) { strokes.count += 1; return own.apply(this, rest); };
    }
  }
  let t = 0;
  const utc = (s) => new Date(1000 * s).toISOString().slice(0, 19) + "Z";
  const wave = (i) => 0.2 + 0.05 * Math.sin(i / 11) + 0.003 * Math.sin(7 * i);
  const entry = (i) => ({ start: utc(START + i * STEP), end: utc(START + (i + 1) * STEP), price: wave(i), total: wave(i), low: wave(i) - 0.01, high: wave(i) + 0.01 });
  const range = (from, to, make) => Array.from({ length: to - from }, (_, i) => make(from + i));
  const price = () => ({ zone: "elm-street", currency: "EUR", ...entry(t), source: "readings", simulated: true });
  const belief = (i) => ({ occupancy: i % 30 < 20 ? 1 : 0, prior: 0.5, none: { open: 0.4, private: 0.5 }, others: { open: i % 30 < 20 ? 0.99 : 0.01, private: wave(i) } });
  const score = { open: 0.9, private: 0.6, prior: 0.6 };
  const auc = { none: score, others: score };
  const errors = { since: utc(START), published: 0.01, forecast: 0.1 };
  const today = () => Math.floor((t - 1) / 96);
  const answers = {
    "/v1/prices": () => ({ zone: "elm-street", currency: "EUR", unit: "EUR/kWh", interval_s: STEP, simulated: true, published: range(t - 96, t + 1, (i) => ({ ...entry(i), source: "readings" })), forecast: range(t + 1, t + 97, entry), next: null }),
    "/v1/promise": () => ({ zone: "elm-street", sentence: "A promise.", assumptions: ["An assumption."], secret: "interval", epsilon: 1, eta: 0.05, horizon: 96, houses: 1000, interval_s: STEP, time_zone: "UTC", currency: "EUR", error: 0.02, noise: 0.2, publish: "estimate", covers: [{ duration: "P14D", shift: 46.514, auc_limit: 0.995, auc_typical: 0.7374 }] }),
    "/v1/session": () => ({ client: "operator", scopes: ["operate"] }),
    "/v1/operator": () => ({ now: utc(START), zones: [{ zone: "elm-street", state: "publishing", t, missing: t % 5, alerts: t % 2 }, { zone: "oak-lane", state: "publishing", t, missing: 0, alerts: 0 }] }),
    "/v1/operator/zone": () => ({
      zone: "elm-street", mode: "simulation", state: "publishing", now: utc(START + t * STEP), t, interval_s: STEP, time_zone: "UTC", currency: "EUR", houses: 1000,
      promise: { sentence: "A promise.", assumptions: ["An assumption."], secret: "interval", epsilon: 1, eta: 0.05, eta_set_by: null },
      noise: { scale: 1000 + t, house: 1, model: 1, epsilon: 0.1, epsilon_any: 1, protected: 1000, why: "Because." },
      spending: { spent: t / 100, per_release: 0.01, horizon_ends: utc(START + 999 * STEP) },
      missing: { meters: t % 5, share: 0.001 },
      series: range(t - 192, t, (i) => ({ t: i, start: utc(START + i * STEP), applies_from: utc(START + (i + 1) * STEP), load: 150000, optimal: wave(i), rate: wave(i) + 0.001, load_hat: 151000, put_back: 500, scale: 1000, missing: 0, source: "readings" })),
      alerts: t % 2 ? [{ level: "warning", text: `A warning of step ${t}.` }] : [], head: "ab".repeat(32),
    }),
    "/demo/state": () => {
      const all = range(96 * today(), t, belief);
      const of = (who, which) => all.map((one) => one[who][which]);
      return {
        zone: "elm-street", house: 1, steps: 96, step_seconds: STEP, epsilon: 1, words: "Pick any 24 hours.", not_covered: ["your bill"], day: today() + 1, t: all.length, origin: utc(START + 96 * today() * STEP),
        occupancy: all.map((one) => one.occupancy), prior: all.map((one) => one.prior),
        attackers: { none: { open: of("none", "open"), private: of("none", "private") }, others: { open: of("others", "open"), private: of("others", "private") } },
        auc, prices: { exact: all.map((_, i) => wave(i)), published: all.map((_, i) => wave(i)), forecast: all.map((_, i) => wave(i)) }, errors, cold: false, choices: [0.5, 1], restarting: false, operator: { client: "operator", secret: "x" },
      };
    },
  };
  window.fetch = async (path) => new Response(JSON.stringify(answers[path.split("?")[0]]()));
  const rest = () => new Promise(later);
  window.days = async (count) => {
    for (let i = 0; i < 96 * count; i += 1) {
      t += 1;
      for (const one of [...streams]) {
        const demo = one.path === "/demo/stream";
        const data = demo ? { day: today() + 1, t: t - 96 * today(), ...belief(t - 1), auc, errors, cold: false, prices: { exact: wave(t), published: wave(t), forecast: wave(t) } } : price();
        for (const type of demo ? ["step"] : ["release", "price"]) {
          one.dispatchEvent(new MessageEvent(type, { data: JSON.stringify(data) }));
        }
      }
      const before = strokes.count;
      for (let pause = 0; pause < 100 && strokes.count === before; pause += 1) await rest();
      for (let pause = 0; pause < 3; pause += 1) await rest();
    }
    const used = strokes.count;
    strokes.count = 0;
    return used / count;
  };
  localStorage.setItem("hushgrid-operator", "1");
})();
