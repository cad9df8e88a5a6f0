// The operator's page: log in, then figures that only operators may see.

import { ask, hint, logIn } from "./api.js";
import { demo, find, say, state, zone } from "./dom.js";
import { overview } from "./overview.js";

const login = find("#login");
const inside = find("#inside");
let view = null;

function outside(why) {
  view?.stop();
  view = null;
  document.title = "Log in · hushgrid";
  find("[data-start]").hidden = true;
  inside.hidden = true;
  find("#who").hidden = true;
  login.hidden = false;
  say(find("#heading"), "Log in");
  refused(why);
}

function refused(why) {
  const place = find("#refused");
  place.hidden = !why;
  say(place, why ?? "");
}

function enter(session) {
  find("[data-start]").hidden = true;
  login.hidden = true;
  inside.hidden = false;
  find("#who").hidden = false;
  say(find("#client"), `Logged in as ${session.client}`);
  state(find("#zone"), "loading");
  view = overview(zone, (why) => outside(why ?? "Your session has ended; log in again."));
}

async function session() {
  if (!hint()) {
    outside(null);
    demoLogin();
    return;
  }
  try {
    enter(await ask("/v1/session"));
  } catch (error) {
    outside(error.status === 401 ? null : error.message);
    if (error.status === 401) {
      hint(false);
      demoLogin();
    }
  }
}

// In the demo the login is public: everything there is simulated.
async function demoLogin() {
  if (!demo) return;
  try {
    const { operator } = await ask("/demo/state");
    find("#at-once").hidden = false;
    find("#at-once").onclick = () => submit(operator);
  } catch {
    // the page works without it
  }
}

async function submit(credentials) {
  const button = find("#enter");
  button.disabled = true;
  refused(null);
  try {
    await logIn(credentials);
    find("#secret").value = "";
    enter(await ask("/v1/session"));
    find("#main").focus();
  } catch (error) {
    refused(error.status === 401 ? "Client id or secret is wrong." : error.message);
    find("#secret").focus();
  }
  button.disabled = false;
}

find("#form").addEventListener("submit", (event) => {
  event.preventDefault();
  submit({ client: find("#name").value, secret: find("#secret").value });
});

find("#logout").addEventListener("click", async () => {
  view?.stop(); // before: open requests would be refused
  try {
    await ask("/v1/session", { method: "DELETE" });
    hint(false);
    outside(null);
    find("#name").focus();
    demoLogin();
  } catch (error) {
    outside(error.status === 401 ? null : `Logging out failed: ${error.message}`);
  }
});

session();
