/** Keys of the keyboard in the notation of `outlast send --keys`: <Enter>, <C-c>, <M-x>. Pure. */

const NAMES = {
  Enter: "Enter", Tab: "Tab", Escape: "Esc", ArrowUp: "Up", ArrowDown: "Down", ArrowLeft: "Left", ArrowRight: "Right",
  Home: "Home", End: "End", PageUp: "PageUp", PageDown: "PageDown", Backspace: "Backspace", Delete: "Delete",
};

/** The key that leaves a terminal, as in telnet. @param {KeyboardEvent} event */
export const leaves = (event) => event.ctrlKey && event.key === "]";

/** What a key press is, or null: it is text, or nothing that a terminal gets.
 * @param {{key: string, ctrlKey: boolean, altKey: boolean, metaKey: boolean, shiftKey: boolean}} event */
export function notation(event) {
  const { key, ctrlKey, altKey, metaKey } = event;
  if (metaKey) return null;
  if (NAMES[key]) return `<${altKey && key.length > 1 ? "M-" : ""}${NAMES[key]}>`;
  if (/^F([1-9]|1[0-2])$/.test(key)) return `<${key}>`;
  if ([...key].length !== 1) return null;
  if (ctrlKey && /^[a-zA-Z@[\\\]^_ ]$/.test(key)) return `<C-${key === " " ? "@" : key.toLowerCase()}>`;
  if (altKey && /^[\x21-\x7e]$/.test(key) && key !== "<" && key !== ">") return `<M-${key}>`;
  return null;
}
