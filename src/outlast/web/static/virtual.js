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
    /** @type {Map<string, {element: HTMLElement, top: number, height: number}>} */
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
    const gone = new Map(this.shown);
    for (let index = from; index < to; index++) {
      const row = this.rows[index];
      let place = gone.get(row.key);
      gone.delete(row.key);
      const isNew = !place;
      if (!place) {
        place = { element: this.how.create(row), top: -1, height: 0 };
        this.shown.set(row.key, place);
        this.space.append(place.element);
      }
      if (place.top !== this.tops[index]) {
        place.top = this.tops[index];
        place.element.style.transform = `translateY(${place.top}px)`;
      }
      const height = this.tops[index + 1] - place.top;
      if (place.height !== height) place.element.style.height = `${(place.height = height)}px`;
      if (all || isNew) this.how.update(place.element, row, index);
    }
    for (const [key, place] of gone) place.element.remove(), this.shown.delete(key);
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
