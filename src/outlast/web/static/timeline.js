/** The time line: tasks of the last minutes as bars side by side, each with its end in the colour of its status. */

import { fill, h } from "./dom.js";
import { clock, duration, elapsed, isOver, lookOf } from "./format.js";
import { titleOf } from "./list.js";

const [BAR, GAP, AXIS] = [7, 3, 16];
const LANES = 7; // what does not fit shares the last one
const END = 3; // pixels of a bar that show how it ended
const REDRAW_MS = 1000;
const SPANS = [[5, "5 min"], [60, "1 hour"], [360, "6 hours"]];
const TICKS = { 5: 1, 60: 10, 360: 60 };
const KEPT = "outlast-minutes";

export class Timeline {
  /** @param {import("./state.js").Store} store @param {{open: (id: string) => void}} told */
  constructor(store, told) {
    this.store = store;
    this.chosen = Number(localStorage.getItem(KEPT));
    this.minutes = this.chosen || 60;
    this.bars = [];
    this.canvas = h("canvas", { class: "bars", role: "img" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.select = h("select", { class: "span", "aria-label": "Time line shows the last", on: { change: () => this.choose(Number(this.select.value)) } },
      SPANS.map(([minutes, word]) => h("option", { value: String(minutes) }, word)));
    this.element = h("section", { class: "timeline", "aria-label": "Time line" }, this.canvas, this.select, this.tip);
    this.canvas.addEventListener("mousemove", (event) => this.point(event));
    this.canvas.addEventListener("mouseleave", () => (this.tip.hidden = true));
    this.canvas.addEventListener("click", (event) => { const bar = this.at(event); if (bar) told.open(bar.task.task_id); });
    new ResizeObserver(() => this.draw()).observe(this.element);
    store.addEventListener("tasks", () => (this.isStale = true));
    setInterval(() => document.hidden || this.draw(), REDRAW_MS);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
  }

  /** @param {number} minutes */
  choose(minutes) {
    this.chosen = minutes;
    localStorage.setItem(KEPT, String(minutes));
    this.isStale = true;
    this.draw();
  }

  /** An hour; less while all tasks are younger, or they would share a few pixels. */
  usual() {
    const [shortest] = SPANS[0];
    return this.store.tasks.values().every((task) => this.store.now - task.started_at < shortest * 60) ? shortest : 60;
  }

  /** Give each task a lane in which nothing else runs at its time; the oldest first. */
  arrange() {
    this.minutes = this.chosen || this.usual();
    this.select.value = String(this.minutes);
    const since = this.store.now - this.minutes * 60;
    const tasks = [...this.store.tasks.values()].filter((task) => task.status !== "pending" && (task.ended_at ?? Infinity) > since);
    tasks.sort((a, b) => a.started_at - b.started_at);
    const least = (this.minutes * 60 * (END + 1)) / Math.max(300, this.width ?? 0); // a short one is as wide as its end
    const until = [];
    this.placed = tasks.map((task) => {
      let lane = until.findIndex((end) => end <= task.started_at);
      if (lane < 0) lane = Math.min(until.length, LANES - 1);
      until[lane] = Math.max(until[lane] ?? 0, isOver(task) ? Math.max(task.ended_at, task.started_at + least) : Infinity);
      return { task, lane };
    });
    this.lanes = Math.max(3, until.length);
    this.isStale = false;
    this.isChanged = true;
  }

  redraw() {
    this.isChanged = true;
    this.draw();
  }

  draw() {
    const width = this.element.clientWidth;
    if (!width) return;
    if (this.isStale !== false || width !== this.width) (this.width = width), this.arrange();
    // Nothing moved by a pixel since it was drawn.
    const step = (this.minutes * 60) / width / devicePixelRatio;
    if (!this.isChanged && Math.abs(this.store.now - this.drawnAt) < step) return;
    [this.isChanged, this.drawnAt] = [false, this.store.now];
    const height = this.lanes * (BAR + GAP) + AXIS + GAP;
    const scale = devicePixelRatio;
    const { canvas } = this;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      canvas.style.height = `${height}px`;
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    const style = getComputedStyle(this.element);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const span = this.minutes * 60;
    const { now } = this.store;
    const x = (at) => ((at - (now - span)) / span) * width;
    this.axis(pen, { x, now, span, width, height, colour });
    const drawn = []; // by lane: up to where; of a thousand bars within one pixel one is enough
    this.bars = [];
    for (const { task, lane } of this.placed) {
      const from = Math.max(0, x(task.started_at));
      const to = Math.max(from + END + 1, isOver(task) ? x(task.ended_at) : width);
      const y = GAP + lane * (BAR + GAP);
      if (to < (drawn[lane] ?? -1) + 1) continue;
      drawn[lane] = to;
      pen.fillStyle = colour(`${task.status}-soft`);
      pen.beginPath();
      pen.roundRect(from, y, to - from, BAR, 2);
      pen.fill();
      pen.fillStyle = colour(task.status);
      pen.beginPath();
      pen.roundRect(to - END, y, END, BAR, 1.5);
      pen.fill();
      this.bars.push({ task, from, to, y });
    }
    const ended = this.placed.filter(({ task }) => isOver(task)).length;
    canvas.setAttribute("aria-label", `Time line of the last ${this.minutes} minutes: ${this.placed.length - ended} tasks run, ${ended} ended.`);
  }

  axis(pen, { x, now, span, width, height, colour }) {
    pen.font = `10px ${getComputedStyle(document.body).fontFamily}`;
    pen.fillStyle = colour("muted");
    pen.strokeStyle = colour("edge");
    pen.lineWidth = 1;
    const step = TICKS[this.minutes] * 60 * (width < 480 ? 2 : 1);
    for (let at = Math.ceil((now - span) / step) * step; at < now; at += step) {
      const place = Math.round(x(at)) + 0.5;
      pen.beginPath();
      pen.moveTo(place, 0);
      pen.lineTo(place, height - AXIS);
      pen.stroke();
      if (place > 14 && place < width - 96) pen.fillText(clock(at).slice(0, 5), place - 13, height - 4);
    }
  }

  /** @param {MouseEvent} event */
  at(event) {
    const { offsetX, offsetY } = event;
    return this.bars.findLast((bar) => offsetX >= bar.from - 2 && offsetX <= bar.to + 2 && offsetY >= bar.y - 1 && offsetY <= bar.y + BAR + 1);
  }

  point(event) {
    const bar = this.at(event);
    this.tip.hidden = !bar;
    this.canvas.classList.toggle("can-open", Boolean(bar));
    if (!bar) return;
    const { task } = bar;
    const look = lookOf(task.status);
    fill(this.tip, h("b", { class: `is-${task.status}` }, `${look.icon} ${look.word}`), ` ${duration(elapsed(task, this.store.now))} · ${clock(task.started_at)}`, h("div", { class: "code" }, titleOf(task)[0]));
    this.tip.style.left = `${Math.max(4, Math.min(event.offsetX + 8, this.element.clientWidth - this.tip.offsetWidth - 4))}px`;
    this.tip.style.top = `${bar.y + BAR + 6}px`;
  }
}
