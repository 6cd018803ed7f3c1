/** The overview's list of tasks: rows by session and tree, kept current, moved through with the keyboard. */

import { drawCurve, makeCurve } from "./curve.js";
import { fill, h, icon, say } from "./dom.js";
import { ago, bytes, doing, duration, elapsed, ending, isOver, isWaiting, lookOf, percent } from "./format.js";
import { rowsOf } from "./tree.js";
import { VirtualList } from "./virtual.js";

const NARROW = 560; // pixels of the list below which a row has two lines
const DEEPEST = 6;
const MANY = 2000; // tasks above which the rows are put in order less often
const REBUILD_MS = 400;
const KEPT = "outlast-closed";

export class TaskList {
  /** @param {import("./state.js").Store} store @param {{open: (id: string) => void, counted: (count: number) => void}} told */
  constructor(store, told) {
    this.store = store;
    this.told = told;
    this.look = { filter: "all", query: "", order: "state", grouped: true, closed: new Set(JSON.parse(localStorage.getItem(KEPT) ?? "[]")) };
    this.current = ""; // the key of the row that the keyboard is at
    this.opened = "";
    this.element = h("div", { class: "list", role: "tree", tabindex: 0, "aria-label": "Tasks", on: { keydown: (event) => this.press(event), click: (event) => this.click(event) } });
    this.isNarrow = false;
    this.virtual = new VirtualList(this.element, {
      height: (row) => (row.kind === "session" ? 34 : this.isNarrow || !isOver(row.task) ? 52 : 32),
      create: (row) => (row.kind === "session" ? makeSession() : makeTask()),
      update: (element, row, index) => this.update(element, row, index),
    });
    new ResizeObserver(() => this.measure()).observe(this.element);
    store.addEventListener("tasks", () => this.rebuildSoon());
    store.addEventListener("usage", () => this.use());
    setInterval(() => document.hidden || this.tick(), 1000);
  }

  measure() {
    const isNarrow = this.element.clientWidth < NARROW;
    if (isNarrow === this.isNarrow) return;
    this.isNarrow = isNarrow;
    this.element.classList.toggle("narrow", isNarrow);
    this.rebuild();
  }

  rebuildSoon() {
    if (this.timer) return;
    this.timer = setTimeout(() => this.rebuild(), this.store.tasks.size > MANY ? REBUILD_MS : 0);
  }

  rebuild() {
    clearTimeout(this.timer);
    this.timer = 0;
    const { rows, count } = rowsOf(this.store.tasks.values(), this.look);
    this.version = this.store.version;
    this.virtual.set(rows);
    this.mark();
    this.told.counted(count);
  }

  /** Change what is shown. @param {Partial<TaskList["look"]>} look */
  show(look) {
    Object.assign(this.look, look);
    this.element.scrollTop = 0;
    this.rebuild();
  }

  use() {
    if (this.version !== this.store.version || this.look.order === "cpu" || this.look.order === "memory") this.rebuildSoon();
    else this.tick(true);
  }

  /** Refresh the rows of what runs. */
  tick(withUsage = false) {
    for (const [key, { element }] of this.virtual.shown) {
      const task = this.store.tasks.get(key);
      if (!task) continue;
      if (withUsage && !isOver(task)) this.paint(element, task);
      this.paintTime(element, task);
    }
  }

  // --- rows ---

  update(element, row, index) {
    element.id = `row-${index}`;
    element.dataset.key = row.key;
    element.setAttribute("aria-level", String(row.kind === "session" ? 1 : row.depth + 1));
    if (row.kind === "session" || row.children) element.setAttribute("aria-expanded", String(row.isOpen));
    else element.removeAttribute("aria-expanded");
    const isCurrent = row.key === this.current;
    element.setAttribute("aria-selected", String(row.key === this.opened));
    element.classList.toggle("current", isCurrent);
    element.classList.toggle("opened", row.key === this.opened);
    if (isCurrent) this.element.setAttribute("aria-activedescendant", element.id);
    if (row.kind === "session") return paintSession(element, row);
    element.style.setProperty("--depth", String(Math.min(row.depth, DEEPEST)));
    element.classList.toggle("has-children", row.children > 0);
    element.classList.toggle("shut", !row.isOpen);
    element.parts.twist.hidden = !row.children;
    this.paint(element, row.task);
    this.paintTime(element, row.task);
  }

  /** @param {any} element @param {any} task */
  paint(element, task) {
    const { parts } = element;
    const look = lookOf(task.status);
    const isWaits = isWaiting(task);
    element.className = element.className.replace(/\bis-\w+/g, "").trim();
    element.classList.add(`is-${task.status}`);
    element.classList.toggle("is-live", !isOver(task));
    element.classList.toggle("is-waiting", isWaits);
    say(parts.icon, look.icon);
    say(parts.word, isWaits ? "Needs input" : look.word);
    say(parts.type, task.kind === "agent" ? "agent" : task.category);
    const [title, more] = titleOf(task);
    say(parts.title, title);
    say(parts.more, more);
    parts.title.classList.toggle("code", title === task.command);
    parts.more.classList.toggle("code", more === task.command);
    say(parts.last, task.status === "running" ? task.last_line ?? "" : ending(task));
    say(parts.activity, isWaits ? "" : doing(task));
    const used = this.store.usage.get(task.task_id);
    parts.usage.hidden = task.status !== "running";
    if (task.status !== "running") return;
    drawCurve(parts.cpuCurve, used?.cpu ?? [], 100);
    drawCurve(parts.memoryCurve, used?.memory ?? [], 1024 * 1024 * 16);
    say(parts.cpu, percent(task.cpu));
    say(parts.memory, bytes(task.memory));
  }

  paintTime(element, task) {
    say(element.parts.time, duration(task.status === "pending" ? (this.store.now - task.started_at) * 1000 : elapsed(task, this.store.now)));
    say(element.parts.when, isOver(task) && task.ended_at ? ago(task.ended_at, this.store.now) : "");
  }

  // --- the keyboard and the mouse ---

  /** Move the cursor. @param {number} by */
  move(by) {
    const { rows } = this.virtual;
    if (!rows.length) return;
    const at = rows.findIndex((row) => row.key === this.current);
    this.go(at < 0 ? 0 : Math.max(0, Math.min(rows.length - 1, at + by)));
  }

  /** @param {number} index */
  go(index) {
    this.current = this.virtual.rows[index].key;
    this.virtual.reveal(index);
    this.mark();
  }

  mark() {
    this.element.removeAttribute("aria-activedescendant");
    this.virtual.draw(true);
  }

  /** @param {string} id */
  setOpened(id) {
    this.opened = id;
    if (id) this.current = id;
    const index = this.virtual.rows.findIndex((row) => row.key === id);
    if (index >= 0) this.virtual.reveal(index);
    this.mark();
  }

  enter() {
    const row = this.virtual.rows.find((one) => one.key === this.current);
    if (row?.kind === "session") this.toggle(row);
    else if (row) this.told.open(row.key);
  }

  toggle(row) {
    const { closed } = this.look;
    if (!closed.delete(row.key)) closed.add(row.key);
    localStorage.setItem(KEPT, JSON.stringify([...closed].filter((key) => key.startsWith("session ")).slice(-100)));
    this.rebuild();
  }

  /** Left and right close and open, as in every tree. @param {boolean} isOpen */
  fold(isOpen) {
    const { rows } = this.virtual;
    const at = rows.findIndex((one) => one.key === this.current);
    const row = rows[at];
    if (!row) return;
    const canFold = row.kind === "session" || row.children;
    if (canFold && row.isOpen !== isOpen) return this.toggle(row);
    if (isOpen) return canFold ? this.move(1) : undefined;
    const level = row.kind === "session" ? 0 : row.depth;
    const above = rows.findLastIndex((one, index) => index < at && (one.kind === "session" ? 0 : one.depth) < level);
    if (above >= 0) this.go(above);
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / 52) - 1);
    const acts = {
      ArrowDown: () => this.move(1), ArrowUp: () => this.move(-1), PageDown: () => this.move(page), PageUp: () => this.move(-page),
      Home: () => this.move(-Infinity), End: () => this.move(Infinity), Enter: () => this.enter(), " ": () => this.enter(),
      ArrowRight: () => this.fold(true), ArrowLeft: () => this.fold(false),
    };
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  }

  /** @param {MouseEvent} event */
  click(event) {
    const target = /** @type {Element} */ (event.target);
    const key = target.closest("[data-key]")?.getAttribute("data-key");
    const row = this.virtual.rows.find((one) => one.key === key);
    if (!row || String(getSelection())) return;
    this.current = row.key;
    if (row.kind === "session" || target.closest(".twist")) this.toggle(row);
    else this.told.open(row.key);
    this.mark();
  }
}

/** What a row says first and second. @param {any} task */
export function titleOf(task) {
  if (task.kind === "agent") {
    const known = task.metadata ?? {};
    const name = known.type ?? "agent";
    return [`${name}: ${task.description || known.prompt || task.command}`, known.progress ?? ""];
  }
  const what = task.description || task.name;
  return what ? [what, task.command] : [task.command, ""];
}

function makeSession() {
  const element = h("div", { class: "row session", role: "treeitem" });
  const parts = { name: h("span", { class: "name" }), count: h("span", { class: "count" }), live: h("span", { class: "live" }) };
  element.append(h("span", { class: "twist" }, icon("down")), parts.name, parts.live, parts.count);
  return Object.assign(element, { parts });
}

function paintSession(element, row) {
  element.classList.toggle("shut", !row.isOpen);
  say(element.parts.name, row.name);
  say(element.parts.live, row.running ? `${row.running} live` : "");
  say(element.parts.count, `${row.tasks} ${row.tasks === 1 ? "task" : "tasks"}`);
}

function makeTask() {
  const part = (name, ...children) => h("span", { class: name }, ...children);
  const parts = {
    icon: h("span", { class: "glyph", "aria-hidden": "true" }), word: part("word"), type: part("type"), title: part("title"), more: part("more"), last: part("last"),
    activity: part("activity"), cpu: part("figure"), memory: part("figure"), cpuCurve: makeCurve("cpu"), memoryCurve: makeCurve("memory"),
    time: part("time"), when: part("when"), twist: part("twist", icon("down")), usage: part("usage"),
  };
  const meter = (label, curve, figure) => h("span", { class: "meter" }, h("span", { class: "unseen" }, label), curve, figure);
  fill(parts.usage, meter("CPU", parts.cpuCurve, parts.cpu), meter("memory", parts.memoryCurve, parts.memory));
  const element = h("div", { class: "row task", role: "treeitem" },
    part("indent", parts.twist), part("status", parts.icon, parts.word), parts.type,
    part("what", part("line", parts.title, parts.more), parts.last), parts.activity, parts.usage, part("times", parts.time, parts.when));
  return Object.assign(element, { parts });
}
