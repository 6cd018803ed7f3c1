/** One task: what it is and does, its output or screen, what can be done with it, and what is known about it. */

import { get, post, remove, stream, taskPath } from "./api.js";
import { drawCurve, makeCurve } from "./curve.js";
import * as details from "./details.js";
import { fail, openDialog, toast } from "./dialog.js";
import { button, fill, h, icon, say } from "./dom.js";
import { bytes, doing, duration, elapsed, ending, isOver, isWaiting, lookOf, percent, quoted } from "./format.js";
import { Output } from "./output.js";
import { Screen } from "./screen.js";

const REFRESH_MS = 2000; // of processes and events, while they are looked at

export class TaskView {
  /** @param {import("./state.js").Store} store @param {string} id
   * @param {{open: (id: string) => void, close: () => void, edit: (task: any) => void, zoom: () => void}} told */
  constructor(store, id, told) {
    this.store = store;
    this.id = id;
    this.told = told;
    this.detail = null;
    this.tab = "";
    this.parts = {};
    this.element = h("article", { class: "task-view", tabindex: -1, "aria-label": "Task" }, h("p", { class: "note" }, "Loading …"));
    this.onTasks = () => (store.isLoaded && !store.tasks.has(id) ? this.unfollow() : this.update(store.tasks.get(id)));
    this.onUsage = () => this.paintUsage();
    this.onVisible = () => (document.hidden ? this.unfollow() : this.followIt());
    store.addEventListener("tasks", this.onTasks);
    store.addEventListener("usage", this.onUsage);
    document.addEventListener("visibilitychange", this.onVisible);
    this.ticking = setInterval(() => this.paintTime(), 1000);
    this.load();
  }

  async load() {
    try {
      this.detail = await get(taskPath(this.id));
    } catch (error) {
      fill(this.element, h("div", { class: "empty" }, h("h2", {}, error.status === 404 ? "There is no such task any more" : "The task cannot be shown"), h("p", {}, error.message), button("Back to the list", this.told.close)));
      return;
    }
    if (this.isClosed) return;
    this.task = { ...this.store.tasks.get(this.id), ...this.detail.task };
    this.build();
    this.followIt();
  }

  close() {
    this.isClosed = true;
    this.unfollow();
    this.output?.close();
    clearInterval(this.ticking);
    clearInterval(this.refreshing);
    this.store.removeEventListener("tasks", this.onTasks);
    this.store.removeEventListener("usage", this.onUsage);
    document.removeEventListener("visibilitychange", this.onVisible);
    this.element.remove();
  }

  // --- what comes while it runs ---

  followIt() {
    if (this.following || this.isClosed || !this.task || (isOver(this.task) && this.task.closed !== false)) return;
    this.following = stream(taskPath(this.id, "/follow"), {
      lines: (more) => this.output.more(more),
      task: (task) => this.update(task),
      screen: (screen) => this.screen?.draw(screen),
      end: (task) => { this.unfollow(); this.update(task); this.output.ended(); this.refresh(); },
    });
  }

  unfollow() {
    this.following?.close();
    this.following = null;
  }

  update(task) {
    if (!task || !this.task) return;
    const wasOver = isOver(this.task);
    this.task = { ...this.task, ...task };
    this.paint();
    if (wasOver || !isOver(this.task)) return;
    this.output.ended();
    if (this.screen) this.screen.told.isOver = true;
    this.refresh();
  }

  async refresh() {
    const detail = await get(taskPath(this.id)).catch(() => null);
    if (!detail || this.isClosed) return;
    this.detail = detail;
    if (this.tab !== "output" && this.tab !== "screen") this.show(this.tab);
  }

  // --- what is seen ---

  get hasScreen() {
    return Boolean(this.task.tty);
  }

  build() {
    const { task, parts } = this;
    Object.assign(parts, {
      status: h("span", { class: "status" }), ending: h("span", { class: "ending" }), time: h("span", { class: "time" }), activity: h("span", { class: "activity" }),
      cpu: h("span", { class: "figure" }), memory: h("span", { class: "figure" }), cpuCurve: makeCurve("cpu"), memoryCurve: makeCurve("memory"),
      actions: h("div", { class: "actions", role: "toolbar", "aria-label": "What to do with the task" }), tabs: h("div", { class: "tabs", role: "tablist", "aria-label": "Parts of the task" }),
      panel: h("div", { class: "panel", role: "tabpanel", id: "panel" }), input: h("div"), children: h("span"),
    });
    parts.usage = h("span", { class: "usage" }, h("span", { class: "meter" }, "CPU", parts.cpuCurve, parts.cpu), h("span", { class: "meter" }, "Memory", parts.memoryCurve, parts.memory));
    this.output = new Output(this.id, { split: task.split, isOver: isOver(task) });
    if (this.hasScreen) this.screen = new Screen(this.id, { fail, isOver: isOver(task) });
    const heading = task.kind === "agent" ? `${task.metadata?.type ?? "agent"}: ${task.description || task.metadata?.prompt || task.command}` : task.description || task.name;
    this.element.setAttribute("aria-label", `Task ${heading || task.command}`);
    fill(this.element,
      h("header", { class: "head" },
        h("div", { class: "top" }, parts.status, parts.time, parts.ending, parts.activity, h("span", { class: "push" }),
          button("Whole width (z)", this.told.zoom, { class: "quiet zoom" }, icon("wide")), button("Close (Esc)", this.told.close, { class: "quiet" }, icon("close"))),
        h("h2", heading ? {} : { class: "unseen" }, heading || task.command),
        h("pre", { class: "command", tabindex: 0, "aria-label": "Command" }, task.command),
        h("div", { class: "facts-line" }, h("span", { title: "Session" }, task.session), h("code", { title: "Directory" }, task.cwd), h("span", { title: "Category" }, task.category), h("code", { title: "Id" }, task.task_id),
          task.parent && button("started by another task", () => this.told.open(task.parent), { class: "link" }), parts.usage),
        parts.actions),
      parts.tabs, parts.panel, parts.input);
    this.makeTabs();
    this.paint();
    this.show(this.hasScreen && !isOver(task) ? "screen" : this.detail.agent ? "turns" : "output");
  }

  makeTabs() {
    const children = () => [...this.store.tasks.values()].filter((one) => one.parent === this.id);
    this.views = {
      ...(this.hasScreen && { screen: ["Screen", () => this.screen.element] }),
      ...(this.detail.agent && { turns: ["Turns", () => details.turns(this.detail.agent)] }),
      output: ["Output", () => this.output.element],
      tasks: ["Tasks", () => details.taskLinks(children(), this.store.now, this.told.open)],
      processes: ["Processes", () => details.processTree(this.detail.processes)],
      events: ["Events", () => details.eventList(this.detail.events)],
      about: ["About", () => h("div", { class: "about" }, details.about(this.task, this.store.now), details.judgement(this.detail.judged, this.task, this.detail.held_back), details.environmentTable(this.detail.environment))],
    };
    if (!children().length && this.task.kind !== "agent") delete this.views.tasks;
    fill(this.parts.tabs, Object.entries(this.views).map(([key, [label]]) =>
      h("button", { type: "button", role: "tab", id: `tab-${key}`, "aria-controls": "panel", on: { click: () => this.show(key), keydown: (event) => this.pressTab(event) } }, label)));
  }

  /** @param {KeyboardEvent} event */
  pressTab(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const keys = Object.keys(this.views);
    this.show(keys[(keys.indexOf(this.tab) + by + keys.length) % keys.length]);
    this.parts.tabs.querySelector("[aria-selected=true]").focus();
    event.preventDefault();
  }

  /** @param {string} key the name of a tab */
  show(key) {
    const isSame = this.tab === key;
    this.tab = key;
    for (const tab of this.parts.tabs.children) {
      const isSelected = tab.id === `tab-${key}`;
      tab.setAttribute("aria-selected", String(isSelected));
      tab.tabIndex = isSelected ? 0 : -1;
    }
    this.parts.panel.setAttribute("aria-labelledby", `tab-${key}`);
    this.parts.panel.className = `panel of-${key}`;
    const isOwn = key === "output" || key === "screen";
    const { scrollTop } = this.parts.panel;
    this.parts.panel.tabIndex = isOwn ? -1 : 0;
    fill(this.parts.panel, this.views[key][1]());
    if (isSame) this.parts.panel.scrollTop = scrollTop;
    if (key === "output") this.output.isFollowing ? this.output.toEnd() : this.output.scrollTo(this.output.position);
    if (key === "screen" && !isSame) this.screen.load();
    clearInterval(this.refreshing);
    if (!isOwn && !isOver(this.task)) this.refreshing = setInterval(() => document.hidden || this.isSelecting() || this.refresh(), REFRESH_MS);
  }

  /** A refresh would take away what is being selected. */
  isSelecting() {
    const selection = getSelection();
    return !selection.isCollapsed && this.parts.panel.contains(selection.anchorNode);
  }

  paint() {
    const { task, parts } = this;
    const look = lookOf(task.status);
    parts.status.className = `status is-${task.status}`;
    fill(parts.status, h("span", { "aria-hidden": "true" }, look.icon), look.word);
    say(parts.ending, ending(task));
    say(parts.activity, doing(task));
    parts.activity.classList.toggle("waiting", isWaiting(task));
    this.paintTime();
    this.paintUsage();
    this.paintActions();
    this.paintInput();
  }

  paintTime() {
    if (this.task && this.parts.time) say(this.parts.time, duration(elapsed(this.task, this.store.now)));
  }

  paintUsage() {
    if (!this.parts.usage) return;
    const { parts, task } = this;
    parts.usage.hidden = task.status !== "running";
    const now = this.store.tasks.get(this.id);
    const used = this.store.usage.get(this.id);
    if (task.status !== "running" || !now) return;
    drawCurve(parts.cpuCurve, used?.cpu ?? [], 100);
    drawCurve(parts.memoryCurve, used?.memory ?? [], 1024 * 1024 * 16);
    say(parts.cpu, percent(now.cpu));
    say(parts.memory, bytes(now.memory));
    say(parts.activity, doing(now));
    parts.activity.classList.toggle("waiting", isWaiting(now));
  }

  // --- what can be done ---

  paintActions() {
    const { task } = this;
    if (this.actionsFor === isOver(task)) return;
    this.actionsFor = isOver(task);
    const act = (name, text, go, props = {}) => h("button", { type: "button", ...props, on: { click: go } }, icon(name), text);
    const log = h("a", { class: "button", href: taskPath(this.id, "/log"), download: `${this.id}.log` }, icon("save"), "Log");
    fill(this.parts.actions,
      !isOver(task) && act("stop", "Kill", () => this.kill(), { class: "danger" }),
      task.kind !== "agent" && act("again", "Run again", () => this.again()), task.kind !== "agent" && act("edit", "Edit and run", () => this.told.edit(task)),
      act("copy", "Copy command", () => this.copy()), log, isOver(task) && act("bin", "Remove", () => this.removeIt()));
  }

  paintInput() {
    const isOpen = this.task.status === "running" && this.detail.takes_input && !this.hasScreen;
    if (isOpen === Boolean(this.parts.input.firstChild)) return;
    if (!isOpen) return fill(this.parts.input);
    const field = h("input", { type: "text", class: "code", placeholder: "Type a line for it and press Enter", "aria-label": "Input for the task", spellcheck: "false", autocomplete: "off" });
    const send = (what) => post(taskPath(this.id, "/send"), what).then(() => (field.value = ""), fail);
    fill(this.parts.input, h("form", { class: "input", on: { submit: (event) => (event.preventDefault(), send({ text: `${field.value}\n` })) } },
      h("span", { class: "prompt", "aria-hidden": "true" }, "›"), field, h("button", { type: "submit" }, "Send"), button("End of input", () => send({ eof: true }), { class: "quiet", title: "Nothing more comes: close its input" })));
  }

  /** Ask first; then say exactly what became of each process. */
  kill() {
    const result = h("div", { class: "receipt", role: "status" });
    const go = button("Kill it", async () => {
      go.disabled = true;
      fill(result, h("p", { class: "dim" }, "Ending its processes …"));
      try {
        const receipt = await post(taskPath(this.id, "/kill"));
        fill(result, receipt.approval ? h("p", {}, "The policy asks about it: answer above the list.") : receiptOf(receipt));
        if (receipt.task) this.update(receipt.task);
        footer.replaceChildren(button("Close", () => dialog.close(), { class: "primary", autofocus: true }));
        footer.querySelector("button").focus();
      } catch (error) {
        fill(result, h("p", { class: "refused" }, error.message));
        go.disabled = false;
      }
    }, { class: "danger filled" });
    const count = this.detail.processes.length;
    const footer = h("footer", {}, button("Keep it running", () => dialog.close()), go);
    const what = count > 1 ? `The ${count} processes of its tree get a TERM, and a KILL if they do not end.` : "Its whole process tree gets a TERM, and a KILL if it does not end.";
    const dialog = openDialog("Kill this task?", [h("pre", { class: "command" }, this.task.command), h("p", {}, what), result, footer], "narrow");
    go.focus();
  }

  async again() {
    const reply = await post(taskPath(this.id, "/again")).catch(fail);
    if (reply?.approval) toast("The policy asks about it: answer above the list.");
    else if (reply?.task) this.told.open(reply.task.task_id);
  }

  async copy() {
    const text = commandLine(this.task);
    await navigator.clipboard.writeText(text).then(() => toast("Copied: the command line that starts it again."), () => toast(text));
  }

  async removeIt() {
    const is = await remove(taskPath(this.id)).then(() => true, fail);
    if (is) this.told.close();
  }
}

/** The command line that starts the same again. @param {any} task */
export function commandLine(task) {
  const { metadata, executor, tty } = task;
  const options = ["session", "cwd", "description", "limit"].filter((name) => task[name]).map((name) => `--${name} ${quoted(String(task[name]))}`);
  if (task.kind === "agent") return ["outlast agent start", ...options, quoted(metadata.type), quoted(metadata.prompt)].join(" ");
  const more = [task.name && `--name ${quoted(task.name)}`, executor !== "local" && `--executor ${quoted(executor)}`, task.split && "--split", tty && `--tty --size ${tty.join("x")}`];
  return ["outlast run --bg", ...options, ...more.filter(Boolean), "--", quoted(task.command)].join(" ");
}

/** What a kill did. @param {{ended: number[], survivors: number[]}} receipt */
function receiptOf({ ended, survivors }) {
  return [h("p", {}, ended.length ? `Ended ${ended.length} ${ended.length === 1 ? "process" : "processes"}: ` : "It had no process left to end.", h("code", {}, ended.join(" "))),
    survivors.length ? h("p", { class: "refused" }, "Still alive: ", h("code", {}, survivors.join(" "))) : h("p", { class: "good" }, "None of them survived.")];
}
