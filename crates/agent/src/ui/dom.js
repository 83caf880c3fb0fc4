// Elements and words. Whatever comes from the agent becomes text, never markup: nothing here parses HTML.

/** The element with this id. */
export const by = (id) => document.getElementById(id);

/** A new element: its class, what it holds (texts and elements), and attributes. */
export function el(tag, cls, kids = [], attributes = {}) {
  const made = document.createElement(tag);
  if (cls) made.className = cls;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...[kids].flat().filter((kid) => kid !== null && kid !== undefined));
  return made;
}

/** Puts a text there, if it is another one. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A toast: what has just been done. */
let toasting = 0;
export function toast(text) {
  const shown = by("toast");
  shown.textContent = text;
  shown.hidden = false;
  clearTimeout(toasting);
  toasting = setTimeout(() => { shown.hidden = true; }, 6000);
}

/** How long, in two units at most. */
export function span(ms) {
  if (!Number.isFinite(ms)) return "";
  if (ms < 0) ms = 0;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  const s = Math.floor(ms / 1000), m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
  const both = (large, small, unit) => (small ? `${large} ${small} ${unit}` : large);
  if (m < 60) return both(`${m} min`, s % 60, "s");
  if (h < 24) return both(`${h} h`, m % 60, "min");
  return both(`${d} d`, h % 24, "h");
}

const two = (n) => String(n).padStart(2, "0");

/** A time of day, with its date if that is not today. */
export function clock(ms, millis = false) {
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return "";
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const fine = millis ? `${time}.${String(at.getMilliseconds()).padStart(3, "0")}` : time;
  const today = at.toDateString() === new Date().toDateString();
  return today ? fine : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${fine}`;
}

const TONES = {
  healthy: "good", degraded: "warn", unhealthy: "bad",
  led: "good", silent: "bad", unknown: "bad", vacant: "warn", paused: "warn",
  live: "good", closed: "", expelled: "warn", drained: "warn",
  ok: "good", done: "good", succeeded: "good", running: "good", failed: "bad", missed: "bad", interrupted: "warn", "timed-out": "bad", cancelled: "warn",
  firing: "bad", pending: "warn", acknowledged: "warn", silenced: "", resolved: "good", inactive: "good",
  critical: "bad", warning: "warn",
};

/** A state as a pill: its word, and its tone. */
export function pill(state) {
  return el("span", `pill ${TONES[state] ?? ""}`, state);
}

/** The bar of a lease; [`lease`] fills it. */
export function bar() {
  return el("div", "lease", [el("div", "bar", el("div", "fill")), el("span", "num")]);
}

/** Shows how much of a lease is left. */
export function lease(shown, left, ttl) {
  const [track, number] = shown.children;
  const fill = track.firstChild;
  const known = Number.isFinite(left) && ttl > 0;
  track.hidden = !known;
  if (!known) return say(number, "—");
  const share = Math.max(0, Math.min(1, left / ttl));
  fill.style.transform = `scaleX(${share.toFixed(3)})`;
  fill.className = `fill ${share < 0.2 ? "bad" : share < 0.45 ? "warn" : ""}`;
  say(number, `${(Math.max(0, left) / 1000).toFixed(1)} s`);
}

const colours = new Map();
/** Which of the eight node colours: the same for a name everywhere, and another one for each of the first eight. */
export function colour(name) {
  if (!colours.has(name)) colours.set(name, colours.size % 8);
  return `n${colours.get(name)}`;
}
