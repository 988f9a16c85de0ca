// The picture: nodes as discs and edges as narrow rectangles, in WebGL 2.
const NODES = `#version 300 es
in vec2 place; in vec4 colour; in float size;
uniform vec2 scale, shift; uniform float radius;
out vec4 paint; out float diameter;
void main() {
  gl_Position = size > 0.0 ? vec4(place * scale + shift, 0, 1) : vec4(2, 2, 2, 1);
  diameter = 2.0 * radius * size / 4.0 + 1.0;
  gl_PointSize = diameter;
  paint = colour;
}`;
const DISC = `#version 300 es
precision mediump float;
in vec4 paint; in float diameter;
out vec4 found;
void main() {
  float inside = 0.5 * diameter - length(gl_PointCoord - 0.5) * diameter;
  float alpha = paint.a * clamp(inside, 0.0, 1.0);
  found = vec4(paint.rgb * alpha, alpha);
}`;
// Edges are read from textures, a row of ROW after another: drawing instances is slow without a GPU.
const ROW = 2048;
const EDGES = `#version 300 es
precision highp usampler2D;
uniform usampler2D ends; uniform sampler2D strength;
uniform vec2 scale, shift, pixels; uniform float widest, opacity; uniform bool thin;
out float across, reach, alpha;
void main() {
  int corners = thin ? 2 : 6, edge = gl_VertexID / corners, corner = gl_VertexID % corners;
  ivec2 at = ivec2(edge % ${ROW}, edge / ${ROW});
  vec4 places = vec4(texelFetch(ends, at, 0)) / 65535.0;
  float root = (texelFetch(strength, at, 0).r * 255.0 - 1.0) / 254.0; // of the strength
  float width = max(widest * root * root, 0.4);
  vec2 a = places.xy * scale + shift, b = places.zw * scale + shift, way = (b - a) * pixels;
  vec2 side = way == vec2(0) ? way : vec2(-way.y, way.x) / length(way);
  reach = 0.5 * max(width, 1.0) + 0.5;
  across = thin ? 0.0 : float(corner & 1) * 2.0 - 1.0; // two triangles: 0 1 2 and 1 2 3
  alpha = opacity * (0.15 + 0.85 * root) * min(width, 1.0);
  vec2 end = (thin ? corner : (corner > 2 ? corner - 2 : corner) / 2) == 0 ? a : b;
  if (!thin && corner > 2) across = float((corner - 2) & 1) * 2.0 - 1.0;
  gl_Position = root >= 0.0 ? vec4(end + 2.0 * across * reach * side / pixels, 0, 1) : vec4(2, 2, 2, 1);
}`;
const WHOLE = `#version 300 es
out vec2 place;
void main() {
  place = vec2(gl_VertexID & 1, gl_VertexID >> 1);
  gl_Position = vec4(2.0 * place - 1.0, 0, 1);
}`;
const COPY = `#version 300 es
precision mediump float;
in vec2 place; uniform sampler2D image;
out vec4 found;
void main() { found = texture(image, place); }`;
const BAND = `#version 300 es
precision mediump float;
in float across, reach, alpha; uniform vec3 tint;
out vec4 found;
void main() {
  float a = alpha * clamp(reach - abs(across) * reach, 0.0, 1.0);
  found = vec4(tint * a, a);
}`;

function makePicture(canvas) {
  const gl = canvas.getContext("webgl2", { antialias: false, premultipliedAlpha: true });
  if (!gl) return null;
  const view = { x: 0.5, y: 0.5, zoom: 1 };

  const program = (vertex, fragment, names) => {
    const own = gl.createProgram();
    for (const [kind, text] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, text);
      gl.compileShader(shader);
      gl.attachShader(own, shader);
    }
    names.forEach((name, place) => gl.bindAttribLocation(own, place, name));
    gl.linkProgram(own);
    if (!gl.getProgramParameter(own, gl.LINK_STATUS) && !gl.isContextLost()) throw new Error(gl.getProgramInfoLog(own));
    const places = new Map();
    const at_ = (name) => {
      if (!places.has(name)) places.set(name, gl.getUniformLocation(own, name));
      return places.get(name);
    };
    return { own, at: at_ };
  };
  // attributes: [size, type, normalised], one buffer each
  const shape = (attributes) => {
    const array = gl.createVertexArray();
    gl.bindVertexArray(array);
    const buffers = attributes.map(([size, type, normalised], place) => {
      const buffer = gl.createBuffer();
      gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
      gl.enableVertexAttribArray(place);
      gl.vertexAttribPointer(place, size, type, normalised, 0, 0);
      return buffer;
    });
    return { array, buffers };
  };
  const fill = (buffer, values) => {
    gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
    gl.bufferData(gl.ARRAY_BUFFER, values, gl.DYNAMIC_DRAW);
  };
  const list = (buffer, nodes) => {
    gl.bindVertexArray(own.nodes.array);
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, buffer);
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, nodes, gl.DYNAMIC_DRAW);
  };
  // all nodes in an order without pattern, so that the first of them are a fair sample
  const order = Uint32Array.from({ length: count }, (_, k) => k);
  for (let k = count - 1, seed = 1; k > 0; k -= 1) {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    const other = seed % (k + 1), kept = order[k];
    order[k] = order[other];
    order[other] = kept;
  }
  const u8 = gl.UNSIGNED_BYTE, u16 = gl.UNSIGNED_SHORT;
  const table = (unit) => { // a texture whose entries are looked up, and never mixed
    const texture = gl.createTexture();
    gl.activeTexture(gl.TEXTURE0 + unit);
    gl.bindTexture(gl.TEXTURE_2D, texture);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST);
    return { texture, unit };
  };
  const enter = ({ texture, unit }, inside, format, type, channels, values) => {
    const height = Math.max(Math.ceil(values.length / channels / ROW), 1);
    const whole = new values.constructor(ROW * height * channels);
    whole.set(values);
    gl.activeTexture(gl.TEXTURE0 + unit);
    gl.bindTexture(gl.TEXTURE_2D, texture);
    gl.pixelStorei(gl.UNPACK_ALIGNMENT, 1);
    gl.texImage2D(gl.TEXTURE_2D, 0, inside, ROW, height, 0, format, type, whole);
  };
  const enterEnds = (into, ends) => enter(into, gl.RGBA16UI, gl.RGBA_INTEGER, u16, 4, ends);
  const enterStrengths = (into, values) => enter(into, gl.R8, gl.RED, u8, 1, values);
  let own; // everything that lies on the device

  function prepare() {
    own = {
      discs: program(NODES, DISC, ["place", "colour", "size"]),
      bands: program(EDGES, BAND, []),
      copy: program(WHOLE, COPY, []),
      nodes: shape([[2, u16, true], [4, u8, true], [1, u8, false]]),
      kept: table(0), buffer: gl.createFramebuffer(), empty: gl.createVertexArray(), size: "",
      edges: { ends: table(1), strength: table(2) }, marked: { ends: table(3), strength: table(4) }, markedCount: 0, frontCount: 0,
    };
    fill(own.nodes.buffers[0], arrays.places);
    own.order = gl.createBuffer();
    own.front = gl.createBuffer();
    list(own.order, order);
    enterEnds(own.edges.ends, endsOf(pairs, (p) => p));
  }
  function keep(w, h) { // the edges lie in a texture of the size of the picture
    gl.activeTexture(gl.TEXTURE0);
    gl.bindTexture(gl.TEXTURE_2D, own.kept.texture);
    if (own.size === `${w} ${h}`) return;
    own.size = `${w} ${h}`;
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, w, h, 0, gl.RGBA, u8, null);
    gl.bindFramebuffer(gl.FRAMEBUFFER, own.buffer);
    gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, own.kept.texture, 0);
  }
  function endsOf(length, pairAt) {
    const ends = new Uint16Array(4 * length), places = arrays.places;
    for (let k = 0; k < length; k += 1) {
      const p = pairAt(k), a = 2 * first[p], b = 2 * second[p];
      ends[4 * k] = places[a]; ends[4 * k + 1] = places[a + 1];
      ends[4 * k + 2] = places[b]; ends[4 * k + 3] = places[b + 1];
    }
    return ends;
  }

  // factors and offsets from places to clip coordinates
  function frame() {
    const width = Math.max(canvas.clientWidth, 1), height = Math.max(canvas.clientHeight, 1);
    const side = Math.min(width, height) * 0.95 * view.zoom;
    const scale = [2 * side / width, 2 * side / height];
    return { width, height, side, scale, shift: [-view.x * scale[0], -view.y * scale[1]] };
  }

  const picture = {
    view, drawn: 0,
    radius() { // of a node, in CSS pixels: smaller where there are many
      const { side } = frame();
      return Math.min(Math.max(0.28 * side / Math.sqrt(count), 0.8), 9);
    },
    colour(colours, sizes) {
      fill(own.nodes.buffers[1], colours);
      fill(own.nodes.buffers[2], sizes);
    },
    weigh(strengths) { enterStrengths(own.edges.strength, strengths); },
    mark(edges, strengths, nodes) { // edges and nodes that stand out
      own.markedCount = edges.length;
      own.frontCount = nodes.length;
      enterEnds(own.marked.ends, endsOf(edges.length, (k) => edges[k]));
      enterStrengths(own.marked.strength, strengths);
      list(own.front, nodes);
    },
    // Where a node is on the screen, and the place of a point on the screen.
    pixel(node) {
      const { width, height, side } = frame();
      return [width / 2 + (arrays.places[2 * node] / 65535 - view.x) * side,
        height / 2 - (arrays.places[2 * node + 1] / 65535 - view.y) * side];
    },
    place(x, y) {
      const { width, height, side } = frame();
      return [view.x + (x - width / 2) / side, view.y - (y - height / 2) / side, side];
    },
    // Draws the edges from one number to another over those that are there, and so many nodes anew.
    draw({ from, to, nodes, text, mark, dim }) {
      const ratio = Math.min(window.devicePixelRatio || 1, 2), { width, height, scale, shift } = frame();
      const w = Math.round(width * ratio), h = Math.round(height * ratio), radius = picture.radius();
      if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
      keep(w, h);
      const bands = (field, begin, end, tint, widest, opacity) => {
        if (begin >= end) return;
        const { own: used, at: uniform } = own.bands, thin = widest * ratio < 1.5;
        gl.useProgram(used);
        gl.uniform2fv(uniform("scale"), scale);
        gl.uniform2fv(uniform("shift"), shift);
        gl.uniform2f(uniform("pixels"), w, h);
        gl.uniform3fv(uniform("tint"), tint);
        gl.uniform1f(uniform("widest"), widest * ratio);
        gl.uniform1f(uniform("opacity"), opacity);
        gl.uniform1i(uniform("thin"), Number(thin));
        gl.uniform1i(uniform("ends"), field.ends.unit);
        gl.uniform1i(uniform("strength"), field.strength.unit);
        gl.bindVertexArray(own.empty);
        const corners = thin ? 2 : 6;
        gl.drawArrays(thin ? gl.LINES : gl.TRIANGLES, begin * corners, (end - begin) * corners);
      };
      gl.viewport(0, 0, w, h);
      gl.clearColor(0, 0, 0, 0);
      gl.enable(gl.BLEND);
      gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
      // many edges are fainter, until one looks closer
      const crowd = Math.min(1, (6000 / Math.max(pairs, 1)) ** 0.7 * Math.max(view.zoom, 1));
      const widest = Math.min(Math.max(1.1 * radius, 1.2), 6);
      gl.bindFramebuffer(gl.FRAMEBUFFER, own.buffer);
      if (!from) gl.clear(gl.COLOR_BUFFER_BIT);
      bands(own.edges, from, to, text, widest, 0.5 * crowd * (dim ? 0.35 : 1));
      gl.bindFramebuffer(gl.FRAMEBUFFER, null);
      gl.clear(gl.COLOR_BUFFER_BIT);
      gl.useProgram(own.copy.own);
      gl.bindVertexArray(own.empty);
      gl.drawArrays(gl.TRIANGLE_STRIP, 0, 4);
      bands(own.marked, 0, own.markedCount, mark, Math.max(widest, 3), 0.9);
      gl.useProgram(own.discs.own);
      gl.uniform2fv(own.discs.at("scale"), scale);
      gl.uniform2fv(own.discs.at("shift"), shift);
      gl.uniform1f(own.discs.at("radius"), radius * ratio);
      gl.bindVertexArray(own.nodes.array);
      for (const [buffer, number] of [[own.order, nodes], [own.front, own.frontCount]]) {
        gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, buffer);
        gl.drawElements(gl.POINTS, number, gl.UNSIGNED_INT, 0);
      }
      picture.drawn += 1;
    },
    restore: prepare,
  };
  prepare();
  return picture;
}
