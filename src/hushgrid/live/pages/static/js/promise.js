// What a promise covers, in words. `secret` says what all of which prices may tell about.

export function seenBy({ secret, horizon, interval_s: interval }) {
  if (secret === "step") return "one price";
  if (secret === "window") return "all prices of any one window of time together";
  const hours = Math.round((horizon * interval) / 3600);
  const span = hours % 24 === 0 ? (hours === 24 ? "a day" : `${hours / 24} days`) : `${hours} hours`;
  return `all prices of ${span} together`;
}
