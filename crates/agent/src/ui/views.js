// The views: one list each, shown from the model, narrowed by the search and by what is pressed.

import { by, el, say, pill, bar, lease, clock, span, colour } from "./dom.js";
import { List } from "./list.js";
import { model, leaseLeft, pastOf, roleCounts } from "./model.js";
import { taskList, fill as fillTask } from "./tasks.js";
import { Window, buttons, steer, axis, lane, legend } from "./timeline.js";

const holder = (view) => document.querySelector(`#${view} .list, #${view} .lanes`);
const cells = (row, ...made) => row.append(...made);
const wanted = { text: "", state: "", kinds: new Set(), sort: "trouble", down: false };
let open = () => {};

const has = (text) => String(text ?? "").toLowerCase().includes(wanted.text);

/** Narrows everything to what contains this. */
export function search(text) {
  wanted.text = text.trim().toLowerCase();
  drawAll();
}

/** What roles are sorted by. Those in trouble come first, unless the reader wants another order. */
const TROUBLE = ["silent", "unknown", "vacant", "paused", "led"];
const ORDERS = {
  trouble: (role) => TROUBLE.indexOf(role.state),
  role: () => 0,
  leader: (role) => role.leader ?? "",
  token: (role) => role.token,
  duration: (role) => (role.leader ? Date.parse(role.since) : Infinity),
  lease: (role) => (role.leader ? leaseLeft(role.leader) || 0 : -1),
};

function inOrder(roles) {
  const order = ORDERS[wanted.sort], sign = wanted.down ? -1 : 1;
  const keyed = roles.map((role) => [order(role), role]);
  const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  keyed.sort(([a, one], [b, other]) => sign * compare(a, b) || (wanted.sort === "role" ? sign : 1) * compare(one.role, other.role));
  return keyed.map(([, role]) => role);
}

function sortBy(word) {
  wanted.down = wanted.sort === word && !wanted.down;
  wanted.sort = word;
  for (const title of document.querySelectorAll("#roles [data-sort]")) {
    const mark = title.dataset.sort !== word ? "none" : wanted.down ? "descending" : "ascending";
    title.dataset.order = mark;
  }
  draw("roles");
}

/** The roles that are wanted, in the order that is wanted. */
function roles() {
  const wants = (role) =>
    (!wanted.state || role.state === wanted.state) &&
    (!wanted.text || has(role.role) || has(role.leader) || has(role.state));
  return inOrder(model.names.map((name) => model.roles.get(name)).filter((role) => role && wants(role)));
}

/** The last hour, in each row. */
const hour = new Window(() => {});
hour.length = 3600_000;

function fillHour(shown, role) {
  if (!shown.clientWidth) return;
  // It changes slowly, and rows are shown five times a second.
  const stamp = `${role.role} ${role.token} ${role.state} ${pastOf(role.role)?.read} ${shown.clientWidth} ${Math.floor(Date.now() / 5000)}`;
  if (shown.dataset.stamp === stamp) return;
  shown.dataset.stamp = stamp;
  lane(shown, role.role, pastOf(role.role)?.tenures, hour);
  for (const part of shown.children) part.tabIndex = -1;
}

const since = (role) => (role.since ? Date.now() - Date.parse(role.since) : NaN);

function fillRole(row, role) {
  const [name, state, leader, token, duration, left, past, next] = row.children;
  say(name, role.role);
  replacePill(state, role.state);
  const vacant = role.state === "unknown" ? (role.paused ? "was paused" : "was vacant") : role.since && role.token ? `none for ${span(since(role))}` : "none";
  say(leader, role.leader ?? (role.last_leader ? `was ${role.last_leader}` : vacant));
  leader.classList.toggle("faint", !role.leader);
  say(token, role.token ? String(role.token) : "—");
  say(duration, role.leader ? span(since(role)) : "—");
  fillHour(past, role);
  lease(left, role.leader ? leaseLeft(role.leader) : NaN, model.nodes.get(role.leader)?.ttl_ms);
  say(next, role.candidates.length ? role.candidates.join(", ") : "none");
  next.classList.toggle("faint", !role.candidates.length);
}

function replacePill(cell, state) {
  if (cell.textContent !== state) cell.replaceChildren(pill(state));
}

function roleList() {
  return new List(holder("roles"), {
    label: "Roles",
    head: [["Role", "", "role"], ["State", "", "trouble"], ["Leader", "", "leader"], ["Token", "right", "token"], ["Leads for", "", "duration"], ["Lease left", "", "lease"], ["Last hour", "wide"], ["Candidates", "wide"]],
    sort: sortBy,
    make: (row) => {
      const left = bar();
      left.dataset.item = "lease";
      row.dataset.item = "role";
      cells(row, el("span", "name"), el("span"), el("span", "leader"), el("span", "num right"), el("span", "num"), left, el("div", "lane hour wide", [], { "data-item": "hour" }), el("span", "wide"));
    },
    fill: fillRole,
    open: (role) => open("role", role.role),
    key: (role) => `role/${role.role}`,
    empty: () => (model.roles.size ? "No role matches." : model.cluster ? "No roles yet." : "Loading…"),
  });
}

function nodeState(node) {
  return node.drained && node.state === "live" ? "drained" : node.state;
}

function fillNode(row, node) {
  const [name, state, left, leads, stands, labels, address, joined] = row.children;
  say(name, node.node);
  replacePill(state, nodeState(node));
  lease(left, leaseLeft(node.node), node.ttl_ms);
  say(leads, String(node.leads));
  say(stands, String(node.candidate_for));
  const told = Object.entries(node.labels).map(([key, value]) => `${key}=${value}`);
  if (labels.dataset.told !== told.join()) {
    labels.dataset.told = told.join();
    labels.title = told.join("\n");
    labels.replaceChildren(...told.map((text) => el("span", "tag", text)));
  }
  say(address, node.address ?? "");
  say(joined, span(Date.now() - Date.parse(node.joined)));
}

function nodeList() {
  return new List(holder("nodes"), {
    label: "Nodes",
    head: [["Node"], ["State"], ["Lease left"], ["Leads", "right"], ["Candidate for", "right"], ["Labels"], ["Address", "wide"], ["Joined", "wide"]],
    make: (row) => {
      row.dataset.item = "node";
      const labels = el("span", "", [], { "data-item": "labels" });
      cells(row, el("span", "name"), el("span"), bar(), el("span", "num right"), el("span", "num right"), labels, el("span", "wide"), el("span", "wide num"));
    },
    fill: fillNode,
    open: (node) => open("node", node.node),
    key: (node) => `node/${node.node}`,
    empty: () => (model.nodes.size ? "No node matches." : "Loading…"),
  });
}

function nodes() {
  const labels = (node) => Object.entries(node.labels).map(([key, value]) => `${key}=${value}`).join(" ");
  const wants = (node) => !wanted.text || has(node.node) || has(nodeState(node)) || has(node.address) || has(node.host) || has(node.version) || has(labels(node));
  return [...model.nodes.values()].filter(wants);
}

/** Kinds of events that people want apart. */
const KINDS = {
  leaders: ["leader-changed", "leader-lost", "vacant", "leader-silent", "leader-back", "leader-down"],
  nodes: ["node-joined", "node-left", "node-expelled"],
  operators: ["paused", "resumed"],
  tasks: ["task-started", "task-ended", "task-passed"],
  alerts: ["alert-firing", "alert-resolved", "alert-notified", "alert-notify-failed"],
  "this agent": [],
};
const kindOf = (event) => {
  if (event.scope === "node" && !event.task && !event.alert) return "this agent";
  return Object.keys(KINDS).find((kind) => KINDS[kind].includes(event.event)) ?? "this agent";
};

/** What an event says, for people. */
export function sentence(event) {
  const because = event.reason && !["first", "vacant"].includes(event.reason) ? ` (${event.reason})` : "";
  const former = event.former ?? "its leader";
  switch (event.event) {
    case "leader-changed": return event.leader ? `${event.leader} leads${event.former && event.former !== event.leader ? ` after ${event.former}` : ""}, token ${event.token}${because}` : `no leader, after ${former}`;
    case "leader-lost": return `${former} is gone, no leader${because}`;
    case "vacant": return `${former} resigned, no leader${because}`;
    case "leader-silent": return `${event.leader} is silent: no renewal for a ttl`;
    case "leader-back": return `${event.leader} renews again`;
    case "leader-down": return `the session of ${former} ended`;
    case "paused": return event.by ? `paused by ${event.by}: ${event.why}` : event.paused === false ? "resumed" : "paused";
    case "node-expelled": return "was expelled: another node ended its session";
    case "elected": return `this node leads, token ${event.token}`;
    case "lost": return `this node lost the role${because}`;
    case "work-restarted": return `${event.worker} failed and is started again: ${event.why}`;
    case "work-failed": return `${event.worker} failed, this node waits for its cool-down: ${event.why}`;
    case "task-started": return `began for ${clock(Date.parse(event.tick))}, token ${event.token}`;
    case "task-ended": return `${event.state} after ${span(event.took_ms)}, for ${clock(Date.parse(event.tick))}${event.why ? `: ${event.why}` : ""}`;
    case "task-passed": return `${event.count} ${event.count > 1 ? "ticks" : "tick"} ${event.state}: ${event.why}`;
    case "alert-firing": return `fires: ${event.summary}`;
    case "alert-resolved": return "is resolved";
    case "alert-notified": return `${event.target} was notified: ${event.status}`;
    case "alert-notify-failed": return `${event.target} was not notified: ${event.error}`;
    case "state-changed": return `${event.from} → ${event.to}`;
    default: {
      const known = new Set(["event", "at", "scope", "id", "node", "role", "subject", "sequence", "lease_nanos"]);
      const rest = Object.entries(event).filter(([key]) => !known.has(key));
      return `${event.event.replaceAll("-", " ")} ${rest.map(([key, value]) => `${key} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ")}`.trim();
    }
  }
}

/** The ledger of a task: one of them, if every node has its own. */
function openTask(name) {
  const task = model.tasks?.find((one) => one.task === name);
  if (task) open("task", task.id);
}

function eventList() {
  return new List(holder("events"), {
    label: "Events",
    head: [["When"], ["Source"], ["Subject"], ["Event"]],
    make: (row) => { row.dataset.item = "event"; cells(row, el("span", "num faint"), el("span", "faint"), el("span", "name"), el("span")); },
    fill: (row, event) => {
      const [when, scope, subject, what] = row.children;
      say(when, clock(Date.parse(event.at), true));
      say(scope, event.scope === "node" ? "this node" : "the store");
      say(subject, event.subject);
      say(what, sentence(event));
      row.dataset.kind = event.event;
    },
    open: (event) => (event.task ? openTask(event.task) : event.role ? open("role", event.role) : event.alert ? open("alert", event.alert) : event.node && open("node", event.node)),
    key: (event) => event.id,
    empty: () => (model.events.length ? "No event matches." : "No recent events."),
  });
}

function events() {
  const wants = (event) =>
    (!wanted.kinds.size || wanted.kinds.has(kindOf(event))) &&
    (!wanted.text || has(event.subject) || has(event.event) || has(sentence(event)));
  return model.events.filter(wants).reverse();
}

function auditList() {
  return new List(holder("audit"), {
    label: "Audit",
    head: [["When"], ["Who"], ["Action"], ["Subject"], ["Reason"]],
    make: (row) => { row.dataset.item = "audit-entry"; cells(row, el("span", "num faint"), el("span"), el("span", "name"), el("span"), el("span")); },
    fill: (row, entry) => {
      const [when, who, did, to, why] = row.children;
      say(when, clock(Date.parse(entry.at)));
      say(who, entry.by);
      say(did, entry.act);
      say(to, entry.node ? `${entry.subject} → ${entry.node}` : entry.subject);
      say(why, entry.why);
    },
    open: (entry) => model.roles.has(entry.subject) && open("role", entry.subject),
    key: (entry) => `${entry.at} ${entry.subject}`,
    empty: () => (model.audit?.length ? "No entry matches." : model.audit ? "The audit trail is empty." : "Loading…"),
  });
}

const entries = () => (model.audit ?? []).filter((entry) => !wanted.text || [entry.by, entry.act, entry.subject, entry.why].some(has));

/** Whatever an alert calls it. */
const first = (thing, ...keys) => keys.map((key) => thing[key]).find((value) => value !== undefined && value !== null) ?? "";
const when = (text) => (Number.isNaN(Date.parse(text)) ? String(text) : clock(Date.parse(text)));

/** What an alert that does not fire would say, without the names that it would say it of. */
const meaning = (summary) => summary.replace(/\{(\w+)\}/g, (_, label) => (label === "value" ? "several" : `a ${label}`));

function alertList() {
  return new List(holder("alerts"), {
    label: "Alerts",
    head: [["Alert"], ["State"], ["Severity"], ["Since"], ["Summary"]],
    make: (row) => { row.dataset.item = "alert"; cells(row, el("span", "name"), el("span"), el("span"), el("span", "num"), el("span")); },
    fill: (row, alert) => {
      const [name, state, severity, from, condition] = row.children;
      say(name, String(first(alert, "alert", "name")));
      replacePill(state, String(first(alert, "state") || "—"));
      say(from, when(first(alert, "since", "fired_at", "at")));
      const more = (alert.total ?? 0) > 1 ? ` (and ${alert.total - 1} more)` : "";
      const quiet = ["inactive", "pending"].includes(alert.state);
      say(condition, quiet ? `when it fires: ${meaning(alert.summary)}` : `${alert.summary ?? alert.condition}${more}`);
      condition.title = alert.condition;
      condition.classList.toggle("faint", quiet);
      severity.replaceChildren(quiet ? el("span", "faint", alert.severity) : pill(alert.severity));
    },
    open: (alert) => open("alert", alert.alert),
    key: (alert) => `alert/${alert.alert}`,
    empty: () => (model.alerts?.length ? "No alert matches." : model.alerts ? "No alerts are configured. Set alerting.defaults to true for the shipped ones, or add an [[alert]] to the configuration." : "Loading…"),
  });
}

const named = (things) => (things ?? []).filter((thing) => !wanted.text || has(JSON.stringify(thing)));

/** Those that fire first, and of these the worst. */
function alerts() {
  const rank = (alert) => ["firing", "acknowledged", "silenced", "resolved", "pending", "inactive"].indexOf(alert.state);
  const worst = (alert) => (["pending", "inactive"].includes(alert.state) ? 0 : ["critical", "warning", "info"].indexOf(alert.severity));
  return named(model.alerts).toSorted((a, b) => rank(a) - rank(b) || worst(a) - worst(b) || a.alert.localeCompare(b.alert));
}

/** The lanes of all roles under one axis. */
function laneList() {
  const shown = el("div", "axis", [], { "data-item": "axis" });
  holder("timeline").append(shown);
  const list = new List(holder("timeline"), {
    label: "Timeline",
    make: (row) => {
      row.classList.remove("rowgrid");
      row.dataset.item = "lane";
      const who = el("button", "who", el("span"), { type: "button", tabindex: "-1" });
      row.append(who, el("div", "lane"));
    },
    fill: (row, role) => {
      say(row.firstChild.firstChild, role.role);
      lane(row.lastChild, role.role, pastOf(role.role)?.tenures, win);
    },
    open: null,
    key: (role) => `role/${role.role}`,
    empty: () => "No role matches.",
  });
  list.scroll.addEventListener("click", (event) => {
    const who = event.target.closest(".who");
    if (who) open("role", who.textContent);
  });
  const win = new Window(() => {
    list.draw();
    shown.style.marginRight = `${list.bar}px`;
    axis(shown, win);
    range();
    legend(meaning);
  });
  const all = () => Math.min(Date.now() - 10_000, ...[...list.seen()].flatMap(([, role]) => (model.history.get(role.role)?.tenures ?? []).slice(0, 1).map((tenure) => Date.parse(tenure.began))));
  const range = buttons(document.querySelector("#timeline .zoom"), win, all);
  steer(holder("timeline"), win, all);
  const meaning = el("div", "legend", [], { "data-item": "legend" });
  holder("timeline").append(meaning);
  list.win = win;
  return list;
}

const lists = {};
let shown = "roles";

/** Makes the views; `opener(kind, name)` shows details. */
export function start(opener) {
  open = opener;
  Object.assign(lists, {
    roles: roleList(), nodes: nodeList(), timeline: laneList(), events: eventList(),
    audit: auditList(), tasks: taskList(holder("tasks"), (task) => open("task", task.id)), alerts: alertList(),
  });
  for (const kind of Object.keys(KINDS)) by("event-kinds").append(chip(kind, () => toggleKind(kind)));
}

function chip(text, act) {
  const made = el("button", "", text, { type: "button", "aria-pressed": "false", "data-chip": text });
  made.addEventListener("click", act);
  return made;
}

function toggleKind(kind) {
  if (!wanted.kinds.delete(kind)) wanted.kinds.add(kind);
  for (const made of by("event-kinds").children) made.setAttribute("aria-pressed", String(wanted.kinds.has(made.dataset.chip)));
  draw("events");
}

/** The states of roles with their counts; pressing one narrows the list to it. */
function stateChips() {
  const counts = roleCounts();
  const states = ["led", "silent", "vacant", "paused", "unknown"].filter((state) => counts[state] || wanted.state === state);
  const group = by("role-states");
  const text = states.map((state) => `${state} ${counts[state] ?? 0}`).join();
  if (group.dataset.text === text + wanted.state) return;
  group.dataset.text = text + wanted.state;
  group.replaceChildren(...states.map((state) => {
    const made = chip(state, () => { wanted.state = wanted.state === state ? "" : state; stateChips(); draw("roles"); draw("timeline"); });
    made.setAttribute("aria-pressed", String(wanted.state === state));
    made.append(` ${counts[state] ?? 0}`);
    return made;
  }));
}

const ITEMS = { roles, nodes, timeline: roles, events, audit: entries, tasks: () => named(model.tasks), alerts };

/** Shows a view again, if it is in sight. */
export function draw(view) {
  if (view === "roles") {
    stateChips();
    // A store that can forget has tokens of sixteen digits.
    const long = [...model.roles.values()].some((role) => role.token > 1e7);
    holder("roles").style.setProperty("--token", long ? "132px" : "");
  }
  if (view === shown) lists[view].show(ITEMS[view]());
}

export function drawAll() {
  Object.keys(lists).forEach(draw);
}

/** Brings a view into sight. */
export function show(view) {
  shown = view;
  draw(view);
  if (view === "timeline") lists.timeline.win.redraw();
}

export const focus = () => lists[shown].scroll.focus();
export const choose = (key) => Object.values(lists).forEach((list) => list.choose(key));

/** Lets the bars and durations in sight go on. */
export function tick() {
  const fills = { roles: fillRole, nodes: fillNode, tasks: fillTask };
  for (const [row, item] of lists[shown].seen()) fills[shown]?.(row, item);
  if (shown === "timeline" && lists.timeline.win.end === null) lists.timeline.win.redraw();
}
