// The page: puts the parts together, and says when the agent is lost.

import { by, say, clock, span, toast } from "./dom.js";
import * as model from "./model.js";
import * as views from "./views.js";
import * as detail from "./detail.js";
import * as dialog from "./dialog.js";
import { tips } from "./timeline.js";
import { taskParts } from "./tasks.js";

const TABS = ["roles", "nodes", "timeline", "events", "audit", "tasks", "alerts"];
const state = model.model;
let version = null;

/** What is shown is in the address: the view, and the role or node that was chosen. */
function place() {
  const [tab, kind, ...name] = decodeURIComponent(location.hash.slice(1)).split("/");
  return { tab: TABS.includes(tab) ? tab : "roles", kind, name: name.join("/") };
}

function go(change) {
  const { tab, kind, name } = { ...place(), ...change };
  location.hash = name ? `${tab}/${kind}/${encodeURIComponent(name)}` : tab;
}

function arrive() {
  const { tab, kind, name } = place();
  for (const one of TABS) {
    by(one).hidden = one !== tab;
    by(`tab-${one}`).setAttribute("aria-selected", String(one === tab));
    by(`tab-${one}`).tabIndex = one === tab ? 0 : -1;
  }
  // On a phone not all of them are in sight.
  by(`tab-${tab}`).scrollIntoView({ block: "nearest", inline: "nearest" });
  detail.show(kind, name);
  views.choose(name ? `${kind}/${name}` : null);
  views.show(tab);
}

function header() {
  const cluster = state.cluster;
  if (!cluster) return;
  const tones = { healthy: "good", degraded: "warn", unhealthy: "bad" };
  const pill = by("health");
  const health = state.lostSince ? "unknown" : cluster.health;
  pill.className = `pill ${tones[health] ?? ""}`;
  say(pill, health);
  say(by("place"), `${cluster.namespace} on ${cluster.store} · seen by ${cluster.node} · ttl ${span(cluster.ttl_ms)} · ${cluster.version}`);
  const why = by("why");
  if (why.textContent !== cluster.why.join("")) {
    why.replaceChildren(...cluster.why.map((text) => Object.assign(document.createElement("li"), { textContent: text })));
  }
  why.hidden = !cluster.why.length || pill.getAttribute("aria-expanded") === "false";
  const sum = (counts) => Object.values(counts).reduce((a, b) => a + b, 0);
  say(by("count-roles"), String(sum(cluster.roles)));
  say(by("count-nodes"), String(sum(cluster.nodes)));
  document.title = `${state.lostSince ? "lost" : cluster.health} · Tenure`;
  if (version && version !== cluster.version) toast("The agent has a new version: reload this page to see it.");
  version = cluster.version;
}

function link() {
  const lost = state.lostSince > 0;
  if (by("banner").hidden && lost) say(by("banner-text"), `The agent has not answered since ${clock(state.lostAt)}. The page shows the state of that time, and continues by itself when the agent is back.`);
  if (!by("banner").hidden && !lost) toast("The agent is back.");
  by("banner").hidden = !lost;
  document.body.classList.toggle("lost", lost);
  const error = !lost && state.cluster?.store_error;
  by("store-banner").hidden = !error;
  if (error) say(by("store-text"), `The agent cannot reach its store: ${error}. The data is ${span(state.cluster.seen_ms_ago ?? NaN) || "of unknown age"} old.`);
  header();
}

function changed(what) {
  if (what === "cluster" || what === "link") link();
  if (what === "roles") views.draw("timeline");
  if (what === "history") { views.draw("timeline"); views.draw("roles"); }
  if (what === "events") say(by("count-events"), String(state.events.length));
  if (what === "tasks") say(by("count-tasks"), String(state.tasks.length || ""));
  if (what === "alerts") say(by("count-alerts"), String(alarm() || ""));
  if (TABS.includes(what)) views.draw(what);
  if (["roles", "nodes", "tasks", "history", "alerts", "link"].includes(what)) detail.draw();
}

/** How many alerts fire, also in the header. */
function alarm() {
  const firing = (state.alerts ?? []).filter((alert) => ["firing", "acknowledged"].includes(alert.state));
  const worst = firing.some((alert) => alert.severity === "critical" && alert.state === "firing");
  const badge = by("alert-badge");
  badge.hidden = !firing.length;
  badge.className = `pill ${worst ? "bad" : "warn"}`;
  say(badge, firing.length === 1 ? `1 alert: ${firing[0].alert}` : `${firing.length} alerts`);
  return firing.length;
}

function theme(step) {
  const all = ["", "light", "dark"];
  let chosen = localStorage.getItem("tenure-theme") ?? "";
  if (step) chosen = all[(all.indexOf(chosen) + 1) % all.length];
  localStorage.setItem("tenure-theme", chosen);
  if (chosen) document.documentElement.dataset.theme = chosen;
  else delete document.documentElement.dataset.theme;
  by("theme").setAttribute("aria-label", `Colours: ${chosen || "system"}`);
  by("theme").textContent = { "": "◐", light: "☀", dark: "☾" }[chosen];
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = event.target.matches("input, select, textarea");
  if (event.key === "Escape") {
    if (typing && event.target.value) { event.target.value = ""; views.search(""); } else go({ name: "" });
    return views.focus();
  }
  if (typing) return event.key === "Enter" || event.key === "ArrowDown" ? views.focus() : undefined;
  const tab = TABS[Number(event.key) - 1];
  if (event.key === "/") { event.preventDefault(); by("search").focus(); }
  else if (event.key === "?") by("keys").showModal();
  else if (tab) { go({ tab }); requestAnimationFrame(views.focus); }
}

function tabKeys(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const next = TABS[(TABS.indexOf(place().tab) + step + TABS.length) % TABS.length];
  go({ tab: next });
  by(`tab-${next}`).focus();
}

theme(false);
tips();
dialog.start();
detail.kinds.task = taskParts;
detail.start(() => { go({ name: "" }); views.focus(); });
views.start((kind, name) => go({ kind, name }));
for (const tab of TABS) by(`tab-${tab}`).addEventListener("click", () => go({ tab }));
document.querySelector(".tabs").addEventListener("keydown", tabKeys);
document.addEventListener("keydown", pressed);
by("search").addEventListener("input", () => views.search(by("search").value));
by("theme").addEventListener("click", () => theme(true));
by("help").addEventListener("click", () => by("keys").showModal());
by("keys-close").addEventListener("click", () => by("keys").close());
by("alert-badge").addEventListener("click", () => go({ tab: "alerts", name: "" }));
by("retry").addEventListener("click", model.lookNow);
by("health").addEventListener("click", () => {
  by("health").setAttribute("aria-expanded", String(by("health").getAttribute("aria-expanded") === "false"));
  header();
});
addEventListener("hashchange", arrive);
arrive();
model.listen(changed);
model.start();
const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
setInterval(() => { views.tick(); detail.tick(); }, calm ? 1000 : 200);
