// What is said of the node that is chosen. Whatever comes from data is set as text, never as markup.
function make(tag, text, attributes = {}) {
  const own = document.createElement(tag);
  if (text !== null) own.textContent = text;
  for (const [name, value] of Object.entries(attributes)) own.setAttribute(name, value);
  return own;
}
function draw2d(tag, attributes) {
  const own = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) own.setAttribute(name, value);
  return own;
}
const percent = (share) => `${(100 * share).toFixed(1)}%`;
const number = (value) => (Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4))));
const partName = (node) => ["in no part", "training", "validation", "test"][arrays.parts[node]];
const MOST = 40; // neighbours in the list

const along = (values, frame) => between(values, values.length, 1, 0, frame);
const shown = (value) => (data.task === "regression" ? number(value) : percent(value));

// The answers of a node along t: a line for each class, label or target, and a mark at the t of now.
function chart(answers, chosen) {
  const width = 300, height = 110, left = 4, base = height - 14;
  const svg = draw2d("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img",
    "aria-label": `${data.noun === "target" ? "Predictions" : "Probabilities"} along t; the list below has them at t` });
  const own = (k) => (data.task === "regression" ? data.ranges[k] : [0, 1]);
  const x = (m) => left + (width - 2 * left) * m / (answers.length - 1);
  const y = (value, k) => base - (base - 4) * (value - own(k)[0]) / Math.max(own(k)[1] - own(k)[0], 1e-300);
  for (const level of [0, 0.5, 1]) {
    const height_ = base - (base - 4) * level;
    svg.append(draw2d("line", { x1: left, x2: width - left, y1: height_, y2: height_, class: "rule" }));
  }
  for (const k of data.names.keys()) {
    const points = answers.map((row, m) => `${x(m).toFixed(1)},${y(row[k], k).toFixed(1)}`).join(" ");
    svg.append(draw2d("polyline", { points, class: chosen.includes(k) ? "line" : "line faint", stroke: hue(k) }));
  }
  for (const [text, place, anchor] of [["t = 0", left, "start"], [`T = ${number(data.times[last])}`, width - left, "end"]]) {
    const label = draw2d("text", { x: place, y: height - 2, "text-anchor": anchor });
    label.textContent = text;
    svg.append(label);
  }
  const now = draw2d("line", { y1: 0, y2: base, class: "now" });
  svg.append(now);
  return { svg, move: (frame) => { now.setAttribute("x1", x(frame)); now.setAttribute("x2", x(frame)); } };
}

function bar(share, colour) {
  const own = make("i", "", { class: "bar" });
  own.style.width = `${Math.min(Math.max(100 * share, 0), 100)}%`;
  if (colour) own.style.background = colour;
  return own;
}

// The parts of the panel; what it returns is called with each new t.
function describe(panel, node, detail, choose) {
  const moves = [];
  panel.replaceChildren();
  const facts = make("dl", null);
  const fact = (name) => {
    const value = make("dd", "");
    facts.append(make("dt", name), value);
    return value;
  };
  panel.append(make("h2", `Node ${idOf(node)}`, { tabindex: "-1" }), facts);
  if (arrays.classes) {
    const own = arrays.classes[node], said = fact("predicted at t");
    fact("class").textContent = own < 0 ? "not known" : data.names[own];
    moves.push((frame) => {
      const k = predictedAt(node, frame);
      said.textContent = data.names[k] + (own < 0 ? "" : k === own ? ", right" : ", wrong");
    });
  } else {
    const truth = fact(`true ${data.noun}s`), size = arrays.truth.length / count;
    const told = [];
    for (let k = 0; k < size; k += 1) {
      const share = arrays.truth[k * count + node];
      if (share === 65535) continue;
      if (data.task === "regression") told.push(`${data.names[k]} ${number(arrays.exact[k * count + node])}`);
      else if (share > 32767) told.push(data.names[k]);
    }
    const known = arrays.truth[node] !== 65535;
    truth.textContent = known ? told.join(", ") || "none" : "not known";
  }
  fact("part").textContent = partName(node);

  panel.append(make("h3", { class: "Class probabilities", label: "Label probabilities", target: "Prediction" }[data.noun]));
  if (!detail.answers) panel.append(make("p", "The file leaves its answers out.", { class: "soft" }));
  else {
    const peak = data.names.map((_, k) => Math.max(...detail.answers.map((row) => row[k])));
    const order = [...data.names.keys()].sort((a, b) => peak[b] - peak[a]).slice(0, 6);
    if (detail.answers.length > 1 && data.times[last] > 0) {
      const drawn = chart(detail.answers, order);
      panel.append(drawn.svg);
      moves.push(drawn.move);
    }
    const list = make("ul", null, { class: "answers" });
    const values = order.map((k) => {
      const item = make("li", null), dot = make("b", ""), value = make("span", "", { class: "value" });
      dot.style.background = hue(k);
      item.append(dot, make("span", data.names[k], { title: data.names[k], class: "name" }), value);
      list.append(item);
      return [k, value];
    });
    panel.append(list);
    moves.push((frame) => {
      for (const [k, value] of values) value.textContent = shown(along(detail.answers.map((row) => row[k]), frame));
    });
  }
  neighbours(panel, node, detail, choose, moves);

  panel.append(make("h3", "Shares by distance"));
  if (!detail.shares) panel.append(make("p", "This is not known for this model, or left out of the file.", { class: "soft" }));
  else {
    const list = make("ol", null, { class: "shares" });
    detail.shares.forEach((share, k) => {
      const item = make("li", null), far = k > data.furthest;
      const name = k === 0 ? "itself" : `${far ? "further" : k} ${far ? "" : k === 1 ? "edge" : "edges"}`;
      const track = make("span", null, { class: "track" });
      track.append(bar(share / Math.max(...detail.shares)));
      item.append(make("span", name.trim(), { class: "name" }), track, make("span", percent(share), { class: "value" }));
      list.append(item);
    });
    panel.append(make("p", "Share of its state at T that comes from nodes so many edges away", { class: "soft" }), list);
  }
  return (frame) => moves.forEach((move) => move(frame));
}

function neighbours(panel, node, detail, choose, moves) {
  const attention = data.edge.kind === "attention";
  panel.append(make("h3", attention ? "Attention" : "Its neighbours"));
  const near = detail.neighbours ? detail.neighbours.map((own) => own[0]) : Array.from(pairsOf(node), (p) => otherEnd(p, node));
  if (!near.length) { panel.append(make("p", "It has no neighbours.", { class: "soft" })); return; }
  const table = make("table", null), head = make("tr", null), body = make("tbody", null);
  const titles = !detail.neighbours ? ["node"] : attention ? ["node", "to it", "from it"] : ["node", "weight", "back"];
  head.append(...titles.map((title) => make("th", title, { scope: "col" })));
  const top = make("thead", null);
  top.append(head);
  table.append(top, body);
  const rows = (detail.neighbours || near.map((k) => [k, null, null])).slice();
  if (detail.own) rows.push([node, detail.own, detail.own]);
  panel.append(table);
  const more = make("p", "", { class: "soft" });
  panel.append(more);
  const fill = (frame) => {
    const value = (values) => (values ? along(values, Math.min(frame, values.length - 1)) : null);
    const sorted = rows.map(([k, there, back]) => [k, value(there), value(back)])
      .sort((a, b) => Math.abs(b[1] ?? 0) - Math.abs(a[1] ?? 0));
    const peak = Math.max(...sorted.map((own) => Math.abs(own[1] ?? 0)), 1e-12);
    const focused = document.activeElement?.dataset?.node;
    body.replaceChildren(...sorted.slice(0, MOST).map(([k, there, back]) => {
      const row = make("tr", null), cell = make("th", null, { scope: "row" }), given = make("td", null);
      if (k === node) cell.append(make("span", "itself"));
      else {
        const button = make("button", idOf(k), { type: "button", title: idOf(k), "data-node": k });
        if (arrays.classes) button.style.borderLeftColor = hue(arrays.classes[k]);
        button.addEventListener("click", () => choose(k, true));
        cell.append(button);
      }
      row.append(cell);
      if (!detail.neighbours) return row;
      const told = (value) => (value === null ? "–" : attention ? value.toFixed(3) : number(value));
      given.append(make("span", told(there)), bar(Math.abs(there ?? 0) / peak));
      row.append(given, make("td", told(back)));
      return row;
    }));
    if (focused !== undefined) body.querySelector(`[data-node="${focused}"]`)?.focus();
    const rest = sorted.length - MOST;
    more.textContent = rest > 0 ? `and ${rest} weaker ones` : detail.neighbours ? "" : "The file leaves the numbers out.";
  };
  if (rows.some((own) => (own[1] || own[2] || []).length > 1)) moves.push(fill);
  else fill(0);
}
