// The cluster as this page knows it. Everything is loaded once; then events say what to look at again, and what events
// do not tell is looked at now and then. Views listen to it.

import { colour } from "./dom.js";
import { get, stream, Lost, Refused } from "./api.js";

const EVENTS_KEPT = 2000;
/** More roles than this are looked at less often. */
const MANY = 500;
/** So many changed roles are asked for one by one; with more, all are loaded. */
const FEW = 16;
/** A history that could not be read is asked for again after so long: without its store an agent refuses at once. */
const AGAIN = 2000;

export const model = {
  cluster: null,
  /** When the agent looked at the store last, by this page's clock. */
  seenAt: 0,
  roles: new Map(),
  names: [],
  nodes: new Map(),
  events: [],
  audit: null,
  tasks: null,
  alerts: null,
  history: new Map(),
  /** Since when the agent does not answer; 0 while it does. */
  lostSince: 0,
};

const listeners = [];
/** Calls `heard` with what changed: cluster, roles, nodes, events, audit, tasks, alerts, history, link. */
export const listen = (heard) => listeners.push(heard);
const tell = (what) => listeners.forEach((heard) => heard(what));

const now = () => performance.now();
const opened = Date.now();
let lastId = "";
let loaded = 0;
const dirty = new Set();

/** How much of the lease of a node is left, as far as its last beat is known. */
export function leaseLeft(name) {
  const node = model.nodes.get(name);
  if (!node || node.beatAt === undefined || !node.ttl_ms || !["live", "silent"].includes(node.state)) return NaN;
  const until = model.lostSince ? model.lostSince : now();
  // With very many roles the agent looks rarely: a live node has beaten since, but when is not known.
  if (node.state === "live" && until - model.seenAt > node.ttl_ms / 2) return NaN;
  return node.ttl_ms - (until - node.beatAt);
}

/** Begins, and never ends. */
export function start() {
  follow();
  every(() => Math.min(1000, Math.max(300, (model.cluster?.ttl_ms ?? 5000) / 5)), lookAtNodes);
  every(() => 1000, lookAtRoles);
  setInterval(age, 250);
  every(() => 5000, lookAtTheRest);
}

/** Looks at once. */
export const lookNow = () => { loaded = 0; lookAtNodes().catch(lost); };

async function every(pause, look) {
  for (;;) {
    try {
      await look();
    } catch (error) {
      lost(error);
    }
    await new Promise((done) => setTimeout(done, document.hidden ? pause() * 3 : pause()));
  }
}

function lost(error) {
  // An agent that says no is there.
  if (!(error instanceof Lost)) return console.warn(error);
  if (!model.lostSince) {
    model.lostSince = now();
    model.lostAt = Date.now();
    tell("link");
  }
}

function found() {
  if (!model.lostSince) return;
  model.lostSince = 0;
  // Whatever happened meanwhile was not seen.
  loaded = 0;
  outdate();
  tell("link");
  tell("history");
}

async function lookAtNodes() {
  const cluster = await get("/v1/cluster");
  const nodes = await pages("/v1/nodes?limit=1000&named=0", "nodes");
  const at = now() - (cluster.seen_ms_ago ?? 0);
  model.cluster = cluster;
  model.seenAt = at;
  model.nodes = new Map(nodes.map((node) => [node.node, { ...node, beatAt: now() - (node.last_beat_ms_ago ?? NaN) }]));
  [...model.nodes.keys()].sort().forEach(colour);
  found();
  tell("cluster");
  tell("nodes");
}

async function lookAtRoles() {
  if (model.lostSince) return;
  const pause = model.roles.size > MANY ? 15_000 : 2000;
  const counted = Object.values(model.cluster?.roles ?? {}).reduce((a, b) => a + b, 0);
  if (!loaded || now() - loaded > pause || dirty.size > FEW || counted !== model.names.length) {
    dirty.clear();
    loaded = now();
    const roles = await pages("/v1/roles?limit=1000", "roles");
    model.roles = new Map(roles.map((role) => [role.role, received(role)]));
    model.names = roles.map((role) => role.role);
    tell("roles");
  }
  await lookAtDirty();
}

const received = (role) => ({ ...role, beatAt: now() - (role.last_beat_ms_ago ?? NaN) });

/** How long ago the leader of a role beat last, as the role or its node told it. */
function silence(role) {
  const finite = (at) => (Number.isFinite(at) ? at : -Infinity);
  const beat = Math.max(finite(role.beatAt), finite(model.nodes.get(role.leader)?.beatAt));
  return Number.isFinite(beat) ? now() - beat : NaN;
}

/** A row is as old as its beat: past a lease no lease vouches for a leader or a node, whether or not the agent answers. */
function age() {
  ageNodes();
  let aged = 0;
  for (const [name, role] of model.roles) {
    const silent = role.state === "led" ? silence(role) : NaN;
    if (!(silent > role.ttl_ms)) continue;
    const { leader: last_leader } = role;
    model.roles.set(name, { ...role, state: "unknown", leader: null, address: null, last_leader, knownUntil: Date.now() - silent });
    aged++;
  }
  if (!aged) return;
  loaded = 0;
  tell("roles");
}

function ageNodes() {
  const past = [...model.nodes.values()].filter((node) => node.state === "live" && now() - node.beatAt > node.ttl_ms);
  for (const node of past) model.nodes.set(node.node, { ...node, state: "unknown", leads: 0 });
  if (past.length) tell("nodes");
}

/** How many roles there are in each state. */
export function roleCounts() {
  if (!model.roles.size) return model.cluster?.roles ?? {};
  const counts = {};
  for (const role of model.roles.values()) counts[role.state] = (counts[role.state] ?? 0) + 1;
  return counts;
}

async function lookAtDirty() {
  const names = [...dirty];
  dirty.clear();
  await Promise.all(names.map(async (name) => {
    try {
      const role = await get(`/v1/roles/${encodeURIComponent(name)}`);
      if (!model.roles.has(name)) loaded = 0;
      model.roles.set(name, received(role));
    } catch (error) {
      if (error instanceof Lost) throw error;
      loaded = 0;
    }
  }));
  if (names.length) tell("roles");
}

async function pages(path, key) {
  const all = [];
  for (let after = ""; ;) {
    const page = await get(`${path}${after}`);
    all.push(...page[key]);
    if (!page.next) return all;
    after = `&after=${encodeURIComponent(page.next)}`;
  }
}

async function lookAtTheRest() {
  if (model.lostSince) return;
  // First what the agent knows without its store.
  model.alerts = (await get("/v1/alerts")).alerts;
  tell("alerts");
  model.audit = (await get("/v1/audit")).entries.reverse();
  tell("audit");
  await lookAtTasks();
}

let looking = 0;
async function lookAtTasks() {
  clearTimeout(looking);
  looking = 0;
  model.tasks = await pages("/v1/tasks?limit=1000", "tasks");
  tell("tasks");
}

/** Looks at the audit trail now, after something was done. */
export const lookAtAudit = () => lookAtTheRest().catch(lost);

/** The history of a role, or of all, has to be read again. What was read is shown until then. */
function outdate(role) {
  for (const past of role ? [model.history.get(role)] : model.history.values()) if (past) past.outdated = true;
}

const asking = new Set();
let reads = 0;
/** The past tenures of a role, as they were read last. If they are not here, or not up to date, they are asked for, and told as history. */
export function pastOf(role) {
  const past = model.history.get(role);
  if ((!past || past.outdated) && !asking.has(role) && !model.lostSince && asking.size < 6) {
    asking.add(role);
    const asked = () => { asking.delete(role); tell("history"); };
    get(`/v1/history?role=${encodeURIComponent(role)}`)
      .then((answer) => model.history.set(role, { tenures: answer.tenures, audit: answer.audit, read: ++reads }))
      .then(asked, (error) => { lost(error); setTimeout(asked, AGAIN); });
  }
  return past;
}

/** Follows the events for ever. */
async function follow() {
  for (let pause = 500; ;) {
    try {
      await stream(lastId, () => { pause = 500; }, heard);
    } catch (error) {
      if (!(error instanceof Refused)) lost(new Lost(String(error)));
    }
    await new Promise((done) => setTimeout(done, pause));
    pause = Math.min(5000, pause * 2);
    if (model.lostSince) lookAtNodes().catch(lost);
  }
}

function heard(id, event) {
  lastId = id;
  if (event.event === "missed") {
    loaded = 0;
    outdate();
    return tell("history");
  }
  model.events.push({ ...event, id, subject: event.task ?? event.role ?? event.alert ?? event.node ?? "" });
  if (model.events.length > EVENTS_KEPT) model.events.splice(0, model.events.length - EVENTS_KEPT);
  // What happened before the page was opened is in what it loads.
  if (Date.parse(event.at) < opened - 5000) return tell("events");
  if (event.role && event.scope === "cluster") {
    dirty.add(event.role);
    lookSoon();
    // History is written a moment after the fact.
    for (const later of [400, 2500, 10000, 30000]) setTimeout(() => { outdate(event.role); tell("history"); }, later);
  }
  // The agent reads ledgers once a second at most.
  if (event.task && model.tasks && !looking) looking = setTimeout(() => lookAtTasks().catch(lost), 1000);
  if (event.event.startsWith("alert-")) lookAtTheRest().catch(lost);
  if (event.event.startsWith("node-")) { loaded = 0; lookSoon(); }
  tell("events");
}

let soon = 0;
function lookSoon() {
  if (!soon) soon = setTimeout(() => { soon = 0; lookAtRoles().catch(lost); lookAtNodes().catch(lost); }, 60);
}
