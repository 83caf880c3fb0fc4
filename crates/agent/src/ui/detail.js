// Everything about the role, node or alert that was chosen, and what can be done about it. Other kinds bring their own parts.

import { by, el, pill, bar, lease, clock, span } from "./dom.js";
import { model, leaseLeft, pastOf } from "./model.js";
import { Window, buttons, steer, axis, lane, measured } from "./timeline.js";
import { ask } from "./dialog.js";

let chosen = null;
let parts = null;
let closed = () => {};

/** What makes the parts of each kind, from a name. */
export const kinds = { role: roleParts, node: nodeParts, alert: alertParts };

export const start = (whenClosed) => { closed = whenClosed; };

/** Shows a role or a node; nothing if there is no name. */
export function show(kind, name) {
  chosen = name ? { kind, name } : null;
  parts = null;
  draw();
}

export function draw() {
  const holder = by("detail");
  holder.hidden = !chosen;
  if (!chosen) return;
  if (!parts) {
    parts = (kinds[chosen.kind] ?? nodeParts)(chosen.name);
    holder.replaceChildren(header(), ...parts.all);
  }
  parts.draw();
}

/** Lets bars and durations go on. */
export const tick = () => { if (chosen) parts?.tick(); };

function header() {
  const close = el("button", "quiet", "✕", { type: "button", "aria-label": "Close", "data-item": "detail-close" });
  close.addEventListener("click", () => closed());
  return el("header", "", [el("h2", "", chosen.name), close]);
}

export function fact(list, name, item) {
  const value = el("dd", "", [], item ? { "data-item": item } : {});
  list.append(el("dt", "", name), value);
  return value;
}

export function text(value, ...kids) {
  const wantedText = kids.map((kid) => (typeof kid === "string" ? kid : kid.textContent)).join("\u0001");
  if (value.dataset.told === wantedText) return;
  value.dataset.told = wantedText;
  value.replaceChildren(...kids);
}

export function button(item, words, act, cls = "") {
  const made = el("button", cls, words, { type: "button", "data-item": item });
  made.addEventListener("click", act);
  return made;
}

/** Why nothing can be done about something: beside the buttons, and on each of them. */
export const reasons = () => el("p", "faint", [], { "data-item": "act-why" });

/** Lets buttons be pressed, or says why not: each button with its own reason, if it has one. */
export function gate(shown, ...pairs) {
  const refused = model.cluster?.may_not_act;
  for (const [made, why] of pairs) {
    made.disabled = !!(refused || why);
    made.title = refused || why || "";
  }
  const own = pairs.filter(([made, why]) => why && !made.hidden).map(([made, why]) => `${made.textContent.replace("…", "")}: ${why}`);
  text(shown, refused ? `You may not act here: ${refused}.` : own.join("; "));
  shown.hidden = !shown.textContent;
}

/** The buttons of what is not there, or not known yet. */
export const absent = (acts) => Object.values(acts).map((made) => [made, "it is not there"]);

function roleParts(name) {
  const facts = el("dl", "facts");
  const [state, leader, token, duration] = [["State", "role-state"], ["Leader", "role-leader"], ["Token", "role-token"], ["Leads for", "role-duration"]].map(([title, item]) => fact(facts, title, item));
  const left = fact(facts, "Lease left", "role-lease").appendChild(bar());
  const note = el("p", "note", [], { "data-item": "role-note" });
  const candidates = el("ol", "", [], { "data-item": "candidates" });
  const entries = el("ul", "", [], { "data-item": "role-audit" });
  const acts = {
    transfer: button("transfer", "Transfer…", () => ask("transfer", name), "primary"),
    step: button("step-down", "Step down…", () => ask("step-down", name)),
    pause: button("pause", "Pause…", () => ask("pause", name)),
    resume: button("resume", "Resume…", () => ask("resume", name)),
  };
  const past = pastParts(name);
  const why = reasons();
  const all = [
    facts, note, el("div", "buttons", Object.values(acts)), why,
    section("Candidates", candidates), past.holder, section("Audit", entries),
  ];
  return {
    all,
    draw() {
      const role = model.roles.get(name);
      text(state, role ? pill(role.state) : "no such role");
      if (!role) return gate(why, ...absent(acts));
      text(leader, role.leader ?? (role.last_leader ? `unknown; ${role.last_leader} when the store was last reached` : role.state === "unknown" ? "unknown; none when the store was last reached" : "no leader"), ...(role.address ? [el("span", "faint", ` at ${role.address}`)] : []));
      text(token, `${role.token || "—"}${role.reason ? ` (${role.reason})` : ""}`);
      const notes = [
        role.paused && `Paused by ${role.paused.by}${role.paused.why ? `: ${role.paused.why}` : ""}`,
        role.pinned && `Pinned to ${role.pinned}`, role.transfer && `Being transferred to ${role.transfer}`,
      ].filter(Boolean);
      note.hidden = !notes.length;
      text(note, notes.join("; "));
      text(candidates, ...(role.candidates.length ? role.candidates.map((node) => el("li", "", node)) : [el("p", "faint", "no other candidates")]));
      const known = pastOf(name);
      const done = (known?.audit ?? []).toReversed();
      text(entries, ...(done.length ? done.map(entry) : [el("p", "faint", known ? "no entries" : "not loaded yet")]));
      acts.pause.hidden = !!role.paused;
      acts.resume.hidden = !role.paused;
      const leaderless = role.paused ? "it is paused" : role.state === "unknown" ? "its leader is unknown" : !role.leader && "it has no leader";
      gate(why, [acts.transfer, leaderless || (!role.candidates.length && "it has no other candidate")], [acts.step, leaderless], [acts.pause], [acts.resume]);
      this.tick();
      past.draw();
    },
    tick() {
      const role = model.roles.get(name);
      if (!role) return;
      const when = role.since ? `${span(Date.now() - Date.parse(role.since))}, since ${clock(Date.parse(role.since))}` : "—";
      text(duration, role.leader ? when : role.state === "unknown" ? "unknown" : role.since && role.token ? `no leader for ${when}` : "no leader yet");
      lease(left, role.leader ? leaseLeft(role.leader) : NaN, model.nodes.get(role.leader)?.ttl_ms);
      past.tick();
    },
  };
}

function alertParts(name) {
  const facts = el("dl", "facts");
  const [state, since, condition, hold] = [["State", "alert-state"], ["Since", ""], ["Condition", "alert-condition"], ["For", ""]].map(([title, item]) => fact(facts, title, item));
  const note = el("p", "note", [], { "data-item": "alert-note" });
  const instances = el("ul", "", [], { "data-item": "alert-instances" });
  const told = el("ul", "", [], { "data-item": "alert-notified" });
  const acts = {
    acknowledge: button("acknowledge", "Acknowledge…", () => ask("acknowledge", name), "primary"),
    resolve: button("resolve", "Resolve…", () => ask("resolve", name)),
    silence: button("silence", "Silence…", () => ask("silence", name)),
    unsilence: button("unsilence", "End the silence…", () => ask("unsilence", name)),
  };
  const why = reasons();
  const order = (words, said) => said && `${words} by ${said.by}${said.why ? `: ${said.why}` : ""}`;
  const heard = (one) => el("li", one.error ? "error" : "", `${one.target}: ${one.error ? `${one.error}; tried ${one.attempts === 1 ? "once" : `${one.attempts} times`}${one.given_up ? ", given up" : ""}` : `${one.status}, ${clock(Date.parse(one.at))}`}`);
  return {
    all: [facts, note, el("div", "buttons", Object.values(acts)), why, section("Firing", instances), section("Notifications", told)],
    draw() {
      const alert = model.alerts?.find((one) => one.alert === name);
      text(state, alert ? pill(alert.state) : "no such alert", ...(alert ? [" ", pill(alert.severity)] : []));
      if (!alert) return gate(why, ...absent(acts));
      text(since, alert.since ? clock(Date.parse(alert.since)) : alert.last ? `last until ${clock(Date.parse(alert.last[1]))}` : "—");
      text(condition, el("code", "", alert.condition));
      text(hold, alert.for);
      const until = alert.silenced_until && clock(Date.parse(alert.silenced_until));
      const notes = [order("Acknowledged", alert.acknowledged), order("Resolved", alert.resolved), order(`Silenced until ${until}`, alert.silenced)].filter(Boolean);
      note.hidden = !notes.length;
      text(note, notes.join("; "));
      text(instances, ...(alert.instances.length ? alert.instances.map((one) => el("li", "", `${one.summary}, since ${clock(Date.parse(one.since))}`)) : [el("p", "faint", "nothing")]));
      const none = alert.notify.length ? `none yet; recipients: ${alert.notify.join(", ")}` : "none: no [[notify]] is configured";
      text(told, ...(alert.deliveries.length ? alert.deliveries.map(heard) : [el("p", "faint", none)]));
      acts.silence.hidden = !!alert.silenced;
      acts.unsilence.hidden = !alert.silenced;
      const unless = (...states) => !states.includes(alert.state) && `it is ${alert.state}`;
      gate(why, [acts.acknowledge, unless("firing", "silenced")], [acts.resolve, unless("firing", "acknowledged", "silenced")], [acts.silence], [acts.unsilence]);
    },
    tick() {},
  };
}

export const section = (title, ...kids) => el("section", "", [el("h3", "", title), ...kids]);

function entry(done) {
  return el("li", "", [el("span", "faint", `${clock(Date.parse(done.at))} `), `${done.by}: ${done.act}${done.node ? ` to ${done.node}` : ""}${done.why ? `, ${done.why}` : ""}`]);
}

/** One role's timeline, and its tenures in words. */
function pastParts(name) {
  const scale = el("div", "axis"), shown = el("div", "lane");
  const one = el("div", "one", [scale, shown], { "data-item": "role-timeline" });
  const zoom = el("div", "zoom");
  const words = el("ul", "", [], { "data-item": "tenures" });
  const tenures = () => pastOf(name)?.tenures;
  let fitted = false;
  const all = () => Math.min(Date.now() - 10_000, ...(tenures() ?? []).slice(0, 1).map((tenure) => Date.parse(tenure.began)));
  const redraw = () => { lane(shown, name, tenures(), win); axis(scale, win); range(); };
  const win = new Window(redraw);
  const range = buttons(zoom, win, all);
  steer(one, win, all);
  return {
    holder: el("section", "", [el("h3", "", "Tenures"), one, zoom, words]),
    draw() {
      const known = tenures();
      if (!known) return;
      if (!fitted) { fitted = true; win.fit(all()); } else redraw();
      text(words, ...known.toReversed().slice(0, 50).map(tenureLine));
    },
    tick() { if (win.end === null && tenures()) redraw(); },
  };
}

function tenureLine(tenure) {
  const from = Date.parse(tenure.began), to = tenure.ended ? Date.parse(tenure.ended) : null;
  const held = to ? `for ${span(to - from)}` : tenure.reason ? "" : "goes on";
  return el("li", "", [el("span", "faint", `${clock(from)} `), el("b", "", tenure.node), ` token ${tenure.token}, ${held}${tenure.reason ? ` (${tenure.reason}${measured(tenure)})` : ""}`]);
}

function nodeParts(name) {
  const facts = el("dl", "facts");
  const [state, address, host, version, session, joined, leads, stands, labels] = [["State", "node-state"], ["Address"], ["Host", "node-host"], ["Version", "node-version"], ["Session"], ["Joined"], ["Leads"], ["Candidate for"], ["Labels", "node-labels"]].map(([title, item]) => fact(facts, title, item));
  const left = fact(facts, "Lease left").appendChild(bar());
  const note = el("p", "note");
  const led = el("ul", "", [], { "data-item": "node-roles" });
  const drain = button("drain", "Drain…", () => ask("drain", name));
  const undrain = button("undrain", "End the drain…", () => ask("undrain", name));
  const why = reasons();
  return {
    all: [facts, note, el("div", "buttons", [drain, undrain]), why, section("Leads", led)],
    draw() {
      const node = model.nodes.get(name);
      text(state, node ? pill(node.drained && node.state === "live" ? "drained" : node.state) : "there is no such node");
      if (!node) return gate(why, ...absent([drain, undrain]));
      text(address, node.address ?? "—");
      text(host, node.host ?? "—");
      text(version, node.version ?? "—");
      text(session, node.session);
      text(leads, String(node.leads));
      text(stands, String(node.candidate_for));
      const told = Object.entries(node.labels);
      text(labels, ...(told.length ? told.map(([key, value]) => el("span", "tag", `${key}=${value}`)) : ["none"]));
      note.hidden = !node.drained;
      if (node.drained) text(note, `Drained by ${node.drained.by}${node.drained.why ? `: ${node.drained.why}` : ""}`);
      drain.hidden = !!node.drained;
      undrain.hidden = !node.drained;
      gate(why, [drain], [undrain]);
      const names = model.names.filter((role) => model.roles.get(role)?.leader === name);
      text(led, ...(names.length ? names.slice(0, 200).map((role) => el("li", "", role)) : [el("p", "faint", "nothing")]), ...(names.length > 200 ? [el("li", "faint", `and ${names.length - 200} more`)] : []));
      text(joined, clock(Date.parse(node.joined)));
      this.tick();
    },
    tick() { lease(left, leaseLeft(name), model.nodes.get(name)?.ttl_ms); },
  };
}
