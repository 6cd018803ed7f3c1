/**
 * Colours of terminals: a line with SGR sequences becomes runs of text with a style. Pure; whatever else begins with
 * ESC is dropped. A style has the names of the screen's cells: fg, bg, bold, dim, italic, underline, inverse, strike.
 */

const SEQUENCE = /\x1b\[([\d;:]*)m|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[^[]?|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]/g;
const ON = { 1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "strike" };
const OFF = { 22: ["bold", "dim"], 23: ["italic"], 24: ["underline"], 27: ["inverse"], 29: ["strike"], 39: ["fg"], 49: ["bg"] };

/**
 * @param {string} line
 * @returns {{text: string, style: Record<string, any>}[]}
 */
export function parse(line) {
  if (!line.includes("\x1b") && !/[\x00-\x08\x0b-\x1f\x7f]/.test(line)) return line ? [{ text: line, style: {} }] : [];
  const runs = [];
  let style = {};
  let from = 0;
  const push = (to) => to > from && runs.push({ text: line.slice(from, to), style });
  for (const match of line.matchAll(SEQUENCE)) {
    push(match.index);
    from = match.index + match[0].length;
    if (match[1] !== undefined) style = restyle(style, match[1]);
  }
  push(line.length);
  return runs;
}

/** The style after one sequence. @param {Record<string, any>} style @param {string} text its parameters */
function restyle(style, text) {
  const next = { ...style };
  const codes = text.split(/[;]/);
  for (let at = 0; at < codes.length; at++) {
    const [first, ...inner] = codes[at].split(":");
    const code = Number(first || 0);
    if (code === 0) Object.keys(next).forEach((name) => delete next[name]);
    else if (code in ON) next[ON[code]] = !(code === 4 && inner[0] === "0");
    else if (code in OFF) OFF[code].forEach((name) => delete next[name]);
    else if (code === 38 || code === 48) {
      const rest = inner.length ? inner : codes.slice(at + 1);
      const [colour, used] = extended(rest, inner.length > 0);
      if (!inner.length) at += used;
      if (colour) next[code === 38 ? "fg" : "bg"] = colour;
    } else if (code >= 30 && code <= 37) next.fg = `ansi-${code - 30}`;
    else if (code >= 40 && code <= 47) next.bg = `ansi-${code - 40}`;
    else if (code >= 90 && code <= 97) next.fg = `ansi-${code - 82}`;
    else if (code >= 100 && code <= 107) next.bg = `ansi-${code - 92}`;
  }
  return next;
}

/** What follows 38 or 48: a colour, and how many parameters it took. @returns {[string|null, number]} */
function extended(rest, colons) {
  if (rest[0] === "5") return [indexed(Number(rest[1] || 0)), 2];
  if (rest[0] !== "2") return [null, 1];
  const values = (colons && rest.length > 4 ? rest.slice(2, 5) : rest.slice(1, 4)).map((one) => Number(one || 0));
  return [values.length === 3 && values.every((one) => one < 256) ? hex(values) : null, 4];
}

const hex = (values) => `#${values.map((one) => one.toString(16).padStart(2, "0")).join("")}`;

/** A colour of the table of 256. @param {number} n */
function indexed(n) {
  if (n < 16) return `ansi-${n}`;
  if (n > 255) return null;
  if (n > 231) return hex([0, 0, 0].fill(8 + (n - 232) * 10));
  const level = (one) => (one ? 55 + one * 40 : 0);
  return hex([Math.floor((n - 16) / 36), Math.floor((n - 16) / 6) % 6, (n - 16) % 6].map(level));
}

const FLAGS = ["bold", "dim", "italic", "underline", "strike"];

/** A run as an element. Colours of 24 bits are set as properties: a style attribute would be refused by the policy.
 * @param {string} text @param {Record<string, any>} style @returns {Node} */
export function paint(text, style) {
  const node = document.createTextNode(text);
  let { fg, bg } = style;
  if (style.inverse) [fg, bg] = [bg ?? "back", fg ?? "fore"];
  const classes = FLAGS.filter((name) => style[name]);
  if (!fg && !bg && !classes.length) return node;
  const span = document.createElement("span");
  for (const [kind, colour] of [["fg", fg], ["bg", bg]]) {
    if (!colour) continue;
    if (!/^#[0-9a-f]{6}$/i.test(colour)) classes.push(`${kind}-${colour}`);
    else if (kind === "fg") span.style.color = colour;
    else span.style.backgroundColor = colour;
  }
  if (classes.length) span.className = classes.filter((name) => /^[\w-]+$/.test(name)).join(" ");
  span.append(node);
  return span;
}
