/** Calls of the server: JSON in and out, errors with a code and a sentence, streams that come back by themselves. */

const FIRST_RETRY_MS = 500;
const LONGEST_RETRY_MS = 5000;
const KEY = "outlast-key";

// The cookie may only read, because a browser sends it to every port of this machine. What changes something needs this
// key as well; the link of `outlast serve` brings it in the fragment, which no server sees.
const brought = new URLSearchParams(location.hash.slice(1)).get("key");
if (brought) {
  localStorage.setItem(KEY, brought);
  history.replaceState(null, "", location.pathname);
}

/** What the server refused, or that it could not be reached (status 0). */
export class ApiError extends Error {
  /** @param {number} status @param {string} code @param {string} message */
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** @param {string} method @param {string} path @param {any} [body] @param {AbortSignal} [signal] */
async function call(method, path, body, signal) {
  const headers = method === "GET" ? {} : { "Content-Type": "application/json", "X-Outlast-Key": localStorage.getItem(KEY) ?? "" };
  const text = method === "GET" ? undefined : JSON.stringify(body ?? {});
  let reply;
  try {
    reply = await fetch(path, { method, headers, body: text, signal, cache: "no-store" });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "unreachable", "The server does not answer.");
  }
  const value = await reply.json().catch(() => null);
  if (value?.error === "no-key") throw new ApiError(403, "no-key", "To change something, open the link that `outlast serve` printed again.");
  if (!reply.ok) throw new ApiError(reply.status, value?.error ?? "error", value?.message ?? `The server answered ${reply.status}.`);
  return value;
}

/** @param {string} path @param {Record<string, any>} [params] those without a value are left out @param {AbortSignal} [signal] */
export function get(path, params = {}, signal) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) if (value !== undefined && value !== null && value !== "") query.set(name, String(value));
  return call("GET", query.size ? `${path}?${query}` : path, undefined, signal);
}

/** @param {string} path @param {any} [body] @param {AbortSignal} [signal] */
export const post = (path, body, signal) => call("POST", path, body, signal);

/** @param {string} path */
export const remove = (path) => call("DELETE", path);

/** @param {string} id @param {string} [rest] */
export const taskPath = (id, rest = "") => `/api/tasks/${encodeURIComponent(id)}${rest}`;

/**
 * A stream of events that connects again after each loss, later each time.
 * @param {string} path
 * @param {Record<string, (value: any) => void>} handlers by the name of the event
 * @param {(state: "live"|"lost"|"refused") => void} [told]
 * @returns {{close: () => void, retry: () => void}}
 */
export function stream(path, handlers, told = () => {}) {
  let source = null;
  let timer = 0;
  let wait = FIRST_RETRY_MS;
  let closed = false;

  const connect = () => {
    clearTimeout(timer);
    source?.close();
    source = new EventSource(path);
    source.onopen = () => ((wait = FIRST_RETRY_MS), told("live"));
    source.onerror = lost;
    for (const [name, handler] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => handler(JSON.parse(/** @type {MessageEvent} */ (event).data)));
    }
  };
  const lost = async () => {
    source.close();
    if (closed) return;
    timer = setTimeout(connect, wait);
    told("lost");
    wait = Math.min(wait * 2, LONGEST_RETRY_MS);
    // An EventSource does not say why it failed.
    const error = await get("/api/state").then(() => null, (one) => one);
    if (error?.status === 401 && !closed) clearTimeout(timer), told("refused");
  };
  connect();
  return {
    close() {
      closed = true;
      clearTimeout(timer);
      source.close();
    },
    retry: connect,
  };
}
