// The controls: what is chosen, asked for and told.
const NUMBERS = ["alpha", "beta", "time", "step", "tolerance", "strength", "width"];
const CHOICES = ["diffusivity", "over", "scheme"];
const ADAPTIVE = ["dopri5", "esdirk"];

async function send(path, content) {
  let reply;
  try {
    reply = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(content) });
  } catch {
    throw new Error("The server does not answer. Is grand demo still running?");
  }
  const found = await reply.json();
  if (!reply.ok) throw new Error(found.error);
  return found;
}

function settings() {
  const own = { linear: at("linear").value === "linear", loops: at("loops").checked };
  for (const name of NUMBERS) if (!at(`${name}-field`).hidden) own[name] = Number(at(name).value);
  for (const name of CHOICES) own[name] = at(name).value;
  return own;
}
function set(own) {
  at("linear").value = own.linear ? "linear" : "nonlinear";
  at("loops").checked = own.loops;
  for (const name of NUMBERS) {
    if (name === "step" && !data.served && ![...at(name).options].some((o) => Number(o.value) === own.step)) {
      at(name).append(new Option(String(own.step), String(own.step)));
    }
    at(name).value = String(own[name]);
  }
  for (const name of CHOICES) at(name).value = own[name];
  applies();
}
function applies() { // hide what has no meaning here
  const scheme = at("scheme").value, kernel = at("diffusivity").value;
  at("step-field").hidden = scheme === "exponential" || ADAPTIVE.includes(scheme);
  at("tolerance-field").hidden = !ADAPTIVE.includes(scheme);
  at("strength-field").hidden = kernel === "laplacian";
  at("width-field").hidden = kernel !== "exponential";
  at("linear-field").hidden = kernel === "laplacian";
  const closed = [...at("scheme").options].find((o) => o.value === "exponential");
  closed.disabled = data.served && kernel !== "laplacian" && at("linear").value !== "linear";
  const graph = data.graphs[at("graph").value];
  at("size-field").hidden = !graph || !data.served;
  at("image-field").hidden = !data.served || !state.drawing || !state.drawing.side;
  if (graph) {
    at("size").min = graph.least;
    at("size").max = graph.most;
    at("size-field").firstChild.textContent = graph.counts;
  }
  for (const button of document.querySelectorAll("[data-values=given]")) button.disabled = !graph || !data.served;
}

let waiting = 0;
function later() { // ask once what is typed has come to rest
  clearTimeout(waiting);
  canvas.dataset.waiting = "true";
  waiting = setTimeout(ask, 150);
}
function mistyped() { // a sentence about a number that cannot be, or ""
  for (const name of [...NUMBERS, "size"]) {
    const own = at(name);
    if (own.type === "number" && !at(`${name}-field`).hidden && !own.disabled && (own.value === "" || !own.validity.valid)) {
      return `${at(`${name}-field`).firstChild.textContent} must be a number from ${own.min} to ${own.max}.`;
    }
  }
  return "";
}
async function ask() {
  stop();
  const wrong = mistyped();
  if (wrong) { state.number += 1; refuse(wrong); return; }
  const number = (state.number += 1), drawing = state.drawing;
  canvas.dataset.waiting = "true";
  try {
    const own = { ...settings(), nodes: count(), edges: drawing.edges, values: drawing.values, directed: drawing.directed };
    if (own.diffusivity === "laplacian") own.linear = true; // the same equation
    const found = await send("/simulate", own);
    if (number === state.number) show(found);
  } catch (error) {
    if (number === state.number) refuse(error.message);
  }
}
function warn(message) {
  at("error").textContent = message;
  at("error").hidden = false;
}
function refuse(message) { // there is nothing to show
  warn(message);
  state.result = null;
  state.frame = 0;
  for (const name of ["theory", "happened"]) {
    at(name).textContent = "–";
    at(`${name}-box`).dataset.kind = "";
  }
  document.querySelector(".playground").classList.add("stale");
  canvas.dataset.waiting = "false";
  draw();
}
function show(found) {
  state.result = { ...found, states: new Float32Array(bytes(found.states)), attention: new Uint8Array(bytes(found.attention)),
    exact: found.exact && new Float32Array(bytes(found.exact)) };
  at("error").hidden = true;
  document.querySelector(".playground").classList.remove("stale");
  for (const name of ["theory", "happened"]) {
    at(name).textContent = found[name].sentence;
    at(`${name}-box`).dataset.kind = found[name].kind;
  }
  const line = (text, kind) => Object.assign(document.createElement("p"), { textContent: text, className: kind });
  const lines = [];
  for (const [kind, own] of Object.entries(found.formulas)) {
    if (kind === "numbers" && own[0] === found.formulas.equation[0]) continue;
    if (kind === "matrix" || kind === "scheme") lines.push(line(kind === "matrix" ? "the matrix" : "one step, with f = dx/dt", "soft"));
    lines.push(...own.map((text) => line(text, "math")));
  }
  at("formulas").replaceChildren(...lines);
  at("facts").replaceChildren(...found.facts.map(([name, text]) => {
    const row = document.createElement("tr"), head = document.createElement("th"), cell = document.createElement("td");
    head.scope = "row";
    head.textContent = name;
    cell.textContent = text;
    row.append(head, cell);
    return row;
  }));
  at("time-slider").max = String(found.times.length - 1);
  charts();
  move(state.tool === "look" ? found.times.length - 1 : 0); // who draws looks at x(0)
  canvas.dataset.waiting = "false";
}
function move(frame) {
  state.frame = state.result ? frame : 0;
  at("time-slider").value = String(state.frame);
  const t = state.result ? state.result.times[state.frame] : 0;
  at("time-value").textContent = `t = ${short(t)}`;
  at("time-slider").setAttribute("aria-valuetext", `t = ${short(t)}`);
  about();
  cursor();
  draw();
}
function about() {
  const node = state.selected;
  at("about").setAttribute("aria-live", state.timer ? "off" : "polite"); // not at every frame
  if (node < 0 || node >= count()) { at("about").textContent = ""; return; }
  const near = state.drawing.edges.flatMap(([i, j]) => (i === node ? [j] : j === node ? [i] : []));
  const exact = state.result && state.result.exact ? `, exact ${short(state.result.exact[state.frame * count() + node])}` : "";
  const listed = near.length > 12 ? `${near.length} neighbours` : `neighbours ${near.join(", ") || "none"}`;
  at("about").textContent = `node ${node}: x = ${short(value(node))}${exact}; ${listed}`;
}
function select(node) {
  state.selected = node;
  if (node >= 0) at("key-from").value = String(node);
  if (state.result) charts();
  move(state.frame);
}

function stop() {
  cancelAnimationFrame(state.timer);
  state.timer = 0;
  at("play").textContent = "Play";
}
function play() {
  if (state.timer) { stop(); return; }
  if (!state.result) return;
  const last = state.result.times.length - 1, from = state.frame >= last ? 0 : state.frame, begun = performance.now();
  const each = Math.min(Math.max(5000 / Math.max(last, 1), 16), 250);
  at("play").textContent = "Pause";
  const step = (now) => {
    if (!state.result) return;
    const frame = Math.min(from + Math.max(Math.floor((now - begun) / each), 0), last); // now may lie before begun
    if (frame !== state.frame) move(frame);
    if (frame < last) state.timer = requestAnimationFrame(step);
    else stop();
  };
  move(from);
  state.timer = requestAnimationFrame(step);
}

async function choose() { // a graph by name and size
  const name = at("graph").value, own = data.graphs[name];
  if (!own) return;
  const wrong = data.served && mistyped();
  if (wrong) { refuse(wrong); return; }
  try {
    const size = Number(at("size").value);
    put(size === own.size || !data.served ? own.drawing : await send("/graph", { name, size }));
    changed();
    at("graph").value = name;
    applies();
  } catch (error) { refuse(error.message); }
}
function lookUp() { // an example of the file
  const wanted = Number(at("step").value), near = (a, b) => (Math.abs(a - wanted) <= Math.abs(b - wanted) ? a : b);
  const own = { ...data.settings, scheme: at("scheme").value, step: data.steps.reduce(near) };
  const graph = data.graphs[at("graph").value], step = own.scheme === "exponential" ? "" : String(own.step);
  const found = data.examples[`${at("graph").value} ${own.scheme} ${step}`];
  at("scene").value = "";
  at("scene-text").textContent = "";
  stop();
  if (graph) put(graph.drawing);
  set(own);
  if (found) show(found);
  else refuse("This file does not hold that example: choose another graph, scheme or step, or run grand demo.");
}
function scene() {
  const own = data.scenes.find((each) => each.name === at("scene").value);
  at("scene-text").textContent = own ? own.text : "";
  if (!own) return;
  stop();
  at("graph").value = own.graph;
  at("size").value = String(own.size);
  put(own.drawing);
  set(own.settings);
  if (data.served) ask();
  else show(own.result);
}
at("scene").addEventListener("change", scene);
at("graph").addEventListener("change", () => {
  const own = data.graphs[at("graph").value];
  if (own) at("size").value = String(own.size);
  if (data.served) choose();
  else lookUp();
});
at("size").addEventListener("change", choose);
at("image").addEventListener("change", async () => { // the brightness of an image, one number a pixel of the grid
  const side = state.drawing.side, small = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  small.canvas.width = small.canvas.height = side;
  try {
    const image = await createImageBitmap(at("image").files[0]), edge = Math.min(image.width, image.height);
    small.imageSmoothingQuality = "high";
    small.fillStyle = "#fff"; // where it is transparent
    small.fillRect(0, 0, side, side);
    small.drawImage(image, (image.width - edge) / 2, (image.height - edge) / 2, edge, edge, 0, 0, side, side);
  } catch { warn("This file cannot be read as an image: take a PNG or JPEG."); return; }
  const found = small.getImageData(0, 0, side, side).data, light = (k) => 0.299 * found[k] + 0.587 * found[k + 1] + 0.114 * found[k + 2];
  state.drawing.values = state.drawing.values.map((_, node) => Math.round(light(4 * node) / 0.255) / 1000);
  state.given = [...state.drawing.values];
  state.result = null;
  changed();
});
for (const name of [...NUMBERS, ...CHOICES, "linear", "loops"]) {
  at(name).addEventListener(at(name).type === "number" ? "input" : "change", () => {
    if (!data.served) { lookUp(); return; }
    const nonlinear = at("linear").value !== "linear" && at("diffusivity").value !== "laplacian";
    if (nonlinear && at("scheme").value === "exponential") at("scheme").value = "exponential-midpoint";
    applies();
    later();
  });
}
at("time-slider").addEventListener("input", () => { const wanted = Number(at("time-slider").value); stop(); move(wanted); });
at("play").addEventListener("click", play);
window.addEventListener("resize", () => {
  draw();
  if (state.result) { charts(); cursor(); }
});
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
tool("look");
at("scene").value = data.scenes[0].name;
scene();
