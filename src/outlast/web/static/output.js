/**
 * The output of a task: line numbers, colours, stderr marked, search, follow. Lines have one height, so that any of
 * millions is found by a division. An element has a greatest height in every browser: above it the scroll bar stands for
 * more than one pixel, and turns of the wheel are counted here.
 */

import { paint, parse } from "./ansi.js";
import { get, taskPath } from "./api.js";
import { button, fill, h, icon, say } from "./dom.js";
import { clock, count } from "./format.js";
import { Lines } from "./lines.js";

const LINE = 20;
const TALLEST = 8_000_000; // pixels
const SPARE = 20;
const TYPING_MS = 200;
const MOST_MATCHES = 1000;

export class Output {
  /** @param {string} id @param {{split: boolean, isOver: boolean}} task */
  constructor(id, task) {
    this.id = id;
    this.isOver = task.isOver;
    this.lines = new Lines(id, () => this.drawSoon());
    this.matches = [];
    this.byLine = new Map();
    this.match = -1;
    this.marked = [0, 0]; // the lines that explain the first error
    this.position = 0; // of the top, in pixels of the whole
    this.isFollowing = true;
    /** @type {Map<number, HTMLElement>} */
    this.shown = new Map();
    this.build(task.split);
    this.lines.fetch(0);
  }

  build(split) {
    this.space = h("div", { class: "space" });
    this.scroller = h("div", { class: "lines", tabindex: 0, role: "log", "aria-live": "off", "aria-label": "Output", on: { keydown: (event) => this.press(event) } }, this.space);
    this.scroller.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.scroller.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.field = h("input", { type: "search", placeholder: "Search the output", "aria-label": "Search the output", spellcheck: "false", on: { input: () => this.searchSoon(), keydown: (event) => this.pressInField(event) } });
    this.regex = this.option("Regular expression", ".*", () => this.search());
    this.letters = this.option("Match case", "Aa", () => this.search());
    this.times = this.option("Times of the lines", "Times", () => { this.element.classList.toggle("with-times"); this.redraw(); });
    this.found = h("span", { class: "found", role: "status" });
    const stream = h("select", { "aria-label": "Stream", on: { change: () => this.choose(stream.value) } },
      h("option", { value: "both" }, "both streams"), h("option", { value: "stdout" }, "stdout"), h("option", { value: "stderr" }, "stderr"));
    this.follow = h("button", { type: "button", class: "follow", "aria-pressed": "true", on: { click: () => this.setFollowing(!this.isFollowing) } }, icon("down"), "Follow");
    this.total = h("span", { class: "total" });
    this.note = h("p", { class: "note", hidden: true });
    this.element = h("div", { class: "output" },
      h("div", { class: "bar" }, h("span", { class: "search" }, icon("search"), this.field, this.found), this.regex, this.letters,
        button("Previous match (Shift+Enter)", () => this.jump(-1), { class: "quiet" }, icon("up")),
        button("Next match (Enter)", () => this.jump(1), { class: "quiet" }, icon("down")),
        button("First error (e)", () => this.firstError(), { class: "quiet" }, "First error"),
        split && stream, this.times, h("span", { class: "push" }), this.total, this.follow),
      this.note, this.scroller);
    new ResizeObserver(() => (this.isFollowing ? this.toEnd() : this.draw())).observe(this.scroller);
  }

  /** A small button that stays pressed. */
  option(label, text, change) {
    const toggle = h("button", { type: "button", class: "quiet toggle", "aria-pressed": "false", "aria-label": label, title: label }, text);
    toggle.addEventListener("click", () => { toggle.setAttribute("aria-pressed", String(toggle.ariaPressed !== "true")); change(); });
    return toggle;
  }

  /** @param {{total: number}} more */
  more({ total }) {
    if (total > this.lines.total) this.lines.grow(total);
    else this.lines.refresh();
  }

  ended() {
    this.isOver = true;
    this.lines.refresh();
  }

  choose(stream) {
    this.lines.choose(stream);
    this.redraw();
    this.lines.fetch(0);
    this.search();
  }

  // --- scrolling ---

  get height() {
    return this.lines.total * LINE + LINE;
  }

  /** How many pixels of the whole one pixel of the scroll bar is. */
  get scale() {
    const seen = this.scroller.clientHeight;
    return this.height <= TALLEST ? 1 : (this.height - seen) / (TALLEST - seen);
  }

  scrolled() {
    const top = this.scroller.scrollTop;
    // What we set ourselves comes back rounded.
    if (Math.abs(top * this.scale - this.position) > this.scale) this.position = top * this.scale;
    this.draw();
    const isAtEnd = this.position + this.scroller.clientHeight >= this.height - LINE * 1.5;
    if (this.isFollowing && !isAtEnd && top < this.lastTop) this.setFollowing(false);
    else if (!this.isFollowing && isAtEnd && !this.isOver && top > this.lastTop) this.setFollowing(true);
    this.lastTop = top;
  }

  /** @param {number} position */
  scrollTo(position) {
    this.position = Math.max(0, Math.min(position, this.height - this.scroller.clientHeight));
    this.scroller.scrollTop = this.position / this.scale;
    this.lastTop = this.scroller.scrollTop;
    this.draw();
  }

  wheel(event) {
    if (this.scale === 1 || event.ctrlKey || !event.deltaY) return;
    event.preventDefault();
    if (event.deltaY < 0) this.setFollowing(false);
    this.scrollTo(this.position + event.deltaY * (event.deltaMode ? LINE : 1));
  }

  setFollowing(isFollowing) {
    this.isFollowing = isFollowing;
    this.follow.setAttribute("aria-pressed", String(isFollowing));
    if (isFollowing) this.toEnd();
  }

  toEnd() {
    this.measure();
    this.scrollTo(this.height);
  }

  measure() {
    this.space.style.height = `${Math.min(this.height, TALLEST)}px`;
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = this.scroller.clientHeight - LINE;
    const moves = { ArrowDown: LINE, ArrowUp: -LINE, j: LINE, k: -LINE, PageDown: page, PageUp: -page, " ": page };
    if (event.key in moves) {
      if (moves[event.key] < 0) this.setFollowing(false);
      this.scrollTo(this.position + moves[event.key]);
    } else if (event.key === "Home" || event.key === "g") (this.setFollowing(false), this.scrollTo(0));
    else if (event.key === "End" || event.key === "G") this.isOver ? this.toEnd() : this.setFollowing(true);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // --- drawing ---

  drawSoon() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.measure();
      if (this.isFollowing) this.scrollTo(this.height);
      else this.draw();
    });
  }

  redraw() {
    this.shown.forEach((element) => element.remove());
    this.shown.clear();
    this.drawSoon();
  }

  draw() {
    const { total, error, dropped } = this.lines;
    const seen = this.scroller.clientHeight;
    const from = Math.max(0, Math.floor(this.position / LINE) - SPARE);
    const to = Math.min(total, Math.ceil((this.position + seen) / LINE) + SPARE);
    for (const [index, element] of this.shown) if (index < from || index >= to) element.remove(), this.shown.delete(index);
    const shift = this.scroller.scrollTop - this.position;
    for (let index = from; index < to; index++) this.place(index, shift);
    this.space.style.setProperty("--digits", String(Math.max(3, String(total).length)));
    // While one scrolls fast, only where the scrolling rests is fetched.
    clearTimeout(this.fetching);
    if (to > from) this.fetching = setTimeout(() => this.lines.need(from, to), this.shown.size && this.at(from) && this.at(to - 1) ? 0 : 30);
    say(this.total, `${count(total)} ${total === 1 ? "line" : "lines"}`);
    this.note.hidden = !error && !dropped && (total > 0 || !this.isOver);
    if (!this.note.hidden) say(this.note, error || (dropped ? `${count(dropped)} bytes in the middle were dropped to keep to the task's limit.` : "It printed nothing."));
    this.follow.hidden = this.isOver;
  }

  at(index) {
    return this.lines.at(index);
  }

  place(index, shift) {
    const line = this.at(index);
    let element = this.shown.get(index);
    if (!element) {
      element = h("div", { class: "output-line" });
      this.shown.set(index, element);
      // In the order of the lines, so that a selection copies them in their order.
      const after = this.shown.get(index + 1);
      this.space.insertBefore(element, after ?? null);
    }
    if (element.line !== line || element.marks !== this.byLine.get(index + 1) || element.current !== this.match) this.write(element, line, index);
    element.classList.toggle("marked", index + 1 >= this.marked[0] && index + 1 < this.marked[1]);
    const y = `translateY(${index * LINE + shift}px)`;
    if (element.style.transform !== y) element.style.transform = y;
  }

  write(element, line, index) {
    element.line = line;
    element.marks = this.byLine.get(index + 1);
    element.current = this.match;
    element.classList.toggle("err", line?.stream === "stderr");
    element.classList.toggle("away", !line);
    const time = h("span", { class: "at" }, line?.at ? clock(line.at, true) : "");
    const text = h("span", { class: "text" }, ...(line ? spans(line.text, element.marks ?? [], this.matches[this.match]) : []));
    if (line?.cut) text.append(h("span", { class: "cut" }, ` … ${count(line.cut)} more characters`));
    fill(element, h("span", { class: "n" }, index + 1), time, line?.stream === "stderr" && h("span", { class: "unseen" }, "stderr: "), text);
  }

  // --- finding ---

  searchSoon() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.search(), TYPING_MS);
  }

  async search() {
    this.searching?.abort();
    this.searching = new AbortController();
    const { signal } = this.searching;
    const q = this.field.value;
    [this.matches, this.match, this.byLine] = [[], -1, new Map()];
    this.found.classList.remove("none");
    if (!q) return say(this.found, ""), this.drawSoon();
    say(this.found, "…");
    try {
      const params = { q, regex: Number(this.regex.ariaPressed === "true"), case: Number(this.letters.ariaPressed === "true"), stream: this.lines.stream, limit: MOST_MATCHES };
      const { matches, more } = await get(taskPath(this.id, "/search"), params, signal);
      this.matches = matches;
      this.hasMore = more;
      for (const match of matches) this.byLine.set(match.n, [...(this.byLine.get(match.n) ?? []), match]);
      this.found.classList.toggle("none", !matches.length);
      if (matches.length) this.jump(0);
      else say(this.found, "none");
    } catch (error) {
      if (!signal.aborted) say(this.found, error.message), this.found.classList.add("none");
    }
    this.drawSoon();
  }

  /** Go to another match; 0: to the first one below what is seen. @param {number} by */
  jump(by) {
    const { length } = this.matches;
    if (!length) return;
    if (by) this.match = (this.match + by + length) % length;
    else this.match = Math.max(0, this.matches.findIndex((match) => (match.n - 1) * LINE >= this.position));
    say(this.found, `${this.match + 1} of ${count(length)}${this.hasMore ? "+" : ""}`);
    this.show(this.matches[this.match].n);
  }

  pressInField(event) {
    if (event.key === "Enter") {
      this.jump(event.shiftKey ? -1 : 1);
      event.preventDefault();
    } else if (event.key === "Escape") {
      this.field.value = "";
      this.search();
      this.scroller.focus();
      event.stopPropagation();
    }
  }

  async firstError() {
    const { n, count } = await get(taskPath(this.id, "/first-error")).catch(() => ({ n: null }));
    if (n) (this.marked = [n, n + count]), this.show(n);
    else say(this.found, "no error found");
  }

  /** @param {number} n the number of a line, from 1 */
  show(n) {
    this.setFollowing(false);
    if (n > this.lines.total) this.lines.total = n;
    this.measure();
    this.scrollTo((n - 1) * LINE - this.scroller.clientHeight / 3);
    this.drawSoon();
  }

  close() {
    this.lines.reset();
    clearTimeout(this.fetching);
    cancelAnimationFrame(this.frame);
  }
}

/** A line with its colours, and what was searched for marked. @param {string} line @param {any[]} matches @param {any} current */
export function spans(line, matches, current) {
  const runs = parse(line);
  if (!matches.length) return runs.map(({ text, style }) => paint(text, style));
  const nodes = [];
  let at = 0; // in code points, as the server counts
  for (const { text, style } of runs) {
    const points = [...text];
    for (let from = 0; from < points.length; ) {
      const match = matches.find((one) => one.end > at + from);
      const begins = match ? Math.max(0, match.start - at) : points.length;
      const isIn = begins <= from;
      const to = Math.min(points.length, isIn ? match.end - at : begins);
      const node = paint(points.slice(from, to).join(""), style);
      nodes.push(isIn ? h("mark", match === current ? { class: "now" } : {}, node) : node);
      from = Math.max(to, from + 1);
    }
    at += points.length;
  }
  return nodes;
}
