// Scheduled tasks: a row for each with its last ticks as marks, and everything about the one that was chosen.

import { el, say, pill, clock, span } from "./dom.js";
import { List } from "./list.js";
import { model } from "./model.js";
import { absent, gate, reasons, button, fact, section, text } from "./detail.js";
import { ask } from "./dialog.js";

/** A mark for each state, so that nothing is told by colour alone. */
const MARKS = {
  succeeded: ["●", "good"], running: ["▶", "good"], failed: ["✕", "bad"], "timed-out": ["◷", "bad"],
  missed: ["○", "bad"], interrupted: ["!", "warn"], cancelled: ["■", "warn"], skipped: ["–", ""],
};
const SHOWN = 20;

const at = (time) => clock(Date.parse(time));
const many = (run) => (run.count > 1 ? `${run.count} ticks from ${at(run.tick)} to ${at(run.to)}` : at(run.tick));
const took = (run) => (run.took_ms === null ? "" : ` after ${span(run.took_ms)}`);

/** A run in words. */
function words(run) {
  const exit = run.exit ? `, exit ${run.exit}` : "";
  const why = run.why && !run.why.endsWith(`code ${run.exit}`) ? `: ${run.why}` : "";
  return `${run.state}${took(run)} on ${run.node}, token ${run.token}${exit}${why}`;
}

/** How many of each state, in words. */
function summary(runs) {
  const counts = new Map();
  runs.forEach((run) => counts.set(run.state, (counts.get(run.state) ?? 0) + run.count));
  return [...counts].map(([state, count]) => `${count} ${state}`).join(", ") || "nothing yet";
}

/** Shows the last ticks, the newest first; it stands at the right. */
function strip(shown, runs) {
  const last = runs.slice(-SHOWN);
  const told = last.map((run) => `${run.tick} ${run.state} ${run.count}`).join();
  if (shown.dataset.told === told) return;
  shown.dataset.told = told;
  shown.setAttribute("aria-label", `Last ticks: ${summary(last)}`);
  shown.replaceChildren(...last.toReversed().map((run) => {
    const [mark, tone] = MARKS[run.state] ?? ["?", ""];
    return el("i", `mark ${tone}`, mark, { title: `${many(run)}: ${words(run)}`, "data-state": run.state });
  }));
}

const makeStrip = () => el("span", "strip", [], { role: "img", "data-item": "task-strip" });
const place = (task) => task.node ?? task.role ?? "";
const when = (task) => (task.zone === "UTC" ? task.when : `${task.when} ${task.zone}`);

function next(task) {
  if (!task.next) return "—";
  const left = Date.parse(task.next) - Date.now();
  // Parts of a second only flicker.
  return left < 1000 ? "now" : `in ${left < 60_000 ? `${Math.floor(left / 1000)} s` : span(left)}`;
}

/** Shows a task in a row. */
export function fill(row, task) {
  const [name, state, runsOn, rule, due, last, failed] = row.children;
  say(name, task.task);
  if (state.textContent !== task.state) state.replaceChildren(pill(task.state));
  say(runsOn, place(task));
  say(rule, when(task));
  say(due, next(task));
  strip(last, task.runs);
  const { failures, missed } = task.totals;
  say(failed, failures + missed ? `${failures} / ${missed}` : "");
}

/** The list of tasks; `open(task)` shows one. */
export function taskList(holder, open) {
  return new List(holder, {
    label: "Tasks",
    head: [["Task"], ["State"], ["Runs on", "wide"], ["When", "wide"], ["Next"], ["Last ticks", "right"], ["Failed / missed", "right wide"]],
    make: (row) => {
      row.dataset.item = "task";
      row.append(el("span", "name"), el("span"), el("span", "wide"), el("span", "wide faint"), el("span", "num"), makeStrip(), el("span", "num right wide"));
    },
    fill,
    open,
    key: (task) => `task/${task.id}`,
    empty: () => (model.tasks?.length ? "No task is like that." : model.tasks ? "No task is scheduled. Add a [[task]] with a command and a cron to the configuration of an agent; its role's leader runs it." : "Looking…"),
  });
}

/** Everything about the chosen task. */
export function taskParts(id) {
  const facts = el("dl", "facts");
  const [state, due, rule, runsOn, owed, totals] = [["State", "task-state"], ["Next tick", "task-next"], ["When", "task-when"], ["Runs on", "task-place"], ["Still owed", "task-owed"], ["All in all", "task-totals"]].map(([title, item]) => fact(facts, title, item));
  const note = el("p", "note", [], { "data-item": "task-note" });
  const name = () => model.tasks?.find((task) => task.id === id)?.task ?? id;
  const acts = {
    trigger: button("trigger", "Run now…", () => ask("trigger", name()), "primary"),
    pause: button("task-pause", "Pause…", () => ask("pause-task", name())),
    resume: button("task-resume", "Resume…", () => ask("resume-task", name())),
  };
  const why = reasons();
  const shown = makeStrip();
  const runs = el("ul", "", [], { "data-item": "task-runs" });
  const line = (run) => el("li", "", [el("span", "faint", `${many(run)} `), el("b", "", run.trigger ? "triggered, " : ""), words(run)]);
  return {
    all: [facts, note, el("div", "buttons", Object.values(acts)), why, section("Last ticks", shown, runs)],
    draw() {
      const task = model.tasks?.find((one) => one.id === id);
      text(state, task ? pill(task.state) : "there is no such task");
      if (!task) return gate(why, ...absent(acts));
      text(rule, when(task));
      text(runsOn, task.node ? `${task.node}, as every node` : `the leader of ${task.role}`);
      text(owed, String(task.owed));
      const { runs: all, failures, interrupted, late, missed, skipped } = task.totals;
      text(totals, `${all} ${all === 1 ? "run" : "runs"}, ${failures} failed, ${interrupted} interrupted, ${late} late, ${missed} missed, ${skipped} skipped`);
      note.hidden = !task.paused;
      if (task.paused) text(note, `Paused by ${task.paused.by}${task.paused.why ? `: ${task.paused.why}` : ""}`);
      acts.pause.hidden = !!task.paused;
      acts.resume.hidden = !task.paused;
      gate(why, ...Object.values(acts).map((made) => [made]));
      strip(shown, task.runs);
      text(runs, ...(task.runs.length ? task.runs.toReversed().map(line) : [el("p", "faint", "nothing has run yet")]));
      this.tick();
    },
    tick() {
      const task = model.tasks?.find((one) => one.id === id);
      if (task) text(due, task.next ? `${next(task)}, ${at(task.next)}` : "none");
    },
  };
}
