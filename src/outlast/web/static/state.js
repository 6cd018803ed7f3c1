/**
 * What the page knows: the tasks, what they used lately, what waits for an answer, and whether the server is reached.
 * Views listen for `tasks`, `usage`, `approvals`, `notices`, `connection`; several changes in one frame are one event.
 */

import { get, stream } from "./api.js";

const FIRST_PAGE = 100; // shown before the rest is asked for
const PAGE = 500;
const SAMPLES = 60; // of cpu and memory: two minutes
const NOTICES = 100;
const RELOAD_MS = 2000;

export class Store extends EventTarget {
  constructor() {
    super();
    /** @type {Map<string, any>} */
    this.tasks = new Map();
    /** @type {Map<string, {cpu: number[], memory: number[]}>} */
    this.usage = new Map();
    /** @type {any[]} */
    this.approvals = [];
    /** @type {any[]} */
    this.notices = [];
    /** @type {any} what /api/state says */
    this.server = { sessions: [] };
    this.connection = "connecting";
    this.isLoaded = false;
    this.ahead = 0; // how much the server's clock is ahead, in seconds
    this.version = 0; // grows with each change of the tasks
    this.touched = new Map(); // id: when its last change arrived, so that an older page does not undo it
    this.waiting = new Set();
    this.loading = 0;
  }

  /** The server's time in epoch seconds. */
  get now() {
    return Date.now() / 1000 + this.ahead;
  }

  start() {
    this.events = stream("/api/events", {
      hello: ({ now }) => this.setClock(now),
      tasks: ({ changed, removed, reload }) => (reload ? this.load() : this.change(changed ?? [], removed ?? [])),
      usage: ({ tasks }) => this.use(tasks),
      notice: (notice) => this.tellNotice(notice),
      approvals: ({ pending }) => this.ask(pending),
      failed: (error) => this.dispatchEvent(new CustomEvent("failed", { detail: error })), // after a yes
    }, (state) => {
      this.connection = state;
      if (state === "live") this.load();
      this.tell("connection");
    });
  }

  /** Fetch everything, newest first, a page at a time; after a loss also what went meanwhile. */
  async load(mayRepeat = true) {
    const turn = ++this.loading;
    const began = performance.now();
    const seen = new Set();
    let total = 1;
    try {
      get("/api/approvals").then(({ pending }) => this.ask(pending), () => {});
      get("/api/notices", { most: NOTICES }).then(({ notices }) => this.remember(notices), () => {});
      this.server = await get("/api/state");
      this.setClock(this.server.now);
      for (let offset = 0; offset < total && turn === this.loading; ) {
        const page = await get("/api/tasks", { limit: offset ? PAGE : FIRST_PAGE, offset });
        page.tasks.forEach((task) => seen.add(task.task_id));
        // What an event said since is newer than this page.
        this.change(page.tasks.filter((task) => !((this.touched.get(task.task_id) ?? 0) > began)), [], false);
        total = page.total;
        offset += page.tasks.length || PAGE;
        this.tell("tasks");
      }
    } catch {
      // A lost connection comes back with the stream, which then calls this.
      if (turn === this.loading) setTimeout(() => this.connection === "live" && turn === this.loading && this.load(), RELOAD_MS);
      return;
    }
    if (turn !== this.loading) return;
    // Tasks that were removed between two pages moved the others, so some were in none.
    if (seen.size < total && mayRepeat) return this.load(false);
    for (const id of this.tasks.keys()) if (!seen.has(id) && !((this.touched.get(id) ?? 0) > began)) this.tasks.delete(id);
    this.isLoaded = true;
    this.version++;
    this.tell("tasks");
  }

  /** @param {number} now */
  setClock(now) {
    this.ahead = now - Date.now() / 1000;
  }

  /** @param {any[]} changed @param {string[]} removed */
  change(changed, removed, isNew = true) {
    for (const task of changed) {
      const before = this.tasks.get(task.task_id);
      // An event may leave out what only a look at its processes tells.
      this.tasks.set(task.task_id, { ...before, ...task });
      if (isNew) this.touched.set(task.task_id, performance.now());
      if (task.ended_at) this.usage.delete(task.task_id);
    }
    for (const id of removed) this.tasks.delete(id), this.usage.delete(id), this.touched.delete(id);
    if (!changed.length && !removed.length) return;
    this.version++;
    this.tell("tasks");
  }

  /** @param {Record<string, any>} used by task */
  use(used) {
    for (const [id, { cpu, memory, activity, last_line }] of Object.entries(used)) {
      const task = this.tasks.get(id);
      if (!task || task.ended_at) continue;
      if (task.activity !== activity) this.version++; // it may have begun to wait for input
      Object.assign(task, { cpu, memory, activity, last_line });
      const past = this.usage.get(id) ?? { cpu: [], memory: [] };
      for (const [list, value] of [[past.cpu, cpu], [past.memory, memory]]) {
        list.push(value ?? 0);
        if (list.length > SAMPLES) list.shift();
      }
      this.usage.set(id, past);
    }
    this.tell("usage");
  }

  /** @param {any[]} notices */
  remember(notices) {
    this.notices = notices.toSorted((one, other) => other.at - one.at);
    this.tell("notices");
  }

  /** @param {any} notice */
  tellNotice(notice) {
    if (this.notices.some((one) => one.number === notice.number)) return;
    this.notices = [notice, ...this.notices].slice(0, NOTICES);
    this.tell("notices");
    this.dispatchEvent(new CustomEvent("notice", { detail: notice }));
  }

  /** @param {any[]} pending */
  ask(pending) {
    this.approvals = pending;
    this.tell("approvals");
  }

  /** Tell the views, once for all changes until the next frame; a hidden page has no frames. @param {string} what */
  tell(what) {
    if (this.waiting.has(what)) return;
    this.waiting.add(what);
    const go = () => (this.waiting.delete(what), this.dispatchEvent(new Event(what)));
    if (document.hidden) setTimeout(go, 100);
    else requestAnimationFrame(go);
  }
}
