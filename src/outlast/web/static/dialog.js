/** Dialogs (the browser's own, which keeps the focus inside and closes with Esc) and short messages. */

import { button, fill, h, icon } from "./dom.js";

const SHOWN_MS = 7000;
const MOST = 4;

/** Open a dialog. @param {string} title @param {any[]} content @param {string} [name] a class @returns {HTMLDialogElement} */
export function openDialog(title, content, name = "") {
  const close = button("Close", () => dialog.close(), { class: "quiet close" }, icon("close"));
  const heading = h("h2", { id: `title-${Date.now()}` }, title);
  const dialog = h("dialog", { class: name, "aria-labelledby": heading.id }, h("header", {}, heading, close), ...content);
  // A press beside it closes it, too.
  dialog.addEventListener("mousedown", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Say something for a while in the corner. @param {string} text @param {{kind?: string, open?: () => void}} [more] */
export function toast(text, { kind = "", open } = {}) {
  const area = document.getElementById("toasts");
  const gone = () => element.remove();
  const element = h("div", { class: `toast ${kind}` }, h("span", { class: "text" }, text),
    open && button("Show", () => (open(), gone()), { class: "quiet" }), button("Dismiss", gone, { class: "quiet" }, icon("close")));
  area.append(element);
  while (area.children.length > MOST) area.firstElementChild.remove();
  let timer = setTimeout(gone, SHOWN_MS);
  element.addEventListener("mouseenter", () => clearTimeout(timer));
  element.addEventListener("mouseleave", () => (timer = setTimeout(gone, SHOWN_MS)));
}

/** @param {any} error */
export const fail = (error) => toast(error.message, { kind: "bad" });

/** What was refused, in a dialog or a form. @param {Element} place @param {string} text */
export const refuse = (place, text) => fill(place, text && h("p", { class: "refused", role: "alert" }, text));
