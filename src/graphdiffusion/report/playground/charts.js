// Curves against t, as SVG. The cursor follows the slider.
const BOX = { left: 44, top: 8, bottom: 138, tall: 160, edge: 14 };
const LINES = 60; // curves of single nodes in a chart, at most

function shape(tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, own] of Object.entries(attributes)) made.setAttribute(name, own);
  if (text !== undefined) made.textContent = text;
  return made;
}

function ticks(low, high, log) { // a few round numbers
  if (log) {
    const first = Math.floor(Math.log10(low)), last = Math.floor(Math.log10(high));
    const step = Math.max(1, Math.ceil((last - first) / 4)), found = [];
    for (let k = first; k <= last; k += step) {
      for (const m of last - first > 2 ? [1] : [1, 2, 5]) found.push(Number(`${m}e${k}`));
    }
    return found.filter((v) => v >= low && v <= high);
  }
  const rough = (high - low) / 4, base = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * base).find((k) => k >= rough), found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k += 1) found.push(k * step);
  return found;
}

// series: [{values, colour, dashed, wide}]; band: [low, high] behind them
function chart(name, series, { log = false, band = null, limits = null, floor = 0 } = {}) {
  const svg = at(`${name}-chart`), right = svg.clientWidth - BOX.edge, times = state.result.times, end = times[times.length - 1] || 1;
  if (right < 2 * BOX.left) return; // not laid out; a resize draws it
  let low, high;
  const all = series.flatMap((own) => Array.from(own.values)).filter((v) => Number.isFinite(v) && (!log || v > floor));
  if (limits) [low, high] = limits;
  else {
    low = all.reduce((a, b) => Math.min(a, b), Infinity);
    high = all.reduce((a, b) => Math.max(a, b), -Infinity);
    if (!all.length) { log = false; low = 0; high = 1; }
  }
  if (log) { low /= 1.5; high *= 1.5; }
  else {
    const pad = high - low > 1e-12 * Math.max(Math.abs(high), Math.abs(low)) ? 0.06 * (high - low) : Math.abs(high) * 0.1 || 1;
    low -= pad;
    high += pad;
  }
  const across = (t) => BOX.left + (t / end) * (right - BOX.left);
  const share = log ? (v) => Math.log(v / low) / Math.log(high / low) : (v) => (v - low) / (high - low);
  const up = (v) => BOX.bottom - Math.min(Math.max(share(v), -9), 9) * (BOX.bottom - BOX.top);
  const parts = [];
  for (const tick of ticks(low, high, log)) {
    parts.push(shape("line", { x1: BOX.left, x2: right, y1: up(tick), y2: up(tick), class: "grid" }));
    parts.push(shape("text", { x: BOX.left - 5, y: up(tick) + 4, class: "end" }, short(tick).replace(".0e", "e")));
  }
  for (const tick of ticks(0, end, false)) parts.push(shape("text", { x: across(tick), y: BOX.bottom + 15, class: "mid" }, short(tick)));
  const inside = shape("g", { "clip-path": `url(#${name}-clip)` });
  if (band) {
    const tall = Math.max(up(band[0]) - up(band[1]), 1);
    inside.append(shape("rect", { x: BOX.left, y: up(band[1]), width: right - BOX.left, height: tall, class: "band" }));
  }
  for (const own of series) {
    let path = "", open = false;
    own.values.forEach((v, k) => {
      open = open && k > 0 && !(log && !(own.values[k - 1] > floor));
      if (log && !(v > floor)) return;
      path += `${open ? "L" : "M"}${across(times[k]).toFixed(1)} ${up(v).toFixed(1)}`;
      open = true;
    });
    const line = shape("path", { d: path, fill: "none", stroke: own.colour, "stroke-width": own.wide || 1.5 });
    if (own.dashed) line.setAttribute("stroke-dasharray", "4 3");
    inside.append(line);
  }
  const clip = shape("clipPath", { id: `${name}-clip` });
  clip.append(shape("rect", { x: BOX.left, y: BOX.top - 4, width: right - BOX.left + 3, height: BOX.bottom - BOX.top + 8 }));
  const cursor = shape("line", { y1: BOX.top, y2: BOX.bottom, class: "cursor" });
  svg.setAttribute("viewBox", `0 0 ${svg.clientWidth} ${BOX.tall}`);
  svg.replaceChildren(clip, ...parts, inside, cursor);
}

function charts() { // all of them, after a result
  const own = state.result, found = own.charts, range = scale(), nodes = count(), frames = own.times.length;
  const first = [range[0], range[1]], wide = range[1] - range[0];
  const column = (array, node) => Array.from({ length: frames }, (_, k) => array[k * nodes + node]);
  const step = Math.max(1, Math.ceil(nodes / LINES)), shown = [];
  for (let node = 0; node < nodes; node += step) shown.push(node);
  if (state.selected >= 0 && !shown.includes(state.selected)) shown.push(state.selected);
  const lines = [];
  for (const node of shown) {
    const marked = node === state.selected;
    lines.push({ values: column(own.states, node), colour: paint(state.drawing.values[node], range)[0], wide: marked ? 4 : 1.4 });
  }
  if (own.exact) {
    for (const node of shown.filter((_, k) => nodes <= 30 || k % 5 === 0)) {
      lines.push({ values: column(own.exact, node), colour: "var(--soft)", dashed: true, wide: 0.9 });
    }
  }
  const low = Math.min(...found.low), high = Math.max(...found.high);
  const limits = [Math.max(low, range[0] - 2 * wide), Math.min(high, range[1] + 2 * wide)];
  limits[0] = Math.min(limits[0], range[0]);
  limits[1] = Math.max(limits[1], range[1]);
  chart("values", lines, { limits });
  const mark = "var(--mark)", orange = "#d55e00";
  const far = Math.max(high - range[1], range[0] - low) > 9 * wide;
  at("range-title").textContent = far ? "largest |x|, logarithmic" : "largest and smallest xᵢ";
  if (far) {
    const largest = found.high.map((v, k) => Math.max(Math.abs(v), Math.abs(found.low[k])));
    chart("range", [{ values: largest, colour: orange, wide: 2 }], { log: true });
  } else {
    const both = [{ values: found.high, colour: orange, wide: 2 }, { values: found.low, colour: mark, wide: 2 }];
    chart("range", both, { band: first });
  }
  const energies = [{ values: found.energy, colour: mark, wide: 2 }];
  if (found.exact_energy) energies.push({ values: found.exact_energy, colour: "var(--soft)", dashed: true });
  const peak = Math.max(...found.energy), least = Math.min(...found.energy.filter((v) => v > 0));
  chart("energy", energies, { log: peak / least > 1000, floor: peak * 1e-16 });
  at("mass-title").textContent = own.mass;
  const masses = [{ values: found.mass, colour: mark, wide: 2 }];
  if (found.exact_mass) masses.push({ values: found.exact_mass, colour: "var(--soft)", dashed: true });
  const middle = found.mass[0], spread = Math.max(...found.mass.map((v) => Math.abs(v - middle)));
  const near = Math.max(Math.abs(middle), 1e-9) * 0.5;
  chart("mass", masses, spread < near ? { limits: [middle - near, middle + near] } : {});
  at("error-figure").hidden = !found.error || Math.max(...found.error) === 0;
  if (!at("error-figure").hidden) chart("error", [{ values: found.error, colour: orange, wide: 2 }], { log: true, floor: 1e-17 });
}

function cursor() { // where the slider stands
  const own = state.result;
  if (!own) return;
  const k = state.frame, end = own.times[own.times.length - 1] || 1;
  for (const line of document.querySelectorAll("line.cursor")) {
    const x = BOX.left + (own.times[k] / end) * (line.ownerSVGElement.clientWidth - BOX.edge - BOX.left);
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
  }
  const found = own.charts, told = {
    values: state.selected >= 0 ? `node ${state.selected}: ${short(value(state.selected))}` : `${count()} nodes`,
    range: `${short(found.low[k])} to ${short(found.high[k])}`,
    energy: short(found.energy[k]),
    mass: short(found.mass[k]),
    error: found.error ? short(found.error[k]) : "",
  };
  for (const [name, text] of Object.entries(told)) {
    at(`${name}-now`).textContent = text;
    at(`${name}-chart`).setAttribute("aria-label", `${at(`${name}-title`).textContent} against t; at t = ${short(own.times[k])}: ${text}`);
  }
}
