// What the mouse, fingers and keys do; and the first picture.
let picture = null;
try { picture = makePicture(canvas); } catch (error) { status.dataset.error = String(error); }

const within = (event) => {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
};
const fingers = new Map();
let drag = null; // where the pointer went down, and how far it has moved
canvas.addEventListener("pointerdown", (event) => {
  if (!picture || event.button > 0) return;
  fingers.set(event.pointerId, within(event));
  canvas.setPointerCapture(event.pointerId);
  drag = fingers.size > 1 ? null : { far: 0, touch: event.pointerType === "touch" };
});
canvas.addEventListener("pointermove", (event) => {
  if (!picture) return;
  const [x, y] = within(event), before = fingers.get(event.pointerId);
  if (!before) { point(x, y); return; }
  hover.hidden = true;
  if (fingers.size === 2) { // two fingers: the distance zooms, the middle moves
    const [other] = [...fingers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
    const far = (a) => Math.max(Math.hypot(a[0] - other[0], a[1] - other[1]), 1);
    zoom(far([x, y]) / far(before), [(x + other[0]) / 2, (y + other[1]) / 2]);
    shift((x - before[0]) / 2, (y - before[1]) / 2);
  } else if (fingers.size === 1) {
    if (drag) drag.far += Math.hypot(x - before[0], y - before[1]);
    if (!drag || drag.far > 4) shift(x - before[0], y - before[1]);
  }
  fingers.set(event.pointerId, [x, y]);
});
const lift = (event) => {
  const known = fingers.delete(event.pointerId);
  if (known && event.type === "pointerup" && drag && drag.far <= 4) {
    choose(nearest(...within(event), Math.max(picture.radius() * 1.5, drag.touch ? 22 : 12)), false);
  }
  if (!fingers.size) drag = null;
};
canvas.addEventListener("pointerup", lift);
canvas.addEventListener("pointercancel", lift);
canvas.addEventListener("pointerleave", () => { hover.hidden = true; });
canvas.addEventListener("wheel", (event) => {
  if (!picture) return;
  event.preventDefault();
  zoom(Math.exp(-Math.min(Math.max(event.deltaY, -200), 200) / 300), within(event));
}, { passive: false });

function point(x, y) { // the id of the node below the pointer
  const node = nearest(x, y, Math.max(picture.radius() * 1.2, 6));
  hover.hidden = node < 0;
  canvas.style.cursor = node < 0 ? "" : "pointer";
  if (node < 0) return;
  hover.textContent = idOf(node);
  hover.style.left = `${Math.min(x + 12, canvas.clientWidth - hover.offsetWidth - 4)}px`;
  hover.style.top = `${Math.max(y - 30, 2)}px`;
}

const keys = {
  ArrowLeft: () => shift(60, 0), ArrowRight: () => shift(-60, 0), ArrowUp: () => shift(0, 60), ArrowDown: () => shift(0, -60),
  "+": () => zoom(1.3), "=": () => zoom(1.3), "-": () => zoom(1 / 1.3), 0: whole,
  Enter: () => choose(nearest(canvas.clientWidth / 2, canvas.clientHeight / 2, Infinity), false),
  Escape: () => choose(-1, false),
};
canvas.addEventListener("keydown", (event) => {
  if (!picture || event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(keys, event.key)) return;
  event.preventDefault();
  keys[event.key]();
});
at("nearer").addEventListener("click", () => zoom(1.5));
at("further").addEventListener("click", () => zoom(1 / 1.5));
at("whole").addEventListener("click", whole);

slider.addEventListener("input", () => {
  const wanted = Number(slider.value);
  if (state.timer) stop();
  state.frame = wanted;
  paint();
});
play.addEventListener("click", () => (state.timer ? stop() : go()));
for (const menu of [colour, output]) menu.addEventListener("change", () => { list(); paint(); });
for (const menu of [answers, part]) menu.addEventListener("change", paint);
edges.addEventListener("change", changed);
at("all").addEventListener("click", () => {
  answers.value = part.value = "";
  state.hidden.class.clear();
  state.hidden.predicted.clear();
  list();
  paint();
});
at("search").addEventListener("submit", (event) => { event.preventDefault(); find(at("find").value); });
window.addEventListener("resize", changed);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
canvas.addEventListener("webglcontextrestored", () => { picture.restore(); paint(); });

list();
paint();
if (!picture) {
  canvas.hidden = document.querySelector(".zoom").hidden = true;
  document.querySelector(".picture").append(make("p", "This browser has no WebGL 2, which draws the graph. Find a node by its id: "
    + "what is said of it needs none.", { class: "soft" }));
}
canvas.dataset.ready = "yes";
