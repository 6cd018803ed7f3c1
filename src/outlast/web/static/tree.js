/**
 * Tasks in the order in which they are shown: filtered, sorted, by session and by tree. Pure.
 * A row is {kind: "session", key, name, tasks, running, isOpen} or {kind: "task", key, task, depth, children, isOpen}.
 */

import { isOver, isWaiting } from "./format.js";

const RANK = { running: 1, pending: 2 };
const rank = (task) => (isWaiting(task) ? 0 : RANK[task.status] ?? 3);
const began = (task) => task.started_at ?? 0;

/** How tasks are compared, by the name of the order. */
export const ORDERS = {
  state: (a, b) => rank(a) - rank(b) || began(b) - began(a),
  newest: (a, b) => began(b) - began(a),
  longest: (a, b) => spent(b) - spent(a),
  cpu: (a, b) => (b.cpu ?? -1) - (a.cpu ?? -1) || began(b) - began(a),
  memory: (a, b) => (b.memory ?? -1) - (a.memory ?? -1) || began(b) - began(a),
  command: (a, b) => a.command.localeCompare(b.command),
};
const spent = (task) => (isOver(task) ? task.elapsed_ms : Date.now() - began(task) * 1000);

/** What the chips show. `attention` is what waits for input. */
export const FILTERS = {
  all: () => true,
  attention: isWaiting,
  running: (task) => task.status === "running",
  pending: (task) => task.status === "pending",
  failed: (task) => task.status === "failed",
  completed: (task) => task.status === "completed",
  killed: (task) => task.status === "killed",
};

const texts = new WeakMap();
const textOf = (task) => {
  if (!texts.has(task)) texts.set(task, [task.task_id, task.command, task.description, task.name, task.session, task.category, task.cwd].join("\n").toLowerCase());
  return texts.get(task);
};

/** Whether a task has every word of a query; `session:x`, `type:x` and `is:x` look at one thing only.
 * @param {string} query @returns {(task: any) => boolean} */
export function matcher(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const tests = words.map((word) => {
    const [, field, value] = /^(session|type|is):(.+)$/.exec(word) ?? [];
    if (field === "session") return (task) => task.session.toLowerCase() === value;
    if (field === "type") return (task) => task.category === value || task.kind === value;
    if (field === "is") return (task) => task.status === value || (value === "done" && task.status === "completed") || (value === "stopped" && task.status === "killed");
    return (task) => textOf(task).includes(word);
  });
  return (task) => tests.every((test) => test(task));
}

/**
 * @param {Iterable<any>} tasks
 * @param {{filter: string, query: string, order: string, grouped: boolean, closed: Set<string>}} look
 */
export function rowsOf(tasks, look) {
  const matches = matcher(look.query);
  const shown = [...tasks].filter((task) => FILTERS[look.filter](task) && matches(task));
  const ids = new Set(shown.map((task) => task.task_id));
  const below = Map.groupBy(shown, (task) => (task.parent && ids.has(task.parent) && task.parent !== task.task_id ? task.parent : ""));
  const placed = new Set();
  const compare = ORDERS[look.order];
  const lead = look.order === "state" ? leaders(shown, below, compare) : (task) => task;
  const sorted = (list) => list.toSorted((a, b) => compare(lead(a), lead(b)));

  const rows = [];
  const place = (task, depth) => {
    if (placed.has(task.task_id)) return; // parents in a circle are nothing that a tree can show twice
    placed.add(task.task_id);
    const children = below.get(task.task_id) ?? [];
    const isOpen = !look.closed.has(task.task_id);
    rows.push({ kind: "task", key: task.task_id, task, depth, children: children.length, isOpen });
    if (isOpen) sorted(children).forEach((child) => place(child, depth + 1));
  };
  const roots = sorted(below.get("") ?? []);
  if (!look.grouped) roots.forEach((task) => place(task, 0));
  // A map keeps the order of insertion: the session of the first task is first.
  else for (const [name, own] of Map.groupBy(roots, (task) => task.session)) {
    const key = `session ${name}`;
    const isOpen = !look.closed.has(key);
    rows.push({ kind: "session", key, name, tasks: own.length, running: own.filter((task) => !isOver(task)).length, isOpen });
    if (isOpen) own.forEach((task) => place(task, 1));
  }
  return { rows, count: shown.length };
}

/** Which task of its tree comes first, for each: what has ended is shown among what runs if something below it runs. */
function leaders(shown, below, compare) {
  const first = new Map();
  const find = (task, above) => {
    if (first.has(task.task_id) || above > 50) return first.get(task.task_id) ?? task;
    const best = (below.get(task.task_id) ?? []).map((child) => find(child, above + 1)).reduce((a, b) => (compare(b, a) < 0 ? b : a), task);
    first.set(task.task_id, best);
    return best;
  };
  return (task) => (below.has(task.task_id) ? find(task, 0) : task);
}
