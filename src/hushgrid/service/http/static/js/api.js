// Asking the service, and listening to it.

export class Refusal extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export const about = (path, zone) => (zone ? `${path}?zone=${encodeURIComponent(zone)}` : path);

// JSON of a path; what goes wrong is a Refusal with a sentence. `signal` may end it earlier.
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
    throw new Refusal(0, "The service cannot be reached. It is tried again by itself.");
  }
  const text = await answer.text();
  let found = null;
  try {
    found = text ? JSON.parse(text) : null;
  } catch {
    throw new Refusal(answer.status, "The service answered with something else than data.");
  }
  if (!answer.ok) {
    throw new Refusal(answer.status, found?.detail ?? `The service answered ${answer.status}.`);
  }
  return found;
}

// Events of a stream, for as long as the page is open. `told` hears "on", "off".
// Ours instead of the browser's own way back: it never gives up, and it waits longer each time.
export function listen(path, handlers, told) {
  let source = null;
  let timer = 0;
  let pause = 1000;
  function open() {
    clearTimeout(timer);
    source?.close();
    source = new EventSource(path);
    source.onopen = () => {
      pause = 1000;
      told("on");
    };
    source.onerror = () => {
      source.close();
      told("off");
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

// Work that many events ask for: one at a time, at most every `least` ms, and once more at the end.
export function gathered(work, least) {
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
    const said = words ?? { on: "Live", off: "Connection lost, trying again", wait: "Connecting" }[now];
    if (text.textContent !== said) text.textContent = said;
  };
}
