/** What a policy asks about: shown above everything, each with the whole command and the reason for each part of it. */

import { post } from "./api.js";
import { button, fill, h, icon } from "./dom.js";
import { fail } from "./dialog.js";
import { ago } from "./format.js";

const SAFE_MS = 500; // a card that has just appeared under the pointer takes no click

export class Approvals {
  /** @param {import("./state.js").Store} store */
  constructor(store) {
    this.store = store;
    /** @type {Map<string, HTMLElement>} */
    this.cards = new Map();
    this.heading = h("h2", {});
    this.list = h("div", { class: "cards" });
    this.element = h("section", { class: "approvals", hidden: true, tabindex: -1, "aria-label": "Waiting for your answer" }, this.heading, this.list);
    store.addEventListener("approvals", () => this.draw());
  }

  draw() {
    const { approvals } = this.store;
    this.element.hidden = !approvals.length;
    fill(this.heading, icon("warn"), `${approvals.length === 1 ? "One command waits" : `${approvals.length} commands wait`} for your answer`);
    const ids = new Set(approvals.map((one) => String(one.id)));
    for (const [id, card] of this.cards) if (!ids.has(id)) card.remove(), this.cards.delete(id);
    for (const approval of approvals) {
      const id = String(approval.id);
      if (this.cards.has(id)) continue;
      const card = this.card(approval);
      this.cards.set(id, card);
      this.list.append(card);
    }
  }

  focus() {
    this.list.querySelector("button")?.focus();
  }

  card(approval) {
    const shownAt = performance.now();
    const answer = async (word) => {
      if (performance.now() - shownAt < SAFE_MS) return;
      card.querySelectorAll("button").forEach((one) => (one.disabled = true));
      try {
        await post(`/api/approvals/${encodeURIComponent(approval.id)}`, { answer: word });
      } catch (error) {
        fail(error);
        card.querySelectorAll("button").forEach((one) => (one.disabled = false));
      }
    };
    const patterns = approval.always ?? [];
    const what = { run: "wants to run", kill: "wants to kill", outside: "wants to run outside the sandbox" }[approval.category] ?? `asks about ${approval.category}`;
    const card = h("div", { class: "approval", role: "group", "aria-label": `${approval.from || approval.session} ${what}: ${approval.command}` },
      h("p", { class: "who" }, h("b", {}, approval.from || "A caller"), ` ${what} in session `, h("b", {}, approval.session),
        approval.asked_at && h("span", { class: "when" }, ` · ${ago(approval.asked_at, this.store.now)}`), h("span", { class: "when" }, ` · policy ${approval.policy}`)),
      approval.description && h("p", { class: "why" }, approval.description),
      h("pre", { class: "command", tabindex: 0, "aria-label": "Command" }, approval.command || (approval.task_ids ?? []).join(" ")),
      approval.cwd && h("p", { class: "cwd" }, "in ", h("code", {}, approval.cwd)),
      approval.evidence && h("p", { class: "why" }, "In the sandbox it failed: ", h("code", {}, approval.evidence)),
      reasons(approval.parts ?? []),
      h("div", { class: "answers" },
        button("Allow once", () => answer("yes"), { class: "primary" }),
        patterns.length > 0 && button("Allow for this session", () => answer("session")),
        patterns.length > 0 && button("Always allow", () => answer("always"), { title: `Always: ${patterns.join(", ")}` }),
        button("Refuse", () => answer("no"), { class: "danger" }),
        patterns.length > 0 && h("span", { class: "patterns" }, "session and always: ", ...patterns.map((one) => h("code", {}, one)))));
    return card;
  }
}

/** The parts of a command, each with its verdict and why. @param {{command: string, verdict: string, why: string}[]} parts */
export function reasons(parts) {
  if (!parts.length) return null;
  return h("ul", { class: "reasons" }, parts.map(({ command, verdict, why }) =>
    h("li", {}, h("span", { class: `verdict ${verdict}` }, verdict), h("code", {}, command), why && h("span", { class: "why" }, why))));
}
