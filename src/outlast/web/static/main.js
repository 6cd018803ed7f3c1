/** Puts the page together: the header, the overview, the task that is open, and the keys. The address says what is open. */

import { Approvals } from "./approvals.js";
import { openDialog } from "./dialog.js";
import { button, fill, h, icon, isTyping, say } from "./dom.js";
import { count, isWaiting, LOOKS } from "./format.js";
import { TaskList } from "./list.js";
import { Notices } from "./notices.js";
import { openStart } from "./start.js";
import { Store } from "./state.js";
import { TaskView } from "./task.js";
import { Timeline } from "./timeline.js";

const THEMES = ["auto", "light", "dark"];
const TYPING_MS = 80;
const $ = (id) => document.getElementById(id);

const store = new Store();
const open = (id) => (location.hash = `#/${encodeURIComponent(id)}`);
const close = () => (location.hash = "#/");
const list = new TaskList(store, { open, counted: (shown) => drawEmpty(shown) });
const approvals = new Approvals(store);
const notices = new Notices(store, open);
const timeline = new Timeline(store, { open });
/** @type {TaskView|null} */
let view = null;

// --- the header ---

const CHIPS = [["all", "All", ""], ["attention", "Needs input", "!"], ...Object.entries({ running: LOOKS.running, pending: LOOKS.pending, failed: LOOKS.failed, completed: LOOKS.completed, killed: LOOKS.killed }).map(([key, look]) => [key, look.word, look.icon])];
const chips = new Map(CHIPS.map(([key, word, glyph]) => {
  const number = h("span", { class: "number" });
  const chip = h("button", { type: "button", class: `chip is-${key}`, title: word, "aria-pressed": String(key === "all"), on: { click: () => choose(key) } }, glyph && h("span", { "aria-hidden": "true" }, glyph), h("span", { class: "label" }, word), number);
  return [key, { chip, number }];
}));
const search = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter the tasks by words; session:x, type:x and is:x work too", title: "Words; also session:NAME type:test is:failed", spellcheck: "false", autocomplete: "off",
  on: { input: () => (clearTimeout(search.timer), (search.timer = setTimeout(() => list.show({ query: search.value }), TYPING_MS))) } });
const ORDER_WORDS = { state: "By state", newest: "Newest first", longest: "Longest first", cpu: "Most CPU", memory: "Most memory", command: "By command" };
const order = h("select", { "aria-label": "Order", on: { change: () => (localStorage.setItem("outlast-order", order.value), list.show({ order: order.value })) } }, Object.entries(ORDER_WORDS).map(([value, word]) => h("option", { value }, word)));
const grouped = h("button", { type: "button", class: "quiet toggle", title: "Group by session (s)", on: { click: () => group(!list.look.grouped) } }, "Sessions");

function choose(filter) {
  const next = list.look.filter === filter ? "all" : filter;
  for (const [key, { chip }] of chips) chip.setAttribute("aria-pressed", String(key === next));
  list.show({ filter: next });
}

function group(isGrouped) {
  localStorage.setItem("outlast-grouped", isGrouped ? "yes" : "no");
  grouped.setAttribute("aria-pressed", String(isGrouped));
  list.show({ grouped: isGrouped });
}

function setTheme(theme) {
  localStorage.setItem("outlast-theme", theme);
  const isDark = theme === "dark" || (theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  timeline.redraw();
}

function drawCounts() {
  const counts = Object.fromEntries([...chips.keys()].map((key) => [key, 0]));
  for (const task of store.tasks.values()) {
    counts[task.status]++;
    counts.all++;
    if (isWaiting(task)) counts.attention++;
  }
  for (const [key, { chip, number }] of chips) {
    say(number, count(counts[key]));
    chip.classList.toggle("none", !counts[key] && key !== "all");
    if (key === "attention") chip.hidden = !counts[key] && list.look.filter !== key;
  }
}

function drawConnection() {
  const { connection } = store;
  const words = { live: "Live", connecting: "Connecting", lost: "Connection lost", refused: "No access" };
  const place = $("connection");
  place.className = `connection ${connection}`;
  say(place.querySelector(".word"), words[connection]);
  const banner = $("lost");
  banner.hidden = connection === "live" || connection === "connecting";
  document.body.classList.toggle("is-lost", !banner.hidden);
  if (connection === "refused") fill(banner, "This browser is not let in any more. Open the link that ", h("code", {}, "outlast serve"), " printed.");
  else if (connection === "lost" && !banner.querySelector("button")) fill(banner, "The server does not answer. What you see is from before; the tasks themselves go on. Trying again … ", button("Try now", () => store.events.retry(), { class: "quiet" }));
}

function drawEmpty(shown) {
  drawCounts();
  const empty = $("empty");
  empty.hidden = shown > 0 || !store.isLoaded;
  timeline.element.hidden = store.tasks.size === 0;
  if (empty.hidden) return;
  const line = (text, what) => h("li", {}, h("code", {}, text), h("span", {}, what));
  if (store.tasks.size) fill(empty, h("h2", {}, "No task matches"), button("Show all tasks", () => ((search.value = ""), list.look.query = "", list.look.filter === "all" ? list.show({}) : choose("all"))));
  else fill(empty, h("h2", {}, "No tasks yet"), h("p", {}, "Start one here, or from a terminal; it appears at once."), button("Start a command", () => openStart(store, open), { class: "primary" }),
    h("ul", { class: "ways" }, line("outlast run --bg 'make test'", "runs a command in the background"), line("outlast agent start claude 'fix the tests'", "starts an agent as a task"), line("claude mcp add outlast -- outlast mcp", "gives Claude Code these tasks as tools")));
}

// --- what is open ---

function route() {
  const id = decodeURIComponent(location.hash.replace(/^#\/?/, ""));
  if (view?.id === id) return;
  const had = view;
  view?.close();
  view = id ? new TaskView(store, id, { open, close, edit: (task) => openStart(store, open, task), zoom }) : null;
  document.body.classList.toggle("has-task", Boolean(id));
  if (!id) document.body.classList.remove("zoomed");
  list.setOpened(id);
  if (view) fill($("detail"), view.element), view.element.focus({ preventScroll: true });
  else if (had) list.element.focus({ preventScroll: true });
}

const zoom = () => document.body.classList.toggle("zoomed");

// --- keys ---

const KEYS = [
  ["/", "filter the tasks; in a task: search its output", () => (view && view.tab === "output" ? view.output.field : search).focus()],
  ["n", "start a command", () => openStart(store, open)],
  ["j", "next task", () => (list.element.focus(), list.move(1))],
  ["k", "previous task", () => (list.element.focus(), list.move(-1))],
  ["Enter", "open the task", () => list.enter()],
  ["Esc", "close what is open", () => close()],
  ["a", "go to what waits for an answer", () => approvals.focus()],
  ["i", "type input for the task", () => view?.element.querySelector(".input input, .keyboard")?.focus()],
  ["x", "kill the task", () => view?.task && view.element.querySelector(".actions .danger")?.click()],
  ["f", "follow the output", () => view?.output?.setFollowing(true)],
  ["e", "go to the first error", () => view?.output && (view.show("output"), view.output.firstError())],
  ["z", "task in the whole width", () => view && zoom()],
  ["s", "group by session", () => group(!list.look.grouped)],
  ["t", "light, dark, or as the system", () => nextTheme()],
  ["?", "these keys", () => showKeys()],
];

function nextTheme() {
  setTheme(THEMES[(THEMES.indexOf(localStorage.getItem("outlast-theme") ?? "auto") + 1) % THEMES.length]);
}

function showKeys() {
  openDialog("Keys", [h("dl", { class: "keys" }, KEYS.map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])), h("p", { class: "dim" }, "The arrow keys move in lists; left and right close and open a group.")], "narrow");
}

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || document.querySelector("dialog[open]") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (isTyping(event.target)) {
    if (event.key === "Escape") event.target.blur(), event.target === search && list.element.focus();
    else if (event.key === "Enter" && event.target === search) list.element.focus(), list.move(0);
    return;
  }
  if (event.key === "Enter" && event.target !== document.body) return; // a button's own
  const found = KEYS.find(([key]) => key === event.key || (key === "Esc" && event.key === "Escape"));
  if (!found) return;
  event.preventDefault();
  found[2]();
});

// --- begin ---

fill($("chips"), ...[...chips.values()].map(({ chip }) => chip));
fill($("tools"), h("span", { class: "search" }, icon("search"), search, h("kbd", { "aria-hidden": "true" }, "/")), order, grouped);
fill($("buttons"), button("Start a command (n)", () => openStart(store, open), { class: "primary" }, icon("plus"), h("span", { class: "label" }, "New")),
  button("Notices", () => notices.show(), { class: "quiet" }, icon("bell")), button("Light, dark or as the system (t)", nextTheme, { class: "quiet" }, icon("theme")), button("Keys (?)", showKeys, { class: "quiet" }, icon("help")));
$("above").append(approvals.element, timeline.element);
$("overview").append(list.element);
list.look.order = order.value = localStorage.getItem("outlast-order") ?? "state";
group(localStorage.getItem("outlast-grouped") !== "no");
setTheme(localStorage.getItem("outlast-theme") ?? "auto");
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme(localStorage.getItem("outlast-theme") ?? "auto"));
store.addEventListener("tasks", () => { drawCounts(); say($("host"), store.server.hostname ?? ""); notices.tellApprovals(); });
store.addEventListener("usage", drawCounts);
store.addEventListener("connection", drawConnection);
addEventListener("hashchange", route);
store.start();
route();
