/**
 * A list of any length, of which only what can be seen is in the document. Rows have known heights; each stands at its
 * place by a transform, so that scrolling moves nothing but the scroller.
 */

const SPARE = 8; // rows above and below what is seen

export class VirtualList {
  /**
   * @param {HTMLElement} scroller
   * @param {{height: (row: any) => number, create: (row: any) => HTMLElement, update: (element: HTMLElement, row: any, index: number) => void}} how
   */
  constructor(scroller, how) {
    this.scroller = scroller;
    this.how = how;
    this.space = document.createElement("div");
    this.space.className = "space";
    this.space.setAttribute("role", "presentation");
    scroller.append(this.space);
    /** @type {any[]} */
    this.rows = [];
    this.tops = [0];
    /** @type {Map<string, {element: HTMLElement, kind: string, top: number, height: number}>} */
    this.shown = new Map();
    scroller.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(scroller);
  }

  /** @param {any[]} rows each with a `key` */
  set(rows) {
    this.rows = rows;
    this.tops = new Array(rows.length + 1);
    let top = 0;
    rows.forEach((row, index) => ((this.tops[index] = top), (top += this.how.height(row))));
    this.tops[rows.length] = top;
    this.space.style.height = `${top}px`;
    this.draw(true);
  }

  /** The row at a height. @param {number} y */
  at(y) {
    let [low, high] = [0, this.rows.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.tops[middle + 1] <= y) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Put the rows that can be seen into the document. @param {boolean} [all] also those that are there may differ */
  draw(all = false) {
    const { scrollTop, clientHeight } = this.scroller;
    const from = Math.max(0, this.at(scrollTop) - SPARE);
    const to = Math.min(this.rows.length, this.at(scrollTop + clientHeight) + SPARE + 1);
    const seen = this.rows.slice(from, to);
    const keys = new Set(seen.map((row) => row.key));
    // An element that went out of sight is used again: making one is most of what scrolling costs.
    const free = Map.groupBy([...this.shown].filter(([key]) => !keys.has(key)), ([, place]) => place.kind);
    seen.forEach((row, offset) => {
      const index = from + offset;
      const isNew = !this.shown.has(row.key);
      const place = this.shown.get(row.key) ?? this.take(row, free);
      if (place.top !== this.tops[index]) place.element.style.transform = `translateY(${(place.top = this.tops[index])}px)`;
      const height = this.tops[index + 1] - place.top;
      if (place.height !== height) place.element.style.height = `${(place.height = height)}px`;
      if (all || isNew) this.how.update(place.element, row, index);
    });
    for (const [key, place] of [...free.values()].flat()) place.element.remove(), this.shown.delete(key);
  }

  /** An element for a row that was not seen: one that is free, or a new one. */
  take(row, free) {
    const [key, place] = free.get(row.kind)?.pop() ?? ["", { element: this.how.create(row), kind: row.kind, top: -1, height: 0 }];
    this.shown.delete(key);
    this.shown.set(row.key, place);
    if (!key) this.space.append(place.element);
    return place;
  }

  /** Scroll until a row can be seen. @param {number} index */
  reveal(index) {
    const [top, bottom] = [this.tops[index], this.tops[index + 1]];
    const { scrollTop, clientHeight } = this.scroller;
    const head = this.how.height({ kind: "session" });
    if (top - head < scrollTop) this.scroller.scrollTop = top - head;
    else if (bottom > scrollTop + clientHeight) this.scroller.scrollTop = bottom - clientHeight;
    this.draw();
  }
}
