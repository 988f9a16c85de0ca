// The nodes as they diffuse: a scatter plot with a slider over t. Everything it shows is in the element "data".
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const canvas = document.getElementById("nodes-canvas");
  if (!canvas || !data.nodes) return;

  const own = data.nodes;
  const count = own.ids.length;
  const frames = own.times.length;
  const places = {};
  for (const [name, text] of Object.entries(own.places)) places[name] = new Uint16Array(bytes(text));
  const predicted = own.predicted && new Uint16Array(bytes(own.predicted));
  const classes = own.classes && new Int16Array(bytes(own.classes)); // -1: not known
  const values = own.values && new Uint16Array(bytes(own.values)); // of a target; 0: not known
  const names = own.names;
  const at = (id) => document.getElementById(id);
  const slider = at("time"), value = at("time-value"), play = at("play");
  const embedding = at("embedding"), colour = at("colour"), legend = at("legend"), about = at("about");
  const context = canvas.getContext("2d");

  const state = { frame: frames - 1, hidden: new Set(), marked: -1, timer: 0 };

  const kind = (node) => { // the class that a node is coloured by
    const said = predicted ? predicted[Math.round(state.frame) * count + node] : -1;
    if (colour.value === "predicted") return said;
    if (colour.value === "right") return classes[node] < 0 ? -1 : Number(said !== classes[node]);
    return classes ? classes[node] : -1;
  };
  const paint = (node) => {
    if (colour.value !== "value") return tint(kind(node));
    return values[node] ? `rgb(${gradient((values[node] - 1) / 65534)})` : grey;
  };
  const tint = (k) => (colour.value === "right" && k >= 0 ? ["#009e73", "#d55e00"][k] : hue(k));
  const kinds = () => (colour.value === "right" ? ["right", "wrong"] : names);

  function place(node) { // between two frames points move along a line
    const points = places[embedding.value];
    const low = Math.floor(state.frame), high = Math.min(low + 1, frames - 1), part = state.frame - low;
    const mix = (k) => (points[2 * (low * count + node) + k] * (1 - part)
      + points[2 * (high * count + node) + k] * part) / 65535;
    return [mix(0), mix(1)];
  }

  function draw() {
    const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const side = Math.min(width, height) - 16, left = (width - side) / 2, top = (height - side) / 2;
    const radius = count > 1500 ? 2 : 3;
    context.globalAlpha = count > 1500 ? 0.7 : 0.85;
    for (let node = 0; node < count; node += 1) {
      if (state.hidden.has(kind(node))) continue;
      const [x, y] = place(node);
      context.fillStyle = paint(node);
      context.beginPath();
      context.arc(left + x * side, top + (1 - y) * side, radius, 0, 7);
      context.fill();
    }
    context.globalAlpha = 1;
    if (state.marked >= 0) {
      const [x, y] = place(state.marked);
      context.strokeStyle = getComputedStyle(document.body).color;
      context.lineWidth = 2;
      context.beginPath();
      context.arc(left + x * side, top + (1 - y) * side, 7, 0, 7);
      context.stroke();
    }
    const t = own.times[Math.round(state.frame)];
    value.textContent = `t = ${t.toPrecision(3)}`;
    slider.setAttribute("aria-valuetext", `t = ${t.toPrecision(3)} of ${own.times[frames - 1].toPrecision(3)}`);
    canvas.dataset.frame = String(state.frame); // what a test looks at
  }

  function describe(node) {
    state.marked = node;
    if (node < 0) { about.textContent = ""; return; }
    const parts = [`node ${own.ids[node]}`];
    if (classes) parts.push(classes[node] < 0 ? "class not known" : `class ${names[classes[node]]}`);
    if (predicted) parts.push(`predicted at this t: ${names[predicted[Math.round(state.frame) * count + node]]}`);
    const said = parts.join("; ");
    if (about.textContent !== said) about.textContent = said;
  }

  function list() { // the legend; a click hides and shows
    legend.replaceChildren(...kinds().map((name, k) => {
      const item = document.createElement("li"), button = document.createElement("button");
      const dot = document.createElement("i"), label = document.createElement("span");
      dot.style.background = tint(k);
      button.type = "button";
      button.setAttribute("aria-pressed", String(!state.hidden.has(k)));
      label.textContent = button.title = name; // as text, never as markup; the whole of a long one
      button.append(dot, label);
      button.addEventListener("click", () => {
        if (!state.hidden.delete(k)) state.hidden.add(k);
        list();
        draw();
      });
      item.append(button);
      return item;
    }));
  }

  function nearest(event) {
    const box = canvas.getBoundingClientRect();
    const side = Math.min(box.width, box.height) - 16;
    const left = (box.width - side) / 2, top = (box.height - side) / 2;
    const x = (event.clientX - box.left - left) / side, y = 1 - (event.clientY - box.top - top) / side;
    let best = -1, least = (14 / side) ** 2;
    for (let node = 0; node < count; node += 1) {
      if (state.hidden.has(kind(node))) continue;
      const [a, b] = place(node), far = (a - x) ** 2 + (b - y) ** 2;
      if (far < least) { least = far; best = node; }
    }
    return best;
  }

  function stop() {
    cancelAnimationFrame(state.timer);
    state.timer = 0;
    play.textContent = "Play";
    state.frame = Math.round(state.frame);
    slider.value = String(state.frame);
    describe(state.marked);
    draw();
  }

  function go() {
    if (state.frame >= frames - 1) state.frame = 0;
    play.textContent = "Pause";
    const begun = performance.now(), from = state.frame;
    const step = (now) => {
      state.frame = Math.min(from + (now - begun) / 150, frames - 1);
      slider.value = String(Math.round(state.frame));
      describe(state.marked); // its prediction may change along t
      draw();
      if (state.frame < frames - 1) state.timer = requestAnimationFrame(step);
      else stop();
    };
    state.timer = requestAnimationFrame(step);
  }

  slider.addEventListener("input", () => {
    const wanted = Number(slider.value);
    if (state.timer) stop();
    state.frame = wanted;
    slider.value = String(wanted);
    describe(state.marked);
    draw();
  });
  play.addEventListener("click", () => (state.timer ? stop() : go()));
  embedding.addEventListener("change", draw);
  colour.addEventListener("change", () => { state.hidden.clear(); list(); draw(); });
  canvas.addEventListener("click", (event) => { describe(nearest(event)); draw(); });
  window.addEventListener("resize", draw);
  list();
  draw();
})();
