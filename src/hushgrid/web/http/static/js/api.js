// Requests to the service, and its streams of events.

import { lang, t } from "./words.js";

export class Refusal extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export const about = (path, zone) => (zone ? `${path}?zone=${encodeURIComponent(zone)}` : path);

// The same with the language of the page, where the answer has sentences.
export function worded(path, zone) {
  const found = about(path, zone);
  return lang === "en" ? found : `${found}${zone ? "&" : "?"}lang=${lang}`;
}

// Fetch JSON from a path; throws a Refusal with one sentence. `signal` may abort it.
export async function ask(path, { method = "GET", body, seconds = 20, signal } = {}) {
  const late = AbortSignal.timeout(seconds * 1000);
  let answer;
  try {
    answer = await fetch(path, {
      method,
      cache: "no-cache",
      credentials: "same-origin",
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, late]) : late,
    });
  } catch {
    throw new Refusal(0, t("The service cannot be reached. This page tries again by itself."));
  }
  const text = await answer.text();
  let found = null;
  try {
    found = text ? JSON.parse(text) : null;
  } catch {
    throw new Refusal(answer.status, t("The service answered with something other than JSON."));
  }
  if (!answer.ok) {
    const detail = lang === "en" ? found?.detail : undefined; // the service writes English
    throw new Refusal(answer.status, detail ?? t("The service answered {status}.", { status: answer.status }));
  }
  return found;
}

const HINT = "hushgrid-operator"; // set after a login in this browser; without it no session is requested

export function hint(value) {
  try {
    if (value === undefined) return localStorage.getItem(HINT) !== null;
    if (value) localStorage.setItem(HINT, "1");
    else localStorage.removeItem(HINT);
  } catch {
    // no storage: request the session
  }
  return true;
}

export async function logIn({ client, secret }) {
  await ask("/v1/session", { method: "POST", body: { client, secret } });
  hint(true);
}

// Listen to a stream while the page is open. `changed` is called with "on" or "off".
// Reconnects without end, with longer pauses; the browser's own reconnection may give up.
export function listen(path, handlers, changed) {
  let source = null;
  let timer = 0;
  let pause = 1000;
  function open() {
    clearTimeout(timer);
    source?.close();
    source = new EventSource(path);
    source.onopen = () => {
      pause = 1000;
      changed("on");
    };
    source.onerror = () => {
      source.close();
      changed("off");
      clearTimeout(timer);
      timer = setTimeout(open, pause * (0.75 + Math.random() / 2));
      pause = Math.min(2 * pause, 30_000);
    };
    for (const [name, handler] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => handler(JSON.parse(event.data)));
    }
  }
  function close() {
    clearTimeout(timer);
    source?.close();
  }
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => event.persisted && open());
  open();
  return { open, close };
}

// Throttle work: one call at a time, at most every `least` ms, and once more at the end.
export function throttled(work, least) {
  let busy = false;
  let wanted = false;
  async function run() {
    busy = true;
    wanted = false;
    await work();
    setTimeout(() => {
      busy = false;
      if (wanted) run();
    }, least);
  }
  return () => {
    wanted = true;
    if (!busy) run();
  };
}

export function liveness(node) {
  const text = node.querySelector("[data-text]");
  return (now, words) => {
    node.dataset.live = now;
    const label = words ?? { on: t("Live"), off: t("Connection lost, trying again"), wait: t("Connecting") }[now];
    if (text.textContent !== label) text.textContent = label;
  };
}
