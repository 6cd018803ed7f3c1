/** Start a command: the policy is asked while one types, and says what it thinks of each part. */

import { post } from "./api.js";
import { reasons } from "./approvals.js";
import { openDialog, refuse, toast } from "./dialog.js";
import { button, fill, h } from "./dom.js";

const TYPING_MS = 250;
const WORDS = { allow: "Runs without a question", ask: "You are asked before it runs", deny: "Denied by the policy" };
let kept = null; // what was typed and not started

/** @param {import("./state.js").Store} store @param {(id: string) => void} opened @param {any} [like] a task to begin with */
export function openStart(store, opened, like) {
  const before = like ?? kept ?? {};
  const recent = [...store.tasks.values()].slice(0, 500);
  const known = (values) => [...new Set(values)].filter(Boolean).slice(0, 30);
  const command = h("textarea", { id: "start-command", class: "code", rows: 3, required: true, spellcheck: "false", autocapitalize: "off", placeholder: "make test", on: { input: checkSoon } });
  const cwd = field("start-cwd", { list: "known-cwds", class: "code", placeholder: "your home directory", on: { input: checkSoon } });
  const session = field("start-session", { list: "known-sessions", placeholder: store.server.session || "default", on: { input: checkSoon } });
  const description = field("start-description", { placeholder: "what it is for" });
  const name = field("start-name", { placeholder: "a name to call it by" });
  const limit = field("start-limit", { type: "number", min: 1, placeholder: "none" });
  const [tty, open, sandbox] = [check("start-tty", "In a terminal"), check("start-open", "Keep its input open"), check("start-sandbox", "In the sandbox")];
  const verdict = h("div", { class: "check", role: "status", "aria-live": "polite" });
  const refused = h("div");
  command.value = before.command ?? "";
  cwd.value = before.cwd ?? "";
  session.value = before.session ?? "";
  description.value = before.description ?? "";

  let timer = 0;
  let asking = new AbortController();
  function checkSoon() {
    clearTimeout(timer);
    timer = setTimeout(ask, TYPING_MS);
  }
  async function ask() {
    asking.abort();
    asking = new AbortController();
    const { signal } = asking;
    if (!command.value.trim()) return fill(verdict, h("p", { class: "dim" }, "The policy judges the command while you type."));
    try {
      const found = await post("/api/check", where({ command: command.value }), signal);
      fill(verdict, h("p", {}, h("span", { class: `verdict ${found.verdict}` }, found.verdict), WORDS[found.verdict] ?? ""), reasons(found.reasons));
    } catch (error) {
      if (!signal.aborted) fill(verdict, h("p", { class: "dim" }, error.message));
    }
  }
  const where = (request) => ({ ...request, ...(cwd.value && { cwd: cwd.value }), ...(session.value && { session: session.value }) });

  async function start() {
    if (!command.value.trim()) return refuse(refused, "Type a command first."), command.focus();
    const request = where({ command: command.value });
    for (const [key, one] of [["name", name], ["description", description]]) if (one.value) request[key] = one.value;
    if (limit.value) request.limit = Number(limit.value);
    if (tty.box.checked) request.tty = [100, 30];
    if (open.box.checked) request.stdin_open = true;
    if (sandbox.box.checked) request.sandbox = true;
    go.disabled = true;
    try {
      const { task, approval } = await post("/api/tasks", request);
      kept = null;
      dialog.dataset.started = "yes";
      dialog.close();
      if (approval) toast("The policy asks about it: answer above the list.");
      else opened(task.task_id);
    } catch (error) {
      refuse(refused, error.message);
    }
    go.disabled = false;
  }
  const go = button("Start", start, { class: "primary" });
  const label = (target, text, ...more) => h("label", { for: target.id, class: "field" }, h("span", {}, text), target, ...more);
  const form = h("form", { class: "start", on: { submit: (event) => (event.preventDefault(), start()), keydown: (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && start() } },
    label(command, "Command"), verdict,
    h("div", { class: "pair" }, label(cwd, "Directory"), label(session, "Session")),
    h("div", { class: "pair" }, label(description, "Description"), label(name, "Name"), label(limit, "Limit in seconds")),
    h("div", { class: "checks" }, tty.element, open.element, sandbox.element),
    list("known-cwds", known(recent.map((task) => task.cwd))), list("known-sessions", known([...(store.server.sessions ?? []), ...recent.map((task) => task.session)])),
    refused, h("footer", {}, h("span", { class: "dim" }, h("kbd", {}, "Ctrl"), " ", h("kbd", {}, "Enter"), " starts it"), go));
  const dialog = openDialog("Start a command", [form], "wide");
  dialog.addEventListener("close", () => {
    if (!dialog.dataset.started && !like) kept = { command: command.value, cwd: cwd.value, session: session.value, description: description.value };
  });
  command.focus();
  ask();
}

const field = (id, props) => h("input", { type: "text", id, autocomplete: "off", spellcheck: "false", ...props });
const list = (id, values) => h("datalist", { id }, values.map((value) => h("option", { value })));

function check(id, text) {
  const box = h("input", { type: "checkbox", id });
  return { box, element: h("label", { for: id }, box, text) };
}
