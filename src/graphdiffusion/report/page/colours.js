"use strict";
// What the scripts of pages share: the colours of classes and numbers, and arrays from text.

// Okabe and Ito's palette first, then further hues
const palette = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#b8a900", "#8b5cf6",
  "#a0522d", "#5f9e00", "#d6336c", "#1098ad"];
const grey = "#8a929b";
const hue = (k) => (k < 0 ? grey : palette[k % palette.length]);

const stops = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]]; // viridis
const gradient = (share) => { // red, green and blue of a share in [0, 1]
  const k = Math.min(Math.floor(share * 4), 3), part = share * 4 - k;
  return stops[k].map((low, c) => Math.round(low * (1 - part) + stops[k + 1][c] * part));
};

const bytes = (text) => { // of base64
  const given = atob(text), found = new Uint8Array(given.length);
  for (let k = 0; k < given.length; k += 1) found[k] = given.charCodeAt(k);
  return found.buffer;
};

