// Tenures on an axis of time. One window of time for all lanes that share it; a gap is coloured by how long the role had no leader.

import { by, el, clock, colour, span } from "./dom.js";
import { model } from "./model.js";

const LEAST = 50, MOST = 400 * 24 * 3600_000;
const STEPS = [10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 108e5, 216e5, 432e5, 864e5, 1728e5, 6048e5, 2592e6];

/** A window of time: it ends now until the reader moves it. */
export class Window {
  constructor(redraw) {
    this.length = 15 * 60_000;
    this.end = null;
    this.redraw = redraw;
  }

  get to() { return this.end ?? Date.now(); }
  get from() { return this.to - this.length; }

  zoom(factor, at = 0.85) {
    const fixed = this.from + this.length * at;
    this.length = Math.min(MOST, Math.max(LEAST, this.length * factor));
    if (this.end !== null) this.end = fixed + this.length * (1 - at);
    this.redraw();
  }

  move(share) {
    const end = this.to + this.length * share;
    this.end = end >= Date.now() ? null : end;
    this.redraw();
  }

  /** All that these tenures cover. */
  fit(first) {
    this.end = null;
    this.length = Math.min(MOST, Math.max(10_000, (Date.now() - first) * 1.04));
    this.redraw();
  }

  /** Where a time is, as a share of the width. */
  share(ms) { return (ms - this.from) / this.length; }

  describe() { return this.end === null ? `the last ${span(this.length)}` : `${span(this.length)} until ${clock(this.end)}`; }
}

/** Buttons that zoom; `all` says when the first tenure began. */
export function buttons(holder, win, all) {
  const make = (item, text, label, act) => {
    const button = el("button", "", text, { type: "button", "aria-label": label, "data-item": item });
    button.addEventListener("click", act);
    return button;
  };
  const range = el("span", "range");
  holder.append(
    make("zoom-in", "+", "Zoom in", () => win.zoom(0.5)),
    make("zoom-out", "−", "Zoom out", () => win.zoom(2)),
    make("earlier", "←", "Earlier", () => win.move(-0.4)),
    make("later", "→", "Later", () => win.move(0.4)),
    make("zoom-all", "All", "All there is", () => win.fit(all())),
    range,
  );
  return () => { range.textContent = win.describe(); };
}

/** Wheel, dragging and keys move the window. */
export function steer(area, win, all) {
  const lane = () => area.querySelector(".lane") ?? area;
  const where = (event) => {
    const box = lane().getBoundingClientRect();
    return Math.max(0, Math.min(1, (event.clientX - box.left) / (box.width || 1)));
  };
  area.addEventListener("wheel", (event) => {
    if (!event.target.closest(".lane, .axis")) return;
    const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
    event.preventDefault();
    if (sideways) win.move((event.deltaX || event.deltaY) / 800);
    else win.zoom(event.deltaY > 0 ? 1.25 : 0.8, where(event));
  }, { passive: false });
  let dragged = null;
  area.addEventListener("pointerdown", (event) => { if (event.target.closest(".lane, .axis")) dragged = event.clientX; });
  area.addEventListener("pointermove", (event) => {
    if (dragged === null) return;
    win.move((dragged - event.clientX) / (lane().clientWidth || 1));
    dragged = event.clientX;
  });
  for (const end of ["pointerup", "pointerleave", "pointercancel"]) area.addEventListener(end, () => { dragged = null; });
  area.addEventListener("keydown", (event) => {
    const acts = {
      "+": () => win.zoom(0.5), "=": () => win.zoom(0.5), "-": () => win.zoom(2),
      ArrowLeft: () => win.move(-0.2), ArrowRight: () => win.move(0.2), 0: () => win.fit(all()),
    };
    if (!acts[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    acts[event.key]();
  });
}

/** The axis above the lanes. */
export function axis(shown, win) {
  const width = shown.clientWidth;
  if (!width) return;
  const step = STEPS.find((step) => (step / win.length) * width >= 92) ?? STEPS.at(-1);
  const offset = new Date().getTimezoneOffset() * 60_000;
  const ticks = [];
  for (let at = Math.ceil((win.from - offset) / step) * step + offset; at < win.to; at += step) {
    // A word that would be cut off says nothing.
    if ((1 - win.share(at)) * width < 64) break;
    const tick = el("span", "tick", step >= 864e5 ? clock(at).slice(0, 10) : clock(at, step < 1000).split(" ").at(-1));
    tick.style.left = `${(win.share(at) * 100).toFixed(3)}%`;
    ticks.push(tick);
  }
  shown.replaceChildren(...ticks);
}

/** History is written a moment after the fact: who leads now is known before. */
function upToDate(name, tenures) {
  const role = model.roles.get(name);
  if (!role?.leader || role.token <= (tenures.at(-1)?.token ?? 0)) return tenures;
  return [...tenures, { token: role.token, node: role.leader, began: role.since, ended: null, reason: null }];
}

/** Until when anything is known of a role: a tenure that no lease vouches for may be over. */
function known(name) {
  const at = model.lostSince ? model.lostAt : Date.now();
  const role = model.roles.get(name);
  if (role?.knownUntil) return role.knownUntil;
  return role?.state === "unknown" ? at - (role.last_beat_ms_ago ?? role.seen_ms_ago ?? 0) : at;
}

/** Who measured the end of a tenure, if it was not its leader. */
export const measured = (tenure) => ({ "last-beat": ", by its last beat", successor: ", by its successor" })[tenure.measured] ?? "";

/** What happened, as spans of time: tenures, and the gaps between them. */
export function spans(role, history) {
  const tenures = upToDate(role, history);
  const found = [];
  const present = known(role);
  tenures.forEach((tenure, index) => {
    const next = tenures[index + 1];
    const from = Date.parse(tenure.began), follows = next ? Date.parse(next.began) : null;
    const noted = tenure.ended ? Date.parse(tenure.ended) : null;
    const over = noted ?? (tenure.reason ? from : follows);
    found.push({ tenure, from, to: over ?? Math.max(from, present), goesOn: over === null, role });
    if (over === null) return;
    const until = follows ?? present;
    if (until > over) found.push({ gap: until - over, after: tenure, from: over, to: until, open: follows === null, role });
  });
  return found;
}

function tone(gap) {
  const ttl = model.cluster?.ttl_ms ?? 5000;
  const role = gap.open && model.roles.get(gap.role);
  if (role && (role.state === "paused" || !role.candidates.length)) return "wanted";
  return gap.gap < ttl / 2 ? "short" : gap.gap < 2.5 * ttl ? "long" : "worst";
}

function words(part) {
  if (part.tenure) {
    const { node, token, reason } = part.tenure;
    const unknown = part.goesOn && model.roles.get(part.role)?.state === "unknown";
    const end = part.goesOn && !unknown ? "now" : clock(part.to, true);
    const why = unknown ? "not known since" : part.goesOn ? "goes on" : `ended: ${reason ?? "not recorded why"}${measured(part.tenure)}`;
    return `${node}, token ${token}\n${clock(part.from, true)} – ${end} (${span(part.to - part.from)})\n${why}`;
  }
  const role = part.open ? model.roles.get(part.role) : null;
  const paused = role?.paused ? `\npaused by ${role.paused.by}: ${role.paused.why}` : "";
  return `no leader for ${span(part.gap)}${part.open ? ", and none now" : ""}\nafter ${part.after.node}: ${part.after.reason ?? "not recorded why"}${paused}`;
}

/** Draws the spans of one role that are in the window. Elements are kept, so that focus and hover stay. */
export function lane(shown, role, tenures, win) {
  const width = shown.clientWidth || 1;
  const parts = tenures ? spans(role, tenures).filter((part) => part.to >= win.from && part.from <= win.to) : [];
  while (shown.children.length > parts.length) shown.lastChild.remove();
  parts.forEach((part, index) => {
    const old = shown.children[index];
    const made = old ?? shown.appendChild(el("button", "", [], { type: "button" }));
    const left = Math.max(0, win.share(part.from)), right = Math.min(1.01, win.share(part.to));
    const least = part.gap === undefined ? 2 : 4;
    const wide = Math.max(least, (right - left) * width);
    made.className = part.gap === undefined ? colour(part.tenure.node) : `gap ${tone(part)}`;
    made.style.left = `${Math.min(left * width, width - least).toFixed(1)}px`;
    made.style.width = `${wide.toFixed(1)}px`;
    made.style.zIndex = part.gap === undefined ? 0 : 1;
    const text = part.gap === undefined && wide > 34 ? part.tenure.node : "";
    if (made.textContent !== text) made.textContent = text;
    made.dataset.tip = words(part);
    made.dataset.kind = part.gap === undefined ? "tenure" : "gap";
    made.setAttribute("aria-label", made.dataset.tip.replaceAll("\n", ", "));
  });
}

/** What the colours of gaps mean. */
export function legend(shown) {
  const ttl = model.cluster?.ttl_ms;
  if (!ttl || shown.dataset.ttl === String(ttl)) return;
  shown.dataset.ttl = ttl;
  const entry = (cls, text) => el("span", "", [el("i", cls), text]);
  shown.replaceChildren(
    el("span", "", "No leader for"),
    entry("short", `less than ${span(ttl / 2)}`),
    entry("long", `up to ${span(2.5 * ttl)}`),
    entry("worst", "longer"),
    entry("wanted", "paused, or no candidates"),
  );
}

/** The tip follows whatever has one under the pointer or in focus. */
export function tips() {
  const tip = by("tip");
  const show = (target, x, y) => {
    tip.textContent = target.dataset.tip;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(6, Math.min(innerWidth - box.width - 6, x - box.width / 2))}px`;
    tip.style.top = `${y + box.height + 16 > innerHeight ? y - box.height - 12 : y + 16}px`;
  };
  const hide = () => { tip.hidden = true; };
  document.addEventListener("pointermove", (event) => {
    const target = event.target.closest?.("[data-tip]");
    if (target) show(target, event.clientX, event.clientY);
    else if (!document.activeElement?.dataset?.tip) hide();
  });
  document.addEventListener("focusin", (event) => {
    const target = event.target.closest?.("[data-tip]");
    if (!target) return hide();
    const box = target.getBoundingClientRect();
    show(target, Math.max(0, box.left) + Math.min(box.width, innerWidth) / 2, box.bottom - 8);
  });
  document.addEventListener("focusout", hide);
}
