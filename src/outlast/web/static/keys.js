/** Keys of the keyboard in the notation of `outlast send --keys`: <Enter>, <C-c>, <M-x>, <S-Tab>, <lt>. Pure. */

// Those that are one byte take few modifiers; the others take each.
const BYTES = { Enter: "Enter", Tab: "Tab", Escape: "Esc", Backspace: "Backspace" };
const NAMES = {
  ArrowUp: "Up", ArrowDown: "Down", ArrowLeft: "Left", ArrowRight: "Right",
  Home: "Home", End: "End", PageUp: "PageUp", PageDown: "PageDown", Delete: "Delete", Insert: "Insert",
};

/** The key that leaves a terminal, as in telnet. @param {KeyboardEvent} event */
export const leaves = (event) => event.ctrlKey && event.key === "]";

/** Text as it is typed: a `<` would begin the name of a key. @param {string} text */
export const typed = (text) => text.replaceAll("<", "<lt>").replaceAll(/\r?\n/g, "<Enter>");

/** What a key press is, or null: it is text, or nothing that a terminal gets.
 * @param {{key: string, ctrlKey?: boolean, altKey?: boolean, metaKey?: boolean, shiftKey?: boolean}} event */
export function notation({ key, ctrlKey, altKey, metaKey, shiftKey }) {
  if (metaKey) return null;
  if (BYTES[key]) return key === "Tab" && shiftKey ? "<S-Tab>" : `<${altKey ? "M-" : ""}${BYTES[key]}>`;
  if (NAMES[key] || /^F([1-9]|1[0-2])$/.test(key)) return `<${ctrlKey ? "C-" : ""}${altKey ? "M-" : ""}${shiftKey ? "S-" : ""}${NAMES[key] ?? key}>`;
  if (ctrlKey && key === " ") return "<C-Space>";
  if (ctrlKey && /^[a-zA-Z@[\\\]^_]$/.test(key)) return `<C-${key.toLowerCase()}>`;
  return altKey && !ctrlKey && /^[\x21-\x7e]$/.test(key) && key !== "<" && key !== ">" ? `<M-${key}>` : null;
}
