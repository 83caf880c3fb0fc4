// Acting: always with a question first, and with a reason.

import { act } from "./api.js";
import { by, el, toast } from "./dom.js";
import { model, lookNow, lookAtAudit } from "./model.js";

const role = (name) => `/v1/roles/${encodeURIComponent(name)}`;
const alert = (name) => `/v1/alerts/${encodeURIComponent(name)}`;
const node = (name) => `/v1/nodes/${encodeURIComponent(name)}`;
const task = (name) => `/v1/tasks/${encodeURIComponent(name)}`;

/** What is taken back has no body: why stands behind the question mark. */
const takeBack = (path, body) => act("DELETE", `${path}?${new URLSearchParams(body)}`);

const ACTS = {
  transfer: {
    title: (name) => `Transfer ${name}`, yes: "Transfer", to: true,
    text: (name) => `${model.roles.get(name)?.leader ?? "The leader"} stops its work, then the node you choose leads.`,
    send: (name, body) => act("POST", `${role(name)}/transfer`, body),
  },
  "step-down": {
    title: (name) => `Make the leader of ${name} step down`, yes: "Step down",
    text: (name) => `${model.roles.get(name)?.leader ?? "The leader"} stops its work, then the next candidate leads.`,
    send: (name, body) => act("POST", `${role(name)}/step-down`, body),
  },
  pause: {
    title: (name) => `Pause ${name}`, yes: "Pause",
    text: () => "No node leads it until it is resumed: its work is suspended.",
    send: (name, body) => act("POST", `${role(name)}/pause`, body),
  },
  resume: {
    title: (name) => `Resume ${name}`, yes: "Resume",
    text: () => "Nodes may lead it again.",
    send: (name, body) => act("POST", `${role(name)}/resume`, body),
  },
  drain: {
    title: (name) => `Drain ${name}`, yes: "Drain",
    text: () => "It gives up its roles and claims none.",
    send: (name, body) => act("POST", `${node(name)}/drain`, body),
  },
  acknowledge: {
    title: (name) => `Acknowledge ${name}`, yes: "Acknowledge",
    text: () => "No further notifications are sent while it fires.",
    send: (name, body) => act("POST", `${alert(name)}/acknowledge`, body),
  },
  resolve: {
    title: (name) => `Resolve ${name}`, yes: "Resolve",
    text: () => "Its recipients are notified that it is resolved. It stays quiet until its condition has been false once.",
    send: (name, body) => act("POST", `${alert(name)}/resolve`, body),
  },
  silence: {
    title: (name) => `Silence ${name}`, yes: "Silence", choice: ["For", "for", ["1h", "4h", "1d", "7d"]],
    text: () => "No notifications are sent for this time.",
    send: (name, body) => act("POST", `${alert(name)}/silence`, body),
  },
  unsilence: {
    title: (name) => `End the silence of ${name}`, yes: "End it",
    text: () => "Notifications are sent again.",
    send: (name, body) => takeBack(`${alert(name)}/silence`, body),
  },
  undrain: {
    title: (name) => `End the drain of ${name}`, yes: "End the drain",
    text: () => "It claims roles again.",
    send: (name, body) => takeBack(`${node(name)}/drain`, body),
  },
  trigger: {
    title: (name) => `Run ${name} now`, yes: "Run",
    text: () => "It runs once, beside its schedule, also while it is paused.",
    send: (name, body) => act("POST", `${task(name)}/trigger`, body),
  },
  "pause-task": {
    title: (name) => `Pause ${name}`, yes: "Pause",
    text: () => "Its ticks are skipped until it is resumed; what runs goes on.",
    send: (name, body) => act("POST", `${task(name)}/pause`, body),
  },
  "resume-task": {
    title: (name) => `Resume ${name}`, yes: "Resume",
    text: () => "It runs again with its next tick.",
    send: (name, body) => act("POST", `${task(name)}/resume`, body),
  },
};

/** Asks whether, and why; then asks the agent. */
export function ask(what, name) {
  const action = ACTS[what];
  by("confirm-title").textContent = action.title(name);
  by("confirm-text").textContent = action.text(name);
  by("confirm-yes").textContent = action.yes;
  const [words, , options] = choiceOf(action, name);
  by("confirm-to-label").hidden = !options.length && !action.to;
  by("confirm-to-name").textContent = words;
  by("confirm-to").replaceChildren(...options.map((to) => el("option", "", to, { value: to })));
  by("confirm-why").value = "";
  by("confirm-by").value = localStorage.getItem("tenure-by") ?? "";
  fault("");
  by("confirm-yes").disabled = false;
  by("confirm-form").onsubmit = (event) => {
    event.preventDefault();
    confirmed(action, name);
  };
  by("confirm").showModal();
  by(action.to ? "confirm-to" : "confirm-why").focus();
}

/** What is to be chosen: a word for it, what the agent calls it, and what there is. */
const choiceOf = (action, name) => action.choice ?? ["To", "to", action.to ? model.roles.get(name)?.candidates ?? [] : []];

async function confirmed(action, name) {
  const who = by("confirm-by").value.trim();
  localStorage.setItem("tenure-by", who);
  const body = { why: by("confirm-why").value.trim() };
  if (who) body.by = who;
  if (action.to || action.choice) body[choiceOf(action, name)[1]] = by("confirm-to").value;
  if (!body.why) return fault("Enter a reason: it is kept in the audit trail.");
  by("confirm-yes").disabled = true;
  by("confirm-yes").textContent = "Asking…";
  try {
    const answer = await action.send(name, body);
    by("confirm").close();
    toast(answer?.message ?? "Done");
  } catch (error) {
    fault(error.message || "the agent does not answer");
  }
  by("confirm-yes").disabled = false;
  by("confirm-yes").textContent = action.yes;
  lookNow();
  lookAtAudit();
}

function fault(text) {
  by("confirm-error").textContent = text;
  by("confirm-error").hidden = !text;
}

export function start() {
  by("confirm-no").addEventListener("click", () => by("confirm").close());
}
