// What the page was given: arrays, and the neighbours of each node.
const at = (id) => document.getElementById(id);
const data = JSON.parse(at("data").textContent);
const count = data.count, frames = data.times.length, last = frames - 1;
const arrays = {};
const kinds = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i2: Int16Array, f4: Float32Array };
const isExact = (array) => array instanceof Float32Array; // others are shares of a range

async function unpack(text) {
  const packed = new Blob([bytes(text)]).stream();
  return new Response(packed.pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
}

try {
  for (const [name, own] of Object.entries(data.arrays)) arrays[name] = new kinds[own.kind](await unpack(own.data));
} catch (error) {
  at("status").textContent = "This browser is too old for this page: it cannot unpack its data.";
  throw error;
}
data.arrays = null;

const pairs = arrays.pairs.length / 2;
const first = arrays.pairs.subarray(0, pairs), second = arrays.pairs.subarray(pairs);

// pairs[start[i]] to pairs[start[i + 1]] are those of node i
const start = new Uint32Array(count + 1), ownPairs = new Uint32Array(2 * pairs);
for (let p = 0; p < pairs; p += 1) { start[first[p] + 1] += 1; start[second[p] + 1] += 1; }
for (let i = 0; i < count; i += 1) start[i + 1] += start[i];
{
  const next = start.slice();
  for (let p = 0; p < pairs; p += 1) { ownPairs[next[first[p]]++] = p; ownPairs[next[second[p]]++] = p; }
}
const pairsOf = (node) => ownPairs.subarray(start[node], start[node + 1]);
const otherEnd = (pair, node) => (first[pair] === node ? second[pair] : first[pair]);
const idOf = (node) => (data.ids ? data.ids[node] : String(node));

const widthFrames = pairs ? arrays.width.length / pairs : 1;
const saidFrames = arrays.predicted ? arrays.predicted.length / count : 1;

// A number at a fractional frame, of an array with a row for each frame or one row for all.
function between(array, rows, size, place, frame) {
  const low = Math.min(Math.floor(frame), rows - 1), high = Math.min(low + 1, rows - 1);
  const part = rows > 1 ? frame - low : 0;
  return array[low * size + place] * (1 - part) + array[high * size + place] * part;
}

// What is said of a node, from the arrays of the page, in the form that the server gives it.
function stored(node) {
  const outputs = data.names.length, found = { answers: null, own: null, neighbours: null, shares: null };
  if (arrays.answers) {
    const rows = arrays.answers.length / (count * outputs);
    found.answers = Array.from({ length: rows }, (_, m) => data.ranges.map(([low, high], k) => {
      const own = arrays.answers[(m * count + node) * outputs + k];
      return isExact(arrays.answers) ? own : low + (high - low) * own / 65534;
    }));
  }
  if (arrays.there) {
    const [low, high] = data.edge.range;
    const along = (array, size, place) => {
      if (array[place] === 65535 && !isExact(array) || Number.isNaN(array[place])) return null;
      return Array.from({ length: array.length / size }, (_, m) => {
        const own = array[m * size + place];
        return isExact(array) ? own : low + (high - low) * own / 65534;
      });
    };
    found.own = along(arrays.loops, count, node);
    found.neighbours = Array.from(pairsOf(node), (pair) => {
      const there = along(arrays.there, pairs, pair), back = along(arrays.back, pairs, pair);
      return first[pair] === node ? [second[pair], there, back] : [first[pair], back, there];
    });
  }
  if (arrays.shares) {
    const size = data.furthest + 2;
    found.shares = Array.from(arrays.shares.subarray(node * size, (node + 1) * size), (share) => share / 65535);
  }
  return found;
}

async function detailOf(node) {
  if (!data.served) return stored(node);
  const reply = await fetch(`/node?number=${node}`);
  if (!reply.ok) throw new Error((await reply.json()).error);
  return reply.json();
}
