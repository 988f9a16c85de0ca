// Changes by hand: nodes, edges and values, with a pointer or with the form.
const TOOL_TEXTS = {
  look: "Click a node to follow it in the curves.",
  draw: "Click to add a node. Drag from one node to another to add an edge.",
  paint: "Click nodes, or drag over them, to give them the value.",
  delete: "Click a node or an edge to remove it.",
};

function put(drawing) { // another graph
  state.drawing = { ...drawing, edges: drawing.edges.map((e) => [...e]), places: drawing.places.map((p) => [...p]), values: [...drawing.values] };
  state.given = [...drawing.values];
  state.result = null;
  state.selected = state.from = -1;
  state.frame = 0;
  canvas.classList.toggle("square", drawing.side > 0);
  legend();
  draw();
}
function changed() { // by hand
  at("scene").value = "";
  at("scene-text").textContent = "";
  legend();
  applies();
  if (data.served) { draw(); later(); }
}
function reshaped() { // nodes or edges are other ones
  at("graph").value = "";
  state.drawing.side = 0;
  canvas.classList.remove("square");
  state.result = null;
  state.frame = 0;
  changed();
}
function addNode(place) {
  if (count() >= data.most) { warn(`A graph has at most ${data.most} nodes here.`); return; }
  state.drawing.places.push(place);
  state.drawing.values.push(Number(at("brush").value) || 0);
  state.selected = count() - 1;
  at("key-from").value = String(state.selected);
  reshaped();
}
const same = ([i, j], a, b) => (i === a && j === b) || (!state.drawing.directed && i === b && j === a);
function addEdge(a, b) {
  if (a === b || state.drawing.edges.some((own) => same(own, a, b))) return;
  state.drawing.edges.push([a, b]);
  reshaped();
}
function removeEdge(edge) {
  if (edge < 0) return;
  state.drawing.edges.splice(edge, 1);
  reshaped();
}
function removeNode(node) {
  if (node < 0 || count() < 2) return;
  const own = state.drawing, next = (k) => (k > node ? k - 1 : k);
  own.places.splice(node, 1);
  own.values.splice(node, 1);
  own.edges = own.edges.filter(([i, j]) => i !== node && j !== node).map(([i, j]) => [next(i), next(j)]);
  state.selected = -1;
  reshaped();
}
function setValue(node, own) {
  if (!Number.isFinite(own)) { warn("A value must be a number."); return; }
  state.drawing.values[node] = own;
  state.result = null;
  changed();
}

function tool(name) {
  state.tool = name;
  for (const button of document.querySelectorAll("[data-tool]")) button.setAttribute("aria-pressed", String(button.dataset.tool === name));
  at("tool-text").textContent = TOOL_TEXTS[name];
  at("brush-field").hidden = name !== "paint" && name !== "draw";
  canvas.classList.toggle("drawing", name !== "look");
}
canvas.addEventListener("pointerdown", (event) => {
  const found = spot(event), node = nodeAt(found);
  if (state.tool === "draw" && node >= 0) {
    state.from = node;
    canvas.setPointerCapture(event.pointerId);
  } else if (state.tool === "draw") addNode(found.place);
  else if (state.tool === "paint" && node >= 0) {
    state.painting = true;
    canvas.setPointerCapture(event.pointerId);
    setValue(node, Number(at("brush").value));
  } else if (state.tool === "delete") {
    if (node >= 0) removeNode(node);
    else removeEdge(edgeAt(found));
  } else select(node);
});
canvas.addEventListener("pointermove", (event) => {
  const found = spot(event), node = nodeAt(found), own = Number(at("brush").value);
  if (state.painting && node >= 0 && state.drawing.values[node] !== own) setValue(node, own);
  if (state.from >= 0) { state.pointer = found; draw(); }
});
for (const name of ["pointerup", "pointercancel"]) {
  canvas.addEventListener(name, (event) => {
    const from = state.from, node = nodeAt(spot(event));
    state.painting = false;
    state.from = -1;
    state.pointer = null;
    if (name === "pointerup" && from >= 0 && node >= 0) {
      if (node === from) select(node);
      else addEdge(from, node);
    }
    draw();
  });
}
canvas.addEventListener("keydown", (event) => {
  const turn = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (turn) select((state.selected + turn + count()) % count());
  else if (event.key === "Delete" && data.served) removeNode(state.selected);
  else if (event.key === " ") play();
  else if (event.key === "Escape") select(-1);
  else return;
  event.preventDefault();
});
const node = (id) => { // a number in the form
  const own = Number(at(id).value);
  if (Number.isInteger(own) && own >= 0 && own < count() && at(id).value !== "") return own;
  warn(`Nodes are numbered from 0 to ${count() - 1}, got ${at(id).value || "nothing"}.`);
  return -1;
};
const KEYS = {
  "add-node": () => { // in the widest gap of a coarse grid
    let best = [0.5, 0.5], most = -1;
    for (let k = 0; k < 400; k += 1) {
      const spot = [(k % 20 + 0.5) / 20, (Math.floor(k / 20) + 0.5) / 20];
      const near = Math.min(...state.drawing.places.map(([x, y]) => Math.hypot(x - spot[0], y - spot[1])));
      if (near > most) { most = near; best = spot; }
    }
    addNode(best);
  },
  "add-edge": () => { const a = node("key-from"), b = a < 0 ? -1 : node("key-to"); if (b >= 0) addEdge(a, b); },
  "remove-edge": () => {
    const a = node("key-from"), b = a < 0 ? -1 : node("key-to");
    if (b >= 0) removeEdge(state.drawing.edges.findIndex((own) => same(own, a, b)));
  },
  "remove-node": () => { const a = node("key-from"); if (a >= 0) removeNode(a); },
  "set-value": () => { const a = node("key-from"); if (a >= 0) setValue(a, at("key-value").value === "" ? NaN : Number(at("key-value").value)); },
  clear: () => { put({ edges: [], places: [[0.5, 0.5]], values: [1], directed: false, side: 0 }); tool("draw"); reshaped(); },
};
for (const button of document.querySelectorAll("[data-key]")) button.addEventListener("click", () => KEYS[button.dataset.key]());
for (const button of document.querySelectorAll("[data-tool]")) button.addEventListener("click", () => tool(button.dataset.tool));
for (const button of document.querySelectorAll("[data-values]")) {
  button.addEventListener("click", () => {
    const hot = Math.max(state.selected, 0), own = state.drawing, kind = button.dataset.values;
    if (kind === "given") own.values = [...state.given];
    else own.values = own.values.map((_, k) => (kind === "hot" ? Number(k === hot) : Math.round(100 * Math.random()) / 100));
    state.result = null;
    changed();
  });
}
