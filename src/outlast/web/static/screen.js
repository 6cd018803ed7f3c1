/**
 * The live screen of a task with a terminal, and its keyboard. A text field that is not seen takes the keys, so that
 * input methods, pasting and the keyboards of phones work. Ctrl+] leaves it.
 */

import { paint } from "./ansi.js";
import { ApiError, get, post, taskPath } from "./api.js";
import { button, fill, h, say } from "./dom.js";
import { leaves, notation, typed } from "./keys.js";

export class Screen {
  /** @param {string} id @param {{fail: (error: any) => void, isOver: boolean}} told */
  constructor(id, told) {
    this.id = id;
    this.told = told;
    this.unsent = "";
    this.isSending = false;
    this.rows = [];
    this.cursor = h("span", { class: "cursor", "aria-hidden": "true" });
    this.grid = h("div", { class: "grid", role: "img", "aria-label": "Screen of the task" });
    this.keyboard = h("textarea", { class: "keyboard", "aria-label": "Keyboard of the terminal. Control and ] leaves it.", autocapitalize: "off", autocomplete: "off", spellcheck: "false", rows: 1,
      on: { keydown: (event) => this.press(event), input: (event) => this.typed(event) } });
    this.title = h("span", { class: "title" });
    this.spoken = h("div", { class: "unseen", role: "status" });
    this.frame = h("div", { class: "frame", on: { mouseup: () => String(getSelection()) || this.keyboard.focus({ preventScroll: true }) } }, this.grid, this.cursor, this.keyboard);
    const hint = h("span", { class: "hint" }, "Click the screen to type; ", h("kbd", {}, "Ctrl"), " ", h("kbd", {}, "]"), " leaves it.");
    this.element = h("div", { class: "screen" }, h("div", { class: "bar" }, this.title, h("span", { class: "push" }), !told.isOver && hint, !told.isOver && button("Fit to the window", () => this.fit(), { class: "quiet" })),
      h("div", { class: "stage", "data-theme": "dark", tabindex: 0, role: "region", "aria-label": "Terminal" }, this.frame), this.spoken);
  }

  async load() {
    await get(taskPath(this.id, "/screen")).then((screen) => this.draw(screen), (error) => this.told.fail(error));
  }

  /** @param {any} screen */
  draw({ columns, rows, cursor, title, cells }) {
    this.size = [columns, rows];
    say(this.title, `${columns}×${rows}${title ? ` · ${title}` : ""}`);
    while (this.rows.length < rows) this.grid.append((this.rows[this.rows.length] = h("div", { class: "cells" })));
    while (this.rows.length > rows) this.rows.pop().remove();
    this.rows.forEach((element, index) => {
      const runs = cells[index] ?? [];
      const text = JSON.stringify(runs);
      if (element.drawn === text) return;
      element.drawn = text;
      fill(element, ...runs.map(([part, style]) => paint(part, style ?? {})));
    });
    this.grid.style.setProperty("--columns", String(columns));
    this.grid.setAttribute("aria-label", `Screen: ${this.rows.map((row) => row.textContent.trimEnd()).filter(Boolean).join("\n")}`);
    this.cursor.hidden = !cursor || this.told.isOver;
    if (!cursor) return;
    for (const element of [this.cursor, this.keyboard]) {
      element.style.setProperty("--row", String(cursor[0]));
      element.style.setProperty("--column", String(cursor[1]));
    }
    clearTimeout(this.speaking); // what stands in the cursor's line, once it is quiet
    this.speaking = setTimeout(() => say(this.spoken, this.rows[cursor[0]]?.textContent.trim() ?? ""), 600);
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    event.stopPropagation(); // the shortcuts of the page are not for here
    if (event.isComposing) return;
    if (leaves(event)) {
      event.preventDefault();
      this.element.querySelector(".stage").focus();
      return;
    }
    // The browser's own copy and paste.
    if ((event.ctrlKey && event.shiftKey) || (event.ctrlKey && event.key === "v")) return;
    if (event.ctrlKey && event.key === "c" && String(getSelection())) return;
    const keys = notation(event);
    if (!keys) return;
    event.preventDefault();
    this.send(keys);
  }

  typed(event) {
    if (event.isComposing) return;
    const text = this.keyboard.value;
    this.keyboard.value = "";
    if (text) this.send(typed(text));
  }

  /** Send keys in the order in which they were typed: what is typed while a request is under way goes with the next one.
   * @param {string} keys */
  async send(keys) {
    this.unsent += keys;
    if (this.isSending) return;
    this.isSending = true;
    try {
      while (this.unsent) {
        const batch = this.unsent;
        this.unsent = "";
        await post(taskPath(this.id, "/send"), { keys: batch });
      }
    } catch (error) {
      this.unsent = "";
      this.told.fail(error);
    }
    this.isSending = false;
  }

  /** Give the task's terminal the size of what can be seen of it here. */
  async fit() {
    const stage = this.element.querySelector(".stage");
    const probe = h("span", { class: "probe" }, "M".repeat(100));
    this.grid.append(probe);
    const { width, height } = probe.getBoundingClientRect();
    probe.remove();
    const style = getComputedStyle(stage);
    const columns = Math.floor((stage.clientWidth - parseFloat(style.paddingLeft) * 2 - 16) / (width / 100));
    const rows = Math.floor((stage.clientHeight - parseFloat(style.paddingTop) * 2 - 12) / height);
    if (columns < 10 || rows < 3) return this.told.fail(new ApiError(0, "too-small", "There is too little room here for a terminal."));
    await post(taskPath(this.id, "/resize"), { columns, rows }).catch((error) => this.told.fail(error));
  }
}
