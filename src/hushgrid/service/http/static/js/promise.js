// The prices that a promise covers, in words.

export function seenBy({ secret, horizon, interval_s: interval }) {
  if (secret === "step") return "one price, if the occupancy of all other homes is known";
  if (secret === "window") return "all prices, about what happened within any one window of time";
  const hours = Math.round((horizon * interval) / 3600);
  const span = hours % 24 === 0 ? (hours === 24 ? "a day" : `${hours / 24} days`) : `${hours} hours`;
  return `all prices of ${span} together`;
}
