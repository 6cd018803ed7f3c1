/** Small curves of what a task used in the last two minutes. */

import { svg } from "./dom.js";

const [WIDTH, HEIGHT] = [64, 18];

/** @param {string} kind the class that gives the colour */
export function makeCurve(kind) {
  const area = svg("path", { class: "area" });
  const line = svg("path", { class: "line" });
  return svg("svg", { class: `curve ${kind}`, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, area, line);
}

/** @param {Element} curve @param {number[]} values oldest first @param {number} least what the full height stands for at least */
export function drawCurve(curve, values, least, samples = 60) {
  const most = Math.max(least, ...values);
  const step = WIDTH / (samples - 1);
  const points = values.map((value, index) => {
    const x = WIDTH - (values.length - 1 - index) * step;
    return `${x.toFixed(1)} ${(HEIGHT - 1 - (value / most) * (HEIGHT - 2)).toFixed(1)}`;
  });
  const line = points.length ? `M${points.join("L")}` : "";
  const [area, stroke] = curve.children;
  stroke.setAttribute("d", line);
  area.setAttribute("d", line && `${line}V${HEIGHT}H${points[0].split(" ")[0]}Z`);
}
