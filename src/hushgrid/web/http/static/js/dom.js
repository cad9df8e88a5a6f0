// Helpers for the DOM. Text is always inserted as text, never as HTML.

export const find = (selector, root = document) => root.querySelector(selector);
export const zone = document.body.dataset.zone;
export const demo = "demo" in document.body.dataset; // then time is simulated too

export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// Show the parts of a state (loading, empty, error, ready) and hide the others.
export function state(section, name, detail) {
  if (section.dataset.state !== name) section.dataset.state = name;
  for (const part of section.querySelectorAll("[data-when]")) {
    const on = part.dataset.when === name;
    if (part.hidden === on) part.hidden = !on;
    if (on && detail !== undefined) {
      const place = part.matches("[data-detail]") ? part : find("[data-detail]", part);
      if (place) say(place, detail);
    }
  }
}

// Fill the rows of a table; nodes are reused, so that an open page does not grow.
export function fill(body, rows, kinds = []) {
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, i) => {
    const row = body.rows[i] ?? body.insertRow();
    while (row.cells.length > cells.length) row.deleteCell(-1);
    cells.forEach((text, j) => {
      const cell = row.cells[j] ?? row.insertCell();
      if (kinds[j] && cell.className !== kinds[j]) cell.className = kinds[j];
      say(cell, text);
    });
  });
}

// Fill a list of terms and descriptions.
export function pairs(list, entries) {
  while (list.children.length > 2 * entries.length) list.lastElementChild.remove();
  entries.forEach(([term, text], i) => {
    if (!list.children[2 * i]) list.append(make("dt"), make("dd"));
    say(list.children[2 * i], term);
    say(list.children[2 * i + 1], text);
  });
}

// Fill a list of sentences; nodes are reused.
export function items(list, texts) {
  while (list.children.length > texts.length) list.lastElementChild.remove();
  texts.forEach((text, i) => say(list.children[i] ?? list.appendChild(make("li")), text));
}

export function width(node, share) {
  node.style.width = `${(100 * Math.min(Math.max(share, 0), 1)).toFixed(1)}%`;
}

export function again(section, work) {
  for (const button of section.querySelectorAll("[data-again]")) {
    button.addEventListener("click", work);
  }
}
