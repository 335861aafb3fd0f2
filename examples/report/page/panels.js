// Moves the reading point of a chart to its `index`th position and says what is there.
function read(chart, index) {
  if (chart.xs.length === 0) return;
  chart.at = Math.min(Math.max(index, 0), chart.xs.length - 1);
  const x = chart.xs[chart.at], place = chart.x(x);
  chart.reader.replaceChildren(
    make("line", { class: "reader", x1: place, x2: place, y1: chart.box.top, y2: chart.box.bottom }));
  const parts = [make("b", {}, exactText(x))];
  for (const line of chart.lines) {
    // A curve without a point here shows the one before.
    const later = line.points.findIndex((candidate) => candidate.x > x);
    const point = line.points.slice(0, later < 0 ? undefined : later).pop();
    if (point === undefined) continue;
    const name = (runs.length > 1 ? line.run.name + " " : "") + curveNames[line.name];
    parts.push("; ", make("span", { style: `color: ${colorOf(line.run)}` }, name),
      ` ${numberText(point.y)}${point.x === x ? "" : ` (${exactText(point.x)})`}`);
    if (point.y === null) continue;
    const dot = { cx: chart.x(point.x), cy: chart.y(point.y), r: 4, fill: colorOf(line.run) };
    chart.reader.append(make("circle", dot));
  }
  chart.reading.replaceChildren(...parts);
}

function addChart(chart) {
  const label = `${chart.title}, ${chart.unit}: a curve; arrow keys read it`;
  chart.svg = make("svg", { role: "img", tabindex: "0", "aria-label": label });
  chart.reading = make("p", { class: "reading", "aria-live": "polite" });
  const caption = make("figcaption", {}, `${chart.title} `, make("span", {}, `(${chart.unit})`));
  if (chart.curves.length > 1) caption.append(make("span", {}, " — solid: training, dashed: validation"));
  if (chart.marks && runs.some((run) => run.bad_steps.length > 0))
    caption.append(make("span", {}, ", ▲ bad step"));
  if (chart.marks && runs.some((run) => run.sessions.some((s) => s.from_step > 0)))
    caption.append(make("span", {}, ", dotted: resumed"));
  chart.figure = make("figure", { "data-chart": chart.curves[0] }, caption, chart.svg, chart.reading);
  document.getElementById("charts").append(chart.figure);
  chart.svg.addEventListener("pointermove", (event) => {
    if (chart.xs.length === 0) return;
    const bounds = chart.svg.getBoundingClientRect();
    const x = (event.clientX - bounds.left) * chart.svg.viewBox.baseVal.width / bounds.width;
    let nearest = 0;
    chart.xs.forEach((value, i) => {
      if (Math.abs(chart.x(value) - x) < Math.abs(chart.x(chart.xs[nearest]) - x)) nearest = i;
    });
    read(chart, nearest);
  });
  chart.svg.addEventListener("keydown", (event) => {
    const by = event.shiftKey ? 10 : 1;
    const last = chart.xs.length - 1;
    const to = { ArrowLeft: chart.at - by, ArrowRight: chart.at + by, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    read(chart, to);
  });
}

const drawCharts = () => charts.forEach(drawChart);

function addControls() {
  for (const axis of Object.keys(axisNames)) {
    const known = runs.some((run) => run.curves.train_loss[axis].some((x) => x !== null));
    const input = make("input", { type: "radio", name: "axis", value: axis });
    input.checked = axis === shown.axis;
    input.disabled = !known && axis !== "step";
    input.addEventListener("change", () => { shown.axis = axis; drawCharts(); });
    document.getElementById("axes").append(make("label", {}, input, axis));
  }
  document.getElementById("logarithmic").addEventListener("change", (event) => {
    shown.logarithmic = event.target.checked;
    drawCharts();
  });
  for (const run of runs) {
    const input = make("input", { type: "checkbox" });
    input.checked = true;
    input.addEventListener("change", () => {
      shown.hidden[input.checked ? "delete" : "add"](run);
      drawCharts();
    });
    const swatch = make("span", { class: "swatch", style: `background: ${colorOf(run)}` });
    document.getElementById("runs").append(make("label", {}, input, swatch, run.name));
  }
}

function addSamples() {
  const place = document.querySelector("#samples .columns");
  for (const run of runs.filter((r) => r.samples.length > 0)) {
    const last = run.samples.length - 1;
    const slider = make("input",
      { type: "range", min: 0, max: last, value: last, "aria-label": `Samples of ${run.name} by step` });
    const label = make("p", {}), texts = make("div", {});
    const show = () => {
      const sample = run.samples[slider.value];
      label.textContent = `after step ${sample.step}`;
      slider.setAttribute("aria-valuetext", label.textContent);
      texts.replaceChildren(...sample.texts.map((text) => make("pre", {}, text)));
    };
    slider.addEventListener("input", show);
    show();
    const control = last > 0 ? slider : "";
    place.append(make("div", { class: "card" }, make("h3", {}, run.name), control, label, texts));
  }
  document.getElementById("samples").hidden = place.childElementCount === 0;
}

// A token as one can see it, short enough for a label.
function tokenText(token, longest = 9) {
  const visible = token.replace(/ /g, "·").replace(/\n/g, "⏎").replace(/\t/g, "→") || "␀";
  const characters = [...visible];
  return characters.length > longest ? characters.slice(0, longest - 1).join("") + "…" : visible;
}

function headPicture(example, weights, number, most, reading) {
  const { rows, columns } = example, cell = 11;
  const longest = (tokens) => Math.max(...tokens.map((token) => [...tokenText(token)].length));
  const room = (tokens) => 10 + 6.1 * longest(tokens);
  const left = room(rows), top = room(columns) + 20;
  const width = left + cell * columns.length + 2, height = top + cell * rows.length + 2;
  const svg = make("svg", { role: "img", tabindex: "0", width, height, viewBox: `0 0 ${width} ${height}`,
    "aria-label": `head ${number}: ${rows.length} by ${columns.length} weights; arrow keys read them` });
  svg.append(make("text", { class: "title", x: 0, y: 12 }, `head ${number}`));
  const short = longest(columns) === 1;  // such labels need not be turned
  columns.forEach((token, s) => svg.append(make("text", short
    ? { x: left + (s + 0.5) * cell, y: top - 4, "text-anchor": "middle" }
    : { transform: `translate(${left + s * cell + 9} ${top - 4}) rotate(-90)` }, tokenText(token))));
  rows.forEach((token, t) => svg.append(make("text",
    { x: left - 4, y: top + t * cell + 9, "text-anchor": "end" }, tokenText(token))));
  weights.forEach((row, t) => row.forEach((weight, s) => {
    if (weight <= 0.003 * most) return;
    svg.append(make("rect", { x: left + s * cell, y: top + t * cell, width: cell, height: cell,
      fill: "var(--run-0)", "fill-opacity": (weight / most).toFixed(3) }));
  }));
  svg.append(make("rect",
    { class: "frame", x: left, y: top, width: cell * columns.length, height: cell * rows.length }));
  const chosen = make("rect", { class: "chosen", width: cell, height: cell, visibility: "hidden" });
  svg.append(chosen);
  let at = [0, 0];
  const choose = (t, s) => {
    at = [Math.min(Math.max(t, 0), rows.length - 1), Math.min(Math.max(s, 0), columns.length - 1)];
    chosen.setAttribute("x", left + at[1] * cell);
    chosen.setAttribute("y", top + at[0] * cell);
    chosen.setAttribute("visibility", "visible");
    const [from, to] = [tokenText(rows[at[0]], 40), tokenText(columns[at[1]], 40)];
    const weight = weights[at[0]][at[1]];
    reading.textContent = `head ${number}: “${from}” attends to “${to}” with ${weight}`;
  };
  svg.addEventListener("pointermove", (event) => {
    const bounds = svg.getBoundingClientRect(), shrunk = width / bounds.width;
    const s = Math.floor(((event.clientX - bounds.left) * shrunk - left) / cell);
    const t = Math.floor(((event.clientY - bounds.top) * shrunk - top) / cell);
    if (t >= 0 && s >= 0 && t < rows.length && s < columns.length) choose(t, s);
  });
  svg.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!by) return;
    event.preventDefault();
    choose(at[0] + by[0], at[1] + by[1]);
  });
  return svg;
}

function addAttention() {
  const place = document.querySelector("#attention .blocks");
  for (const run of runs.filter((r) => r.attention)) {
    const example = run.attention, heads = make("div", { class: "heads" });
    const reading = make("p", { class: "reading", "aria-live": "polite" });
    const select = make("select", { "aria-label": `Layer of ${run.name}` },
      ...example.layers.map((layer, i) => make("option", { value: i }, layer.name)));
    const show = () => {
      const layer = example.layers[select.value];
      const most = layer.heads.flat(2).reduce((a, b) => Math.max(a, b), 1e-9);
      reading.textContent = `largest weight ${most}, after step ${example.step}`;
      heads.replaceChildren(
        ...layer.heads.map((weights, i) => headPicture(example, weights, i, most, reading)));
    };
    select.addEventListener("change", show);
    select.value = example.layers.length - 1;
    show();
    place.append(make("div", { class: "card" }, make("h3", {}, `${run.name}, `, select), reading, heads));
  }
  document.getElementById("attention").hidden = place.childElementCount === 0;
}

function addFacts() {
  const place = document.querySelector("#facts .columns");
  const known = ([, text]) => text !== undefined && text !== "";
  const list = (pairs) => make("dl", {}, ...pairs.filter(known).flatMap(
    ([name, text]) => [make("dt", {}, name), make("dd", {}, text)]));
  for (const run of runs) {
    const card = make("div", { class: "card" }, make("h3", {}, run.name), list(run.model));
    for (const session of run.sessions) {
      const heading = session.from_step > 0 ? `resumed at step ${session.from_step}` : "began";
      card.append(make("h3", {}, heading), list([
        ["when", session.began], ["command", make("code", {}, session.command || "")],
        ["processor", session.processor], ["cores", session.cores], ["processes", session.processes],
        ["threads", session.threads],
        ["memory", session.memory_bytes && `${(session.memory_bytes / 2 ** 30).toFixed(1)} GiB`],
        ["device", session.device], ["precision", session.precision], ["host", session.host],
        ["version", session.version], ["compiler", session.compiler]]));
    }
    const bad = run.bad_steps.map((step) => [`step ${step.step}`, `${step.bad_step} (${step.update})`]);
    if (bad.length > 0) card.append(make("h3", {}, "Bad steps"), list(bad));
    place.append(card);
  }
}

const summary = (run) => run.best_loss === null ? `${run.name}: no validation yet`
  : `${run.name}: best validation loss ${run.best_loss.toFixed(4)}`;
document.getElementById("summary").textContent = runs.map(summary).join("; ");
document.title = `${runs.map((run) => run.name).join(", ")} – training report`;
addControls();
charts.forEach(addChart);
drawCharts();
addSamples();
addAttention();
addFacts();
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  drawCharts();
});
state.drawn = "yes";
