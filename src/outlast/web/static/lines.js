/** The lines of one task's output, fetched in chunks as they are looked at; the chunks that were seen last are kept. */

import { get, taskPath } from "./api.js";

const CHUNK = 500;
const MOST_CHUNKS = 60;

export class Lines {
  /** @param {string} id @param {() => void} changed */
  constructor(id, changed) {
    this.id = id;
    this.changed = changed;
    this.stream = "both";
    this.reset();
  }

  reset() {
    this.abort?.abort();
    this.abort = new AbortController();
    /** @type {Map<number, any[]>} */
    this.chunks = new Map();
    this.asked = new Set();
    this.total = 0;
    this.isComplete = false;
    this.dropped = 0;
    this.error = "";
  }

  /** @param {string} stream both, stdout or stderr */
  choose(stream) {
    this.stream = stream;
    this.reset();
  }

  /** The line with an index from 0, if it is here. @param {number} index */
  at(index) {
    return this.chunks.get(Math.floor(index / CHUNK))?.[index % CHUNK];
  }

  /** There may be more. @param {number} total */
  grow(total) {
    if (total < this.total) this.reset(); // the middle was dropped: what is behind it has other numbers now
    this.total = total;
    this.changed();
  }

  /** Fetch what is not here of a range. @param {number} from @param {number} to */
  need(from, to) {
    const last = Math.floor(Math.max(from, Math.min(to, this.total) - 1) / CHUNK);
    for (let chunk = Math.max(0, Math.floor(from / CHUNK)); chunk <= last; chunk++) {
      const have = this.chunks.get(chunk);
      if (!have || (have.length < CHUNK && chunk * CHUNK + have.length < this.total)) this.fetch(chunk);
    }
  }

  /** @param {number} chunk */
  async fetch(chunk) {
    if (this.asked.has(chunk)) return;
    this.asked.add(chunk);
    const { signal } = this.abort;
    const have = this.chunks.get(chunk) ?? [];
    const keep = Math.max(0, have.length - 1); // the last one may have been in the middle of a line
    try {
      const params = { stream: this.stream, from: chunk * CHUNK + keep + 1, count: CHUNK - keep };
      const reply = await get(taskPath(this.id, "/lines"), params, signal);
      if (signal.aborted) return;
      this.take(chunk, have.slice(0, keep), reply);
    } catch (error) {
      if (!signal.aborted) this.error = error.message;
    } finally {
      if (!signal.aborted) this.asked.delete(chunk), this.changed();
    }
  }

  take(chunk, kept, { lines, total, complete, dropped }) {
    if (dropped !== this.dropped && this.chunks.size) this.reset();
    this.dropped = dropped;
    this.error = "";
    this.chunks.delete(chunk);
    this.chunks.set(chunk, [...kept, ...lines]);
    if (this.chunks.size > MOST_CHUNKS) this.chunks.delete(this.chunks.keys().next().value);
    this.total = Math.max(this.total, total);
    this.isComplete = complete;
  }

  /** Look again at the end: the last line may have grown without a new one. */
  async refresh() {
    const chunk = Math.floor(Math.max(0, this.total - 1) / CHUNK);
    await this.fetch(chunk);
  }
}
