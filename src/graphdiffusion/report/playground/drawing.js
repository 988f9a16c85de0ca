// What all parts share, and the graph on the canvas.
const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const canvas = at("graph-canvas"), context = canvas.getContext("2d");
const state = {
  drawing: null, // edges, places, values, directed, side
  result: null, // what was computed of it; null while it is not known
  frame: 0, selected: -1, tool: "look", timer: 0, from: -1, pointer: null, number: 0,
};
const ABOVE = "#e0123f", BELOW = "#e61ec8"; // values outside of the range of x(0)

const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
const stops = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]]; // viridis
function gradient(share) {
  const k = Math.min(Math.floor(share * 4), 3), part = share * 4 - k;
  return stops[k].map((low, c) => Math.round(low * (1 - part) + stops[k + 1][c] * part));
}
function scale() { // of the colours: the range of x(0)
  const low = Math.min(...state.drawing.values), high = Math.max(...state.drawing.values);
  return high > low ? [low, high] : [low - 0.5, high + 0.5];
}
function paint(value, [low, high]) { // fill, and a colour that can be read on it
  const share = (value - low) / (high - low);
  if (!(share <= 1.02)) return [ABOVE, "#fff"];
  if (share < -0.02) return [BELOW, "#fff"];
  const mix = gradient(Math.min(Math.max(share, 0), 1));
  const light = 0.3 * mix[0] + 0.59 * mix[1] + 0.11 * mix[2] > 130;
  return [`rgb(${mix.join(",")})`, light ? "#111" : "#fff"];
}
function short(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e4 || (size > 0 && size < 1e-3)) return value.toExponential(1).replace("e+", "e").replace(/-/g, "−");
  return String(Number(value.toPrecision(3))).replace("-", "−");
}

const count = () => state.drawing.values.length;
const value = (node) => (state.result ? state.result.states[state.frame * count() + node] : state.drawing.values[node]);
const attention = (edge) => {
  const own = state.result;
  if (!own) return 0.4;
  const frame = own.attention.length > own.pairs.length ? state.frame : 0;
  return own.attention[frame * own.pairs.length + edge] / 255;
};

function place(node) { // in pixels of the page
  const side = canvas.clientWidth - 2 * margin();
  const [x, y] = state.drawing.places[node];
  return [margin() + x * side, margin() + y * side * ratio()];
}
const margin = () => (state.drawing.side ? 4 : 22);
const ratio = () => (canvas.clientHeight - 2 * margin()) / (canvas.clientWidth - 2 * margin());
function spot(event) { // of a pointer: pixels of the canvas, and in the unit square
  const box = canvas.getBoundingClientRect();
  const x = event.clientX - box.left, y = event.clientY - box.top, side = box.width - 2 * margin();
  const inside = (share) => Math.min(Math.max(share, 0), 1);
  return { x, y, place: [inside((x - margin()) / side), inside((y - margin()) / (side * ratio()))] };
}
function radius() {
  const most = count() > 60 ? 7 : count() > 40 ? 10 : 14;
  return Math.max(Math.min(most, canvas.clientWidth / 36), 6);
}
function nodeAt({ x, y }) {
  const far = state.drawing.side ? canvas.clientWidth / state.drawing.side / 2 : radius() + 5;
  let best = -1, least = far * far;
  for (let node = 0; node < count(); node += 1) {
    const [a, b] = place(node), apart = (a - x) ** 2 + (b - y) ** 2;
    if (apart <= least) { least = apart; best = node; }
  }
  return best;
}
function edgeAt({ x, y }) {
  let best = -1, least = 8;
  state.drawing.edges.forEach(([i, j], edge) => {
    const [a, b] = place(i), [c, d] = place(j), long = (c - a) ** 2 + (d - b) ** 2;
    const share = Math.min(Math.max(((x - a) * (c - a) + (y - b) * (d - b)) / (long || 1), 0), 1);
    const apart = Math.hypot(a + share * (c - a) - x, b + share * (d - b) - y);
    if (apart < least) { least = apart; best = edge; }
  });
  return best;
}

function draw() {
  if (!state.drawing) return;
  const dense = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * dense) || canvas.height !== Math.round(height * dense)) {
    canvas.width = Math.round(width * dense);
    canvas.height = Math.round(height * dense);
  }
  context.setTransform(dense, 0, 0, dense, 0, 0);
  context.clearRect(0, 0, width, height);
  const ink = getComputedStyle(document.body).color, range = scale();
  if (state.drawing.side) pixels(range, ink);
  else { lines(ink); nodes(range, ink); }
  if (state.from >= 0 && state.pointer) { // an edge that is being drawn
    const [x, y] = place(state.from);
    context.setLineDash([5, 4]);
    context.strokeStyle = ink;
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(state.pointer.x, state.pointer.y);
    context.stroke();
    context.setLineDash([]);
  }
  canvas.dataset.frame = String(state.frame); // what a test looks at
  canvas.dataset.nodes = String(count());
  canvas.dataset.edges = String(state.drawing.edges.length);
}

function lines(ink) {
  const pairs = state.result ? state.result.pairs : state.drawing.edges;
  context.strokeStyle = context.fillStyle = ink;
  pairs.forEach(([i, j], edge) => {
    const share = attention(edge), [a, b] = place(i), [c, d] = place(j);
    context.globalAlpha = 0.12 + 0.7 * share;
    context.lineWidth = 0.7 + 5 * share;
    context.beginPath();
    context.moveTo(a, b);
    context.lineTo(c, d);
    context.stroke();
  });
  context.globalAlpha = 0.8;
  if (state.drawing.directed) for (const [i, j] of state.drawing.edges) arrow(place(i), place(j));
  context.globalAlpha = 1;
}
function arrow([a, b], [c, d]) {
  const long = Math.hypot(c - a, d - b) || 1, x = (c - a) / long, y = (d - b) / long, r = radius() + 1;
  context.beginPath();
  context.moveTo(c - r * x, d - r * y);
  context.lineTo(c - (r + 9) * x + 5 * y, d - (r + 9) * y - 5 * x);
  context.lineTo(c - (r + 9) * x - 5 * y, d - (r + 9) * y + 5 * x);
  context.fill();
}

function nodes(range, ink) {
  const size = radius(), told = count() <= 40 && size > 9;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.font = `${size > 12 ? 10 : 8.5}px system-ui, sans-serif`;
  for (let node = 0; node < count(); node += 1) {
    const [x, y] = place(node), own = value(node), [fill, text] = paint(own, range);
    context.fillStyle = fill;
    context.beginPath();
    context.arc(x, y, size, 0, 7);
    context.fill();
    context.lineWidth = node === state.selected ? 3.5 : 1;
    context.strokeStyle = ink;
    context.globalAlpha = node === state.selected ? 1 : 0.5;
    context.stroke();
    context.globalAlpha = 1;
    if (!told) continue;
    context.fillStyle = text;
    const said = Math.abs(own) < 10 ? String(Number(own.toFixed(Math.abs(own) < 1 ? 2 : 1))) : short(own);
    context.fillText(said.replace("-", "−").replace(/^(−?)0\./, "$1."), x, y + 0.5, 2 * size - 2);
  }
}

function pixels(range, ink) { // an image: a gap between two pixels where the weight between them is small
  const side = state.drawing.side, cell = (canvas.clientWidth - 2 * margin()) / side, tall = cell * ratio();
  const edge = (k) => Math.round(k);
  for (let node = 0; node < count(); node += 1) {
    const [x, y] = place(node), left = edge(x - cell / 2), top = edge(y - tall / 2);
    context.fillStyle = paint(value(node), range)[0];
    context.fillRect(left, top, edge(x + cell / 2) - left, edge(y + tall / 2) - top);
  }
  context.fillStyle = getComputedStyle(canvas).backgroundColor;
  (state.result ? state.result.pairs : []).forEach(([i, j], pair) => {
    const wide = 0.3 * cell * (1 - Math.min(5 * attention(pair), 1)), [a, b] = place(i), [c, d] = place(j);
    if (wide < 0.4) return;
    const half = (cell + wide) / 2;
    if (Math.abs(b - d) < 1) context.fillRect((a + c) / 2 - wide / 2, b - half, wide, 2 * half);
    else context.fillRect(a - half, (b + d) / 2 - wide / 2, 2 * half, wide);
  });
  if (state.selected >= 0) {
    const [x, y] = place(state.selected);
    context.strokeStyle = ink;
    context.lineWidth = 3;
    context.strokeRect(x - cell / 2, y - tall / 2, cell, tall);
  }
}

function legend() { // the colours
  const [low, high] = scale(), bar = document.createElement("span"), ends = [];
  bar.className = "bar";
  for (const [text, colour] of [["below", BELOW], ["above", ABOVE]]) {
    const item = document.createElement("span"), dot = document.createElement("i");
    dot.style.background = colour;
    item.append(dot, text);
    ends.push(item);
  }
  const from = document.createElement("span"), to = document.createElement("span");
  from.textContent = short(low);
  to.textContent = short(high);
  at("legend").replaceChildren(ends[0], from, bar, to, ends[1]);
}
