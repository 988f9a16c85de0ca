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
const EDGES = `#version 300 es
in vec4 ends; in float strength;
uniform vec2 scale, shift, pixels; uniform float widest, opacity;
out float across, reach, alpha;
void main() {
  vec2 a = ends.xy * scale + shift, b = ends.zw * scale + shift, way = (b - a) * pixels;
  float length_ = length(way), share = (strength * 255.0 - 1.0) / 254.0;
  float width = max(widest * share, 0.4);
  reach = 0.5 * max(width, 1.0) + 0.5;
  across = float(gl_VertexID & 1) * 2.0 - 1.0;
  alpha = opacity * (0.25 + 0.75 * share) * min(width, 1.0);
  vec2 side = length_ > 0.0 ? vec2(-way.y, way.x) / length_ : vec2(0);
  vec2 end = gl_VertexID < 2 ? a : b;
  gl_Position = strength > 0.0 ? vec4(end + 2.0 * across * reach * side / pixels, 0, 1) : vec4(2, 2, 2, 1);
}`;
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
    return { own, at: (name) => gl.getUniformLocation(own, name) };
  };
  // attributes: [size, type, normalised, array or null], one buffer each
  const shape = (attributes, each) => {
    const array = gl.createVertexArray();
    gl.bindVertexArray(array);
    const buffers = attributes.map(([size, type, normalised], place) => {
      const buffer = gl.createBuffer();
      gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
      gl.enableVertexAttribArray(place);
      gl.vertexAttribPointer(place, size, type, normalised, 0, 0);
      gl.vertexAttribDivisor(place, each);
      return buffer;
    });
    return { array, buffers };
  };
  const fill = (buffer, values) => {
    gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
    gl.bufferData(gl.ARRAY_BUFFER, values, gl.DYNAMIC_DRAW);
  };
  const u8 = gl.UNSIGNED_BYTE, u16 = gl.UNSIGNED_SHORT;
  let own; // everything that lies on the device

  function prepare() {
    const edge = [[4, u16, true], [1, u8, true]];
    own = {
      discs: program(NODES, DISC, ["place", "colour", "size"]),
      bands: program(EDGES, BAND, ["ends", "strength"]),
      nodes: shape([[2, u16, true], [4, u8, true], [1, u8, false]], 0),
      edges: shape(edge, 1), marked: shape(edge, 1), markedCount: 0,
    };
    fill(own.nodes.buffers[0], arrays.places);
    fill(own.edges.buffers[0], endsOf(pairs, (p) => p));
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
    weigh(strengths) { fill(own.edges.buffers[1], strengths); },
    mark(list, strengths) { // edges that stand out
      own.markedCount = list.length;
      fill(own.marked.buffers[0], endsOf(list.length, (k) => list[k]));
      fill(own.marked.buffers[1], strengths);
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
    draw({ edges, most, text, mark, dim }) {
      const ratio = Math.min(window.devicePixelRatio || 1, 2), { width, height, scale, shift } = frame();
      const w = Math.round(width * ratio), h = Math.round(height * ratio);
      if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
      gl.viewport(0, 0, w, h);
      gl.clearColor(0, 0, 0, 0);
      gl.clear(gl.COLOR_BUFFER_BIT);
      gl.enable(gl.BLEND);
      gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
      const bands = (shape_, number, tint, widest, opacity) => {
        if (!number) return;
        gl.useProgram(own.bands.own);
        gl.uniform2fv(own.bands.at("scale"), scale);
        gl.uniform2fv(own.bands.at("shift"), shift);
        gl.uniform2f(own.bands.at("pixels"), w, h);
        gl.uniform3fv(own.bands.at("tint"), tint);
        gl.uniform1f(own.bands.at("widest"), widest * ratio);
        gl.uniform1f(own.bands.at("opacity"), opacity);
        gl.bindVertexArray(shape_.array);
        gl.drawArraysInstanced(gl.TRIANGLE_STRIP, 0, 4, number);
      };
      const radius = picture.radius();
      // many edges are fainter, until one looks closer
      const crowd = Math.min(1, Math.sqrt(6000 / Math.max(pairs, 1)) * Math.max(view.zoom, 1));
      const widest = Math.min(Math.max(1.1 * radius, 1.2), 6);
      if (edges) bands(own.edges, Math.min(pairs, most), text, widest, 0.5 * crowd * (dim ? 0.35 : 1));
      bands(own.marked, own.markedCount, mark, Math.max(widest, 3), 0.9);
      gl.useProgram(own.discs.own);
      gl.uniform2fv(own.discs.at("scale"), scale);
      gl.uniform2fv(own.discs.at("shift"), shift);
      gl.uniform1f(own.discs.at("radius"), radius * ratio);
      gl.bindVertexArray(own.nodes.array);
      gl.drawArrays(gl.POINTS, 0, count);
      picture.drawn += 1;
    },
    restore: prepare,
  };
  prepare();
  return picture;
}
