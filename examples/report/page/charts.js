"use strict";
// The test of this page looks at these attributes.
const state = document.documentElement.dataset;
addEventListener("error", (event) => { state.error = event.message; });

const runs = JSON.parse(document.getElementById("data").textContent).runs;
const shown = { axis: "step", logarithmic: false, hidden: new Set() };
const charts = [
  { title: "Loss", unit: "nats per token", curves: ["train_loss", "validation_loss"], log: true, marks: true },
  { title: "Learning rate", unit: "of the schedule", curves: ["learning_rate"] },
  { title: "Gradient norm", unit: "of all gradients, before clipping", curves: ["gradient_norm"], log: true },
  { title: "Speed", unit: "tokens per second", curves: ["tokens_per_second"] },
];
const curveNames = { train_loss: "training", validation_loss: "validation", learning_rate: "rate",
  gradient_norm: "norm", tokens_per_second: "tokens/s" };
const axisNames = { step: "step", time: "training time", tokens: "tokens trained on" };

// An element with attributes, and children that are elements or texts.
function make(name, attributes = {}, ...children) {
  const inSvg = ["svg", "path", "line", "rect", "circle", "text", "g"].includes(name);
  const space = inSvg ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml";
  const element = document.createElementNS(space, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const colorOf = (run) => `var(--run-${runs.indexOf(run) % 6})`;

function numberText(value) {
  if (value === null || !Number.isFinite(value)) return "none";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e15)) return (+value.toPrecision(3)).toExponential();
  if (size >= 1e9) return +(value / 1e9).toPrecision(4) + "G";
  if (size >= 1e6) return +(value / 1e6).toPrecision(4) + "M";
  if (size >= 1e4) return +(value / 1e3).toPrecision(4) + "k";
  return String(+value.toPrecision(5));
}

function timeText(seconds) {
  if (seconds < 100) return `${+seconds.toPrecision(3)} s`;
  const minutes = seconds / 60;
  if (minutes < 100) return `${+minutes.toPrecision(3)} min`;
  return `${+(minutes / 60).toPrecision(4)} h`;
}

const positionText = (x) => shown.axis === "time" ? timeText(x) : numberText(x);
// What a reader reads: whole numbers of steps and tokens stay whole.
const exactText = (x) => shown.axis === "time" ? timeText(x) : `${shown.axis} ${x.toLocaleString("en")}`;

// Round numbers from `low` to `high`.
function ticks(low, high, count, logarithmic) {
  const found = [];
  if (logarithmic) {
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); ++power) {
      for (const digit of [1, 2, 5]) {
        const tick = digit * 10 ** power;
        if (tick >= low && tick <= high) found.push(tick);
      }
    }
    if (found.length >= 2) {
      const every = Math.ceil(found.length / 8);
      return found.filter((_, i) => i % every === 0);
    }
    found.length = 0;
  }
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((size) => size >= rough);
  for (let i = Math.ceil(low / step); i * step <= high * (1 + 1e-12); ++i) found.push(i * step);
  return found;
}

// From the range of values to pixels.
function scale(low, high, from, to, logarithmic) {
  const place = logarithmic ? Math.log : (x) => x;
  const begin = place(low), length = place(high) - begin;
  return (x) => from + (length > 0 ? (place(x) - begin) / length : 0.5) * (to - from);
}

// The points of a chart's curves that are to be seen.
function linesOf(chart) {
  const lines = [];
  for (const run of runs) {
    if (shown.hidden.has(run)) continue;
    for (const name of chart.curves) {
      const curve = run.curves[name];
      const isBad = (y) => y === null || (chart.log && shown.logarithmic && y <= 0);
      const points = curve.value.map((y, i) => ({ x: curve[shown.axis][i], y: isBad(y) ? null : y }));
      lines.push({ run, name, points: points.filter((p) => p.x !== null) });
    }
  }
  return lines.filter((line) => line.points.some((p) => p.y !== null));
}

function range(values, logarithmic) {
  let low = Infinity, high = -Infinity;
  for (const value of values) { low = Math.min(low, value); high = Math.max(high, value); }
  const same = high - low <= 1e-9 * Math.abs(high);  // ticks between nearer numbers would never end
  const margin = same ? Math.abs(low) / 10 || 1 : (high - low) * 0.04;
  if (logarithmic) return same ? [low / 2, high * 2] : [low / 1.03, high * 1.03];
  return [low >= 0 && low < high / 4 ? 0 : low - margin, high + margin];
}

function drawChart(chart) {
  const { figure, svg, reading } = chart;
  const logarithmic = Boolean(chart.log && shown.logarithmic);
  const lines = linesOf(chart);
  svg.replaceChildren();
  chart.lines = lines;
  chart.xs = [...new Set(lines.flatMap((line) => line.points.map((p) => p.x)))].sort((a, b) => a - b);
  chart.at = -1;
  const ys = lines.flatMap((line) => line.points.filter((p) => p.y !== null).map((p) => p.y));
  figure.dataset.points = ys.length;
  const width = Math.max(260, figure.clientWidth - 22), height = 250;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  if (lines.length === 0) {
    svg.append(make("text", { x: 8, y: 24 }, "No values."));
    reading.textContent = "";
    return;
  }
  const box = { left: 58, right: width - 12, top: 8, bottom: height - 40 };
  const xs = chart.xs;
  const [xLow, xHigh] = xs.length > 1 ? [xs[0], xs[xs.length - 1]] : [xs[0] - 1, xs[0] + 1];
  const [yLow, yHigh] = range(ys, logarithmic);
  chart.x = scale(xLow, xHigh, box.left, box.right);
  chart.y = scale(yLow, yHigh, box.bottom, box.top, logarithmic);
  chart.box = box;
  for (const tick of ticks(yLow, yHigh, 5, logarithmic)) {
    const y = chart.y(tick);
    svg.append(make("line", { class: "grid", x1: box.left, x2: box.right, y1: y, y2: y }),
      make("text", { x: box.left - 6, y: y + 4, "text-anchor": "end" }, numberText(+tick.toPrecision(12))));
  }
  for (const tick of xs.length > 1 ? ticks(xLow, xHigh, Math.max(3, width / 110)) : xs) {
    const x = chart.x(tick), label = positionText(+tick.toPrecision(12));
    const anchor = x > box.right - 4 * label.length ? "end" : "middle";
    svg.append(make("line", { class: "axis", x1: x, x2: x, y1: box.bottom, y2: box.bottom + 4 }),
      make("text", { x, y: box.bottom + 17, "text-anchor": anchor }, label));
  }
  svg.append(make("path", { class: "axis", d: `M${box.left} ${box.top}V${box.bottom}H${box.right}` }),
    make("text", { x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle" },
      axisNames[shown.axis]));
  if (chart.marks && shown.axis === "step") drawMarks(chart, xLow, xHigh);
  for (const line of lines) drawLine(chart, line);
  chart.reader = make("g", {});
  svg.append(chart.reader);
  read(chart, xs.length - 1);
}

function drawLine(chart, line) {
  let path = "", last = null;
  const dots = [], stroke = colorOf(line.run);
  const valid = line.points.filter((p) => p.y !== null).length;
  line.points.forEach((point, i) => {
    if (point.y === null) { last = null; return; }
    const x = chart.x(point.x).toFixed(1), y = chart.y(point.y).toFixed(1);
    path += `${last === null ? "M" : "L"}${x} ${y}`;
    const next = line.points[i + 1];
    if ((last === null && (!next || next.y === null)) || (line.name === "validation_loss" && valid <= 60))
      dots.push(make("circle", { cx: x, cy: y, r: 2.6, fill: colorOf(line.run) }));
    last = point;
  });
  chart.svg.append(
    make("path", { class: `curve ${line.name}`, d: path, stroke, "data-points": valid }), ...dots);
}

// Where runs were resumed, and their bad steps.
function drawMarks(chart, low, high) {
  const inside = (step) => step >= low && step <= high;
  for (const run of runs) {
    if (shown.hidden.has(run)) continue;
    for (const session of run.sessions) {
      if (!(session.from_step > 0) || !inside(session.from_step)) continue;
      const x = chart.x(session.from_step);
      const { top, bottom } = chart.box;
      chart.svg.append(make("line", { class: "resumed", x1: x, x2: x, y1: top, y2: bottom }));
    }
    for (const bad of run.bad_steps) {
      if (!inside(bad.step)) continue;
      const x = chart.x(bad.step), y = chart.box.bottom;
      chart.svg.append(make("path", { class: "bad", d: `M${x} ${y - 9}l4 8h-8z` }));
    }
  }
}
