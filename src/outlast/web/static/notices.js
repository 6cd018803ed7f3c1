/** Notices: short messages in the page, a list of the latest, and, if it is allowed, the browser's own notifications. */

import { button, fill, h } from "./dom.js";
import { fail, openDialog, toast } from "./dialog.js";
import { ago } from "./format.js";

const KEPT = "outlast-notify";
const BAD = new Set(["failed"]);

export class Notices {
  /** @param {import("./state.js").Store} store @param {(id: string) => void} open */
  constructor(store, open) {
    this.store = store;
    this.open = open;
    store.addEventListener("notice", (event) => this.tell(/** @type {CustomEvent} */ (event).detail));
    store.addEventListener("failed", (event) => fail(/** @type {CustomEvent} */ (event).detail));
    store.addEventListener("approvals", () => this.tellApprovals());
    this.asked = 0;
  }

  get isAllowed() {
    return "Notification" in window && Notification.permission === "granted" && localStorage.getItem(KEPT) === "yes";
  }

  tell(notice) {
    const kind = BAD.has(notice.facts?.status) ? "bad" : notice.kind === "waits-for-input" ? "warn" : "";
    toast(notice.text, { kind, open: notice.task_id ? () => this.open(notice.task_id) : undefined });
    if (document.hidden) this.notify("Outlast", notice.text, `notice-${notice.number}`, notice.task_id);
  }

  tellApprovals() {
    const { length } = this.store.approvals;
    document.title = length ? `(${length}) Outlast: waits for your answer` : `Outlast${this.store.server.hostname ? ` · ${this.store.server.hostname}` : ""}`;
    document.getElementById("alerts").textContent = length > this.asked ? `${length === 1 ? "A command waits" : `${length} commands wait`} for your answer.` : "";
    if (length > this.asked && document.hidden) this.notify("Outlast waits for your answer", this.store.approvals.at(-1).command, "approval");
    this.asked = length;
  }

  notify(title, body, tag, taskId) {
    if (!this.isAllowed) return;
    const shown = new Notification(title, { body, tag });
    shown.onclick = () => (window.focus(), taskId && this.open(taskId), shown.close());
  }

  /** The latest notices, and the switch for those of the browser. */
  show() {
    const content = h("div", { class: "notices" });
    const draw = () => fill(content, this.store.notices.length ? h("ol", {}, this.store.notices.map((one) => this.item(one, dialog))) : h("p", { class: "dim" }, "Nothing was told yet. Background tasks are told of when they end, need input or match a pattern."));
    const toggle = h("input", { type: "checkbox", id: "notify", on: { change: () => this.allow(toggle) } });
    toggle.checked = this.isAllowed;
    const dialog = openDialog("Notices", [h("label", { for: "notify", class: "switch" }, toggle, "Notify me through the browser while this page is hidden"), content], "wide");
    draw();
    this.store.addEventListener("notices", draw);
    dialog.addEventListener("close", () => this.store.removeEventListener("notices", draw));
  }

  item(notice, dialog) {
    return h("li", {}, h("span", { class: "when" }, ago(notice.at, this.store.now)), h("span", { class: "text" }, notice.text),
      notice.task_id && this.store.tasks.has(notice.task_id) && button("Show", () => (dialog.close(), this.open(notice.task_id)), { class: "quiet" }));
  }

  async allow(toggle) {
    const isOn = toggle.checked && "Notification" in window && (await Notification.requestPermission()) === "granted";
    localStorage.setItem(KEPT, isOn ? "yes" : "no");
    if (toggle.checked && !isOn) toast("The browser does not allow this page to notify you: change that in its settings for this address.", { kind: "warn" });
    toggle.checked = isOn;
  }
}
