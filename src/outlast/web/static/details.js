/** What is known of a task beside its output: its processes, its events, how it was judged, its environment, its turns. */

import { h } from "./dom.js";
import { bytes, clock, count, duration, elapsed, ending, isOver, lookOf, moment, percent } from "./format.js";
import { reasons } from "./approvals.js";
import { titleOf } from "./list.js";

const STATES = { R: "running", S: "sleeping", D: "waiting for disk", T: "stopped", t: "traced", Z: "zombie", I: "idle" };

const NUMBERS = new Set(["PID", "CPU", "Memory"]);

/** The process tree, with what each uses. @param {any[]} processes */
export function processTree(processes) {
  if (!processes.length) return h("p", { class: "dim" }, "No process of it runs.");
  const pids = new Set(processes.map((one) => one.pid));
  const below = Map.groupBy(processes, (one) => (pids.has(one.parent) && one.parent !== one.pid ? one.parent : 0));
  const rows = [];
  const place = (one, depth) => {
    const indent = h("td", { class: "command" }, h("code", {}, one.command || one.name));
    indent.style.setProperty("--depth", String(Math.min(depth, 12)));
    rows.push(h("tr", {}, h("td", { class: "number" }, one.pid), indent, h("td", { class: "number" }, percent(one.cpu)), h("td", { class: "number" }, bytes(one.memory)), h("td", {}, STATES[one.state] ?? one.state)));
    if (depth < 100) (below.get(one.pid) ?? []).forEach((child) => place(child, depth + 1));
  };
  (below.get(0) ?? []).forEach((one) => place(one, 0));
  return h("table", { class: "processes" }, h("caption", { class: "unseen" }, "Processes"),
    h("thead", {}, h("tr", {}, ["PID", "Command", "CPU", "Memory", "State"].map((name) => h("th", { scope: "col", class: NUMBERS.has(name) && "number" }, name)))), h("tbody", {}, rows));
}

/** What happened to it. @param {any[]} events */
export function eventList(events) {
  if (!events.length) return h("p", { class: "dim" }, "No events are known.");
  return h("ol", { class: "events" }, events.map(({ at, type, ...facts }) => {
    const known = Object.entries(facts).filter(([, value]) => value !== null && value !== "");
    return h("li", {}, h("time", {}, clock(at, true)), h("b", {}, type), h("span", { class: "facts" }, known.map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`).join(" · ")));
  }));
}

/** Names and values. @param {[string, any][]} pairs those without a value are left out */
export const facts = (pairs) => h("dl", { class: "facts" }, pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

/** How it was judged and what kept it in. @param {any} judged @param {any} task @param {string[]} heldBack */
export function judgement(judged, task, heldBack) {
  return h("section", {}, h("h3", {}, "How it was judged"),
    facts([
      ["Policy", judged?.policy], ["Verdict", judged && h("span", { class: `verdict ${judged.verdict}` }, judged.verdict)], ["Approved", judged?.approved && "yes, a person was asked"],
      ["Sandbox", task.sandbox || "none"], ["Held back", heldBack.length ? h("code", {}, heldBack.join(" ")) : "nothing"],
    ]),
    judged && reasons(judged.reasons));
}

/** @param {Record<string, string>|null} environment none: it is over, or another user's */
export function environmentTable(environment) {
  if (!environment) return h("section", {}, h("h3", {}, "Environment"), h("p", { class: "dim" }, "It can be seen while the task runs."));
  const names = Object.keys(environment).sort();
  const table = h("table", { class: "environment" }, h("caption", { class: "unseen" }, "Environment"), h("tbody", {}, names.map((name) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, environment[name])))));
  return h("section", {}, h("h3", {}, `Environment (${count(names.length)})`), h("p", { class: "dim" }, "Secrets are not shown."), table);
}

/** What there is to know. @param {any} task @param {number} now */
export function about(task, now) {
  return facts([
    ["Id", h("code", {}, task.task_id)], ["Name", task.name], ["Description", task.description], ["Directory", h("code", {}, task.cwd)], ["Session", task.session],
    ["Category", task.category], ["Executor", task.executor], ["Shell", task.shell], ["Started", moment(task.started_at)], ["Ended", moment(task.ended_at)],
    ["Took", duration(elapsed(task, now)) + (task.cpu_ms ? `, ${duration(task.cpu_ms)} of CPU` : "")], ["Ending", ending(task)], ["Process", task.pid && `${task.pid} (group ${task.pgid})`],
    ["Limit", task.limit && `${task.limit} s`], ["Resources", task.resources], ["Still alive", task.children?.length ? task.children.join(", ") : ""],
    ["Output file", h("code", {}, task.output_file)],
  ]);
}

/** What an agent was asked, said and did. @param {any} agent */
export function turns(agent) {
  const turn = ({ role, text }) => h("article", { class: `turn ${role}` }, h("header", {}, h("b", {}, role)), h("div", { class: "text" }, text));
  const isSaid = !agent.result || agent.turns.at(-1)?.text === agent.result;
  return h("div", { class: "turns" }, agent.turns.map(turn), !isSaid && turn({ role: "result", text: agent.result }));
}

/** The tasks that were started inside of one. @param {any[]} tasks @param {number} now @param {(id: string) => void} open */
export function taskLinks(tasks, now, open) {
  if (!tasks.length) return h("p", { class: "dim" }, "It started no tasks.");
  return h("ul", { class: "links" }, tasks.map((task) => {
    const look = lookOf(task.status);
    return h("li", {}, h("button", { type: "button", class: `link is-${task.status}`, on: { click: () => open(task.task_id) } }, h("span", { class: "status" }, h("span", { "aria-hidden": "true" }, look.icon), look.word),
      h("span", { class: "code" }, titleOf(task)[0]), h("span", { class: "dim" }, isOver(task) ? ending(task) : duration(elapsed(task, now)))));
  }));
}
