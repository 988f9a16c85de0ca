// The page: what is coloured, hidden and chosen, and the controls for it.
const canvas = at("graph"), slider = at("time"), play = at("play"), status = at("status");
const colour = at("colour"), output = at("output"), answers = at("answers"), part = at("part"), edges = at("edges");
const legend = at("legend"), panel = at("node"), hover = at("hover"), results = at("results");
const state = { frame: last, chosen: -1, update: null, timer: 0, dirty: true, hidden: { class: new Set(), predicted: new Set() } };
const colours = new Uint8Array(4 * count), sizes = new Uint8Array(count), strengths = new Uint8Array(pairs);
const rgb = (text) => [1, 3, 5].map((k) => parseInt(text.slice(k, k + 2), 16));
const hues = palette.map(rgb), neutral = rgb(grey), GOOD = [0, 158, 115], BAD = [213, 94, 0];

const ramp = (share) => gradient(0.12 + 0.88 * share); // the darkest colours cannot be seen at night

function predictedAt(node, frame) {
  return arrays.predicted[Math.min(Math.round(frame), saidFrames - 1) * count + node];
}
function wrongAt(node) { // 0: right, 1: wrong, -1: not known
  const own = arrays.classes[node];
  return own < 0 ? -1 : Number(predictedAt(node, state.frame) !== own);
}
// Colours of a state: the hue is the direction from the mean of all states, its strength the distance.
const around = new Uint8Array(3 * 32 * 32);
for (let i = 0; i < 32; i += 1) {
  for (let j = 0; j < 32; j += 1) { // Oklab, of one lightness
    const a = 0.42 * (i / 31 - 0.5), b = 0.42 * (j / 31 - 0.5), L = 0.68;
    const [l, m, s] = [L + 0.3963 * a + 0.2158 * b, L - 0.1056 * a - 0.0639 * b, L - 0.0895 * a - 1.2915 * b].map((v) => v ** 3);
    const mixed = [4.0767 * l - 3.3077 * m + 0.231 * s, -1.2684 * l + 2.6098 * m - 0.3413 * s, -0.0042 * l - 0.7034 * m + 1.7076 * s];
    mixed.forEach((v, c) => { around[3 * (32 * i + j) + c] = 255 * Math.min(Math.max(v, 0), 1) ** (1 / 2.2); });
  }
}
// The colour of a node at the t of now, as a function: it is asked for every node.
function painter() {
  const plain = (k) => (k < 0 ? neutral : hues[k % hues.length]);
  const outputs = arrays.truth ? arrays.truth.length / count : 0, k = Number(output.value || 0);
  switch (colour.value) {
    case "class": return (node) => plain(arrays.classes[node]);
    case "predicted": return (node) => plain(predictedAt(node, state.frame));
    case "right": return (node) => [GOOD, BAD][wrongAt(node)] || neutral;
    case "truth": return (node) => {
      const share = arrays.truth[k * count + node];
      return share === 65535 ? neutral : ramp(share / 65534);
    };
    case "said": {
      const size = outputs * count, rows = arrays.said.length / size;
      return (node) => ramp(between(arrays.said, rows, size, node * outputs + k, state.frame) / 65534);
    }
    default: {
      const size = 2 * count, rows = arrays.plane.length / size, found = [0, 0, 0];
      const side = (place) => Math.round(31 * between(arrays.plane, rows, size, place, state.frame) / 255);
      return (node) => {
        const place = 3 * (32 * side(2 * node) + side(2 * node + 1));
        found[0] = around[place]; found[1] = around[place + 1]; found[2] = around[place + 2];
        return found;
      };
    }
  }
}
function isShown(node) {
  if (part.value !== "" && arrays.parts[node] !== Number(part.value)) return false;
  if (!arrays.classes) return true;
  if (answers.value !== "" && wrongAt(node) !== Number(answers.value)) return false;
  if (state.hidden.class.has(arrays.classes[node])) return false;
  return !state.hidden.predicted.size || !state.hidden.predicted.has(predictedAt(node, state.frame));
}

// Everything that follows from t, the filters and the chosen node.
function paint() {
  const near = new Set(state.chosen < 0 ? [] : Array.from(pairsOf(state.chosen), (p) => otherEnd(p, state.chosen)));
  const dim = state.chosen >= 0, paintOf = painter();
  let visible = 0;
  for (let node = 0; node < count; node += 1) {
    const on = isShown(node), stands = node === state.chosen || near.has(node);
    sizes[node] = !on && !stands ? 0 : node === state.chosen ? 8 : near.has(node) ? 5 : 4;
    visible += Number(on);
    if (!sizes[node]) continue;
    const own = paintOf(node), k = 4 * node;
    colours[k] = own[0]; colours[k + 1] = own[1]; colours[k + 2] = own[2];
    colours[k + 3] = dim && !stands ? 90 : 235;
  }
  const frame = Math.min(state.frame, widthFrames - 1), low = Math.floor(frame), share = frame - low;
  const before = arrays.width.subarray(low * pairs), after = arrays.width.subarray(Math.min(low + 1, widthFrames - 1) * pairs);
  for (let p = 0; p < pairs; p += 1) {
    strengths[p] = sizes[first[p]] && sizes[second[p]] ? before[p] * (1 - share) + after[p] * share + 0.5 : 0;
  }
  if (picture) {
    picture.colour(colours, sizes);
    picture.weigh(strengths);
    const own = state.chosen < 0 ? [] : pairsOf(state.chosen);
    picture.mark(own, Uint8Array.from(own, (p) => strengths[p]), Uint32Array.from(dim ? [...near, state.chosen] : []));
  }
  const t = data.times[Math.min(Math.round(state.frame), last)];
  const now = data.times[0] + (data.times[last] - data.times[0]) * state.frame / Math.max(last, 1);
  at("time-value").textContent = `t = ${now.toPrecision(3)}`;
  slider.value = String(Math.round(state.frame));
  slider.setAttribute("aria-valuetext", `t = ${now.toPrecision(3)} of ${data.times[last].toPrecision(3)}`);
  at("all").style.visibility = visible === count ? "hidden" : "visible"; // it keeps its place
  const told = `${visible.toLocaleString("en")} of ${count.toLocaleString("en")} nodes shown`;
  if (status.textContent !== told && !state.timer) status.textContent = told;
  Object.assign(canvas.dataset, { frame: String(state.frame), t: String(t), chosen: String(state.chosen), visible: String(visible) });
  if (state.update) state.update(state.frame);
  changed();
}

// A frame is drawn when something has changed. It draws a share of the edges, the strongest first, and of the
// nodes, as large as the device manages in time; what is left follows in further frames, until something
// changes again.
const FEWEST = { edges: 4000, nodes: 15000 }, MORE = 40000; // of the first frame at least; edges of those that follow
const pace = { share: 20000 / Math.max(pairs, 20000), done: 0, asked: 0, waiting: false };
function later() {
  if (pace.waiting) return;
  pace.waiting = true;
  pace.asked = performance.now();
  requestAnimationFrame(render);
}
function changed() {
  pace.done = 0;
  state.dirty = true;
  canvas.dataset.busy = "yes";
  later();
}
function render() {
  pace.waiting = false;
  if (!picture || !state.dirty) return;
  const took = performance.now() - pace.asked; // a frame comes late while the last one is being drawn
  if (took > 45) pace.share = Math.max(pace.share * Math.max(35 / took, 0.3), 0.004);
  else if (took < 25) pace.share = Math.min(pace.share * 1.25, 1);
  const look = getComputedStyle(document.documentElement);
  const tint = (name) => rgb(look.getPropertyValue(name).trim()).map((v) => v / 255);
  const all = edges.value === "all" ? pairs : 0;
  const some = (most, least) => Math.min(most, Math.max(Math.round(pace.share * most), least));
  const to = Math.min(pace.done ? pace.done + MORE : some(all, FEWEST.edges), all);
  state.dirty = to < all || (pace.done === 0 && pace.share < 1);
  const nodes = state.dirty ? some(count, FEWEST.nodes) : count;
  picture.draw({ from: pace.done, to, nodes, text: tint("--edge"), mark: tint("--mark"), dim: state.chosen >= 0 });
  pace.done = Math.max(to, 1);
  Object.assign(canvas.dataset, { drawn: String(picture.drawn), edges: String(to), busy: state.dirty ? "yes" : "no", nodes: String(nodes), zoom: picture.view.zoom.toFixed(3) });
  if (state.dirty) later();
}

function list() { // the legend; classes can be hidden and shown
  const kind = colour.value, item = (text, paint_, act) => {
    const own = make("li", null), inside = make(act ? "button" : "span", null, act ? { type: "button" } : { class: "fixed" });
    const dot = make("i", "");
    dot.style.background = paint_;
    inside.append(dot, make("span", text, { title: text }));
    if (act) act(inside);
    own.append(inside);
    return own;
  };
  if (kind === "class" || kind === "predicted") {
    const hidden = state.hidden[kind], known = [...data.names.keys()].map((k) => [k, data.names[k]]);
    if (kind === "class" && arrays.classes.includes(-1)) known.push([-1, "not known"]);
    legend.replaceChildren(...known.map(([k, name]) => item(name, hue(k), (button) => {
      button.setAttribute("aria-pressed", String(!hidden.has(k)));
      button.addEventListener("click", () => {
        if (!hidden.delete(k)) hidden.add(k);
        button.setAttribute("aria-pressed", String(!hidden.has(k)));
        paint();
      });
    })));
  } else if (kind === "right") {
    const unknown = arrays.classes.includes(-1) ? [item("class not known", grey)] : [];
    legend.replaceChildren(item("right", `rgb(${GOOD})`), item("wrong", `rgb(${BAD})`), ...unknown);
  } else if (kind === "state") {
    legend.replaceChildren(item("like colours are like states; grey is the middle of all", grey));
  } else {
    const ends = data.task === "regression" ? data.ranges[Number(output.value)].map(number) : kind === "truth" ? ["no", "yes"] : ["0%", "100%"];
    legend.replaceChildren(item(ends[0], `rgb(${ramp(0)})`), item(ends[1], `rgb(${ramp(1)})`), ...(kind === "truth" ? [item("not known", grey)] : []));
  }
}

async function choose(node, move) {
  state.chosen = node;
  state.update = null;
  if (node < 0) {
    panel.replaceChildren(make("p", "Choose a node: click one, or find it by its id."));
    paint();
    return;
  }
  if (move && picture) centre(node);
  paint();
  try {
    const detail = await detailOf(node);
    if (state.chosen !== node) return; // another one was chosen meanwhile
    state.update = describe(panel, node, detail, choose);
    state.update(state.frame);
    panel.dataset.node = String(node);
    if (move) panel.querySelector("h2").focus({ preventScroll: true });
  } catch (error) {
    panel.replaceChildren(make("p", `Node ${idOf(node)}: nothing came from the server (${error.message}). Is it still running?`));
  }
}
function centre(node) {
  const [x, y] = picture.pixel(node), margin = 40;
  if (x > margin && y > margin && x < canvas.clientWidth - margin && y < canvas.clientHeight - margin) return;
  picture.view.x = arrays.places[2 * node] / 65535;
  picture.view.y = arrays.places[2 * node + 1] / 65535;
}
function nearest(px, py, reach) {
  const [x, y, side] = picture.place(px, py);
  let best = -1, least = (reach / side) ** 2;
  for (let node = 0; node < count; node += 1) {
    if (!sizes[node]) continue;
    const far = (arrays.places[2 * node] / 65535 - x) ** 2 + (arrays.places[2 * node + 1] / 65535 - y) ** 2;
    if (far < least) { least = far; best = node; }
  }
  return best;
}
function middle() { // of the picture, or the chosen node where it can be seen
  const [x, y] = state.chosen < 0 ? [-1, -1] : picture.pixel(state.chosen), [w, h] = [canvas.clientWidth, canvas.clientHeight];
  return x > 0 && y > 0 && x < w && y < h ? [x, y] : [w / 2, h / 2];
}
function zoom(factor, [px, py] = middle()) {
  const { view } = picture, [x, y] = picture.place(px, py);
  view.zoom = Math.min(Math.max(view.zoom * factor, 0.5), 200);
  const [u, v] = picture.place(px, py);
  view.x += x - u;
  view.y += y - v;
  changed();
}
function shift(dx, dy) {
  const side = picture.place(0, 0)[2], { view } = picture;
  view.x = Math.min(Math.max(view.x - dx / side, -0.5), 1.5);
  view.y = Math.min(Math.max(view.y + dy / side, -0.5), 1.5);
  changed();
}
function whole() { Object.assign(picture.view, { x: 0.5, y: 0.5, zoom: 1 }); changed(); }

function stop() {
  cancelAnimationFrame(state.timer);
  state.timer = 0;
  play.textContent = "Play";
  paint();
}
function go() {
  if (state.frame >= last) state.frame = 0;
  play.textContent = "Pause";
  const begun = performance.now(), from = state.frame, each = Math.max(4000 / Math.max(last, 1), 120);
  const step = (now) => {
    state.frame = Math.min(from + Math.max(now - begun, 0) / each, last);
    if (state.frame < last) state.timer = requestAnimationFrame(step);
    else { stop(); return; }
    paint();
  };
  state.timer = requestAnimationFrame(step);
}

function find(text) {
  const wanted = text.trim();
  results.replaceChildren();
  if (!wanted) return;
  const exact = data.ids ? data.ids.indexOf(wanted) : /^\d+$/.test(wanted) && Number(wanted) < count ? Number(wanted) : -1;
  if (exact >= 0) { choose(exact, true); return; }
  const lower = wanted.toLowerCase(), found = [];
  for (let node = 0; node < count && found.length < 9; node += 1) if (idOf(node).toLowerCase().includes(lower)) found.push(node);
  if (found.length === 1) { choose(found[0], true); return; }
  if (!found.length) { results.append(make("p", `No node has an id with “${wanted}” in it.`, { role: "status" })); return; }
  results.append(make("p", found.length > 8 ? "The first 8 nodes with it:" : `${found.length} nodes:`, { role: "status" }));
  for (const node of found.slice(0, 8)) {
    const button = make("button", idOf(node), { type: "button", title: idOf(node) });
    button.addEventListener("click", () => { results.replaceChildren(); choose(node, true); });
    results.append(button);
  }
}
