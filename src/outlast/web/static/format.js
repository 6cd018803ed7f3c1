/** Numbers, times and statuses in the words of the page. Pure. */

/** How a status is shown: an icon, a word; the colour is the class of the same name. */
export const LOOKS = {
  running: { icon: "●", word: "Running" },
  pending: { icon: "○", word: "Pending" },
  completed: { icon: "✔", word: "Done" },
  failed: { icon: "✖", word: "Failed" },
  killed: { icon: "⊘", word: "Stopped" },
};

/** @param {string} status */
export const lookOf = (status) => LOOKS[status] ?? { icon: "?", word: status };

/** @param {any} task */
export const isOver = (task) => task.status !== "running" && task.status !== "pending";

/** @param {any} task */
export const isWaiting = (task) => task.status === "running" && task.activity === "waiting for input";

/** 4.2s, 3m 12s, 2h 5m, 3d 4h. @param {number} ms */
export function duration(ms) {
  const s = Math.max(0, ms) / 1000;
  if (s < 10) return `${s.toFixed(1)}s`;
  if (s < 60) return `${Math.floor(s)}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m ${Math.floor(s % 60)}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h ${Math.floor((s % 3600) / 60)}m`;
  return `${Math.floor(s / 86400)}d ${Math.floor((s % 86400) / 3600)}h`;
}

/** How long a task has run, or ran. @param {any} task @param {number} now */
export const elapsed = (task, now) => (isOver(task) ? task.elapsed_ms : Math.max(0, now - task.started_at) * 1000);

/** just now, 3m ago, 2h ago. @param {number} at @param {number} now */
export function ago(at, now) {
  const s = Math.max(0, now - at);
  return s < 5 ? "just now" : `${duration(Math.floor(s) * 1000).split(" ")[0].replace(".0", "")} ago`;
}

/** @param {number|null|undefined} count */
export function bytes(count) {
  if (count === null || count === undefined) return "";
  const units = ["B", "KB", "MB", "GB", "TB"];
  let at = 0;
  while (count >= 1000 && at < units.length - 1) (count /= 1024), at++;
  return `${count < 10 && at ? count.toFixed(1) : Math.round(count)} ${units[at]}`;
}

/** @param {number|null|undefined} value of one core */
export const percent = (value) => (value === null || value === undefined ? "" : `${Math.round(value)}%`);

const two = (n) => String(n).padStart(2, "0");

/** 14:03:09, with milliseconds if they are asked for. @param {number} at epoch seconds */
export function clock(at, millis = false) {
  const date = new Date(at * 1000);
  const text = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return millis ? `${text}.${String(date.getMilliseconds()).padStart(3, "0")}` : text;
}

/** With the day. @param {number|null} at */
export function moment(at) {
  if (!at) return "";
  const date = new Date(at * 1000);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(at)}`;
}

const SIGNALS = { 1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 6: "SIGABRT", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 13: "SIGPIPE", 15: "SIGTERM" };

const isElsewhere = (task) => task.executor !== "local";

/** What a pending task waits for. @param {any} task */
function waits(task) {
  if (task.waits_for?.length) return `waits for ${task.waits_for.join(", ")}`;
  return isElsewhere(task) ? task.error || `waits to begin on ${task.executor}` : "waits for a place";
}

/** What a running task does; of one on another machine where it is, or why that is not known now. @param {any} task */
export const doing = (task) => (task.status !== "running" ? "" : task.activity || (isElsewhere(task) ? task.error || `on ${task.executor}` : ""));

/** How a task ended, or what it waits for, in a few words. @param {any} task */
export function ending(task) {
  if (task.status === "pending") return waits(task);
  if (!isOver(task)) return "";
  const stages = task.pipe_status?.length > 1 && task.pipe_status.some(Boolean) ? ` (${task.pipe_status.join(" | ")})` : "";
  if (task.reason === "exit") return `exit code ${task.exit_code}${stages}`;
  if (task.reason === "signal") return `ended by ${SIGNALS[task.signal] ?? `signal ${task.signal}`}`;
  return task.ended_by || task.error || task.reason || "";
}

/** A thousand as 1,000. @param {number} n */
export const count = (n) => n.toLocaleString("en-US");

/** One word as a shell reads it. @param {string} word */
export const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);
