/**
 * Builds elements. Text only ever becomes text nodes: nothing in this page parses markup, so what a command prints,
 * or what a task is called, cannot become an element.
 */

const SVG = "http://www.w3.org/2000/svg";

/** @param {Element} element @param {Record<string, any>} props */
function dress(element, props) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [type, listener] of Object.entries(value)) element.addEventListener(type, listener);
    else if (name === "value") /** @type {any} */ (element).value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

/**
 * @param {string} tag @param {Record<string, any>} [props] attributes; `on` has listeners
 * @param {...(Node|string|number|null|undefined|false)} children
 * @returns {any}
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  dress(element, props);
  append(element, children);
  return element;
}

/** The same for SVG. @param {string} tag @param {Record<string, any>} [props] @param {...Node} children @returns {any} */
export function svg(tag, props = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  dress(element, props);
  element.append(...children);
  return element;
}

/** @param {Element} element @param {any[]} children */
function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/** Replace what an element has inside. @param {Element} element @param {...any} children */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Set the text of an element only if it differs: an assignment alone would make the browser lay it out again.
 * @param {Element} element @param {string} text */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A button. @param {string} label @param {() => void} click @param {Record<string, any>} [props] @param {...any} children */
export function button(label, click, props = {}, ...children) {
  const named = children.length ? { "aria-label": label, title: label } : {};
  return h("button", { type: "button", ...named, ...props, on: { click } }, ...(children.length ? children : [label]));
}

const PATHS = {
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10Zm3.6-1.4L14 14",
  plus: "M8 3v10M3 8h10",
  close: "M4 4l8 8M12 4l-8 8",
  theme: "M8 2.5a5.5 5.5 0 1 0 0 11V2.5Zm0 0a5.5 5.5 0 0 1 0 11",
  bell: "M4 11V7a4 4 0 0 1 8 0v4l1 1.2H3L4 11Zm2.8 2.6a1.3 1.3 0 0 0 2.4 0",
  help: "M6 6.2a2 2 0 1 1 2.8 1.9c-.6.3-.8.7-.8 1.4M8 12v.1M8 14.5a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13Z",
  up: "M4 10l4-4 4 4",
  down: "M4 6l4 4 4-4",
  stop: "M5 2.5h6L14 5.5v5l-3 3H5l-3-3v-5l3-3Z",
  again: "M13 8a5 5 0 1 1-1.6-3.7M13 2v3h-3",
  edit: "M3 13l.6-2.8L10.8 3l2.2 2.2-7.2 7.2L3 13Z",
  copy: "M6 6h7v7H6zM10 6V3H3v7h3",
  save: "M8 2v8M4.5 7L8 10.5 11.5 7M3 13.5h10",
  bin: "M3 4.5h10M6 4.5V3h4v1.5M4.5 4.5l.5 9h6l.5-9",
  wide: "M2.5 6V2.5H6M13.5 10v3.5H10M2.5 2.5L6.5 6.5M13.5 13.5l-4-4",
  warn: "M8 2.5l6 11H2l6-11ZM8 6.5v3.5M8 12v.1",
};

/** A small picture beside or instead of a word. @param {keyof typeof PATHS} name */
export function icon(name) {
  const path = svg("path", { d: PATHS[name] });
  return svg("svg", { viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true" }, path);
}

/** Whether keys that are typed now are text for a field. @param {EventTarget|null} target */
export function isTyping(target) {
  return target instanceof Element && target.matches("input:not([type=checkbox]), textarea, select");
}
