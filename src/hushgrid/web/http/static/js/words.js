// Texts and numbers in the language of the page. A text is looked up by its English words.

export const lang = document.documentElement.lang;
const known = JSON.parse(document.body.dataset.words ?? "{}");

export function t(text, values = {}) {
  return (known[text] ?? text).replace(/\{(\w+)\}/g, (_, name) => values[name]);
}

// The decimal sign of a number that has no other sign.
export const decimal = (text) => (lang === "en" ? text : text.replace(".", ","));
