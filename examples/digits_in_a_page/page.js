// Reads a digit that is drawn by hand, with a network that glasshouse wrote as C.
// The strokes are drawn on 32 x 32 points, as large as the pictures that the network has seen, and
// counted in squares of 4 x 4: that is how the data set was made.
"use strict";

const SIDE = 32, CELLS = 8, PEN = 4.6, HEIGHT = 31, WIDTH = 25; // of 32 points
const INK = 28; // the width of a stroke on the paper, of 280 points
const canvas = document.getElementById("paper");
const bars = [...document.querySelectorAll("#scores progress")];
const answer = document.getElementById("answer");
const paper = canvas.getContext("2d");
const small = new OffscreenCanvas(SIDE, SIDE).getContext("2d", { willReadFrequently: true });
let strokes = [], network = null;

async function loadNetwork() {
  const [code, weights] = await Promise.all([fetch("page.wasm"), fetch("predict.safetensors")].map(bytesOf));
  // The C keeps functions for files and clocks; the page calls none of them.
  const none = new Proxy({}, { get: () => () => 52 });
  const { instance } = await WebAssembly.instantiate(code, { wasi_snapshot_preview1: none, env: none });
  const page = instance.exports;
  page._initialize?.();
  const at = page.reserve(weights.byteLength);
  new Uint8Array(page.memory.buffer, at, weights.byteLength).set(new Uint8Array(weights));
  if (page.load(at, weights.byteLength)) throw new Error(textAt(page, page.error()));
  return page;
}

async function bytesOf(request) {
  const reply = await request;
  if (!reply.ok) throw new Error(`${reply.url}: ${reply.status}`);
  return reply.arrayBuffer();
}

function textAt(page, at) {
  const bytes = new Uint8Array(page.memory.buffer, at);
  return new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0)));
}

/// The scores of the digits for 64 numbers from 0 to 1.
function scoresOf(page, pixels) {
  new Float32Array(page.memory.buffer, page.pixels(), CELLS * CELLS).set(pixels);
  if (page.read()) throw new Error(textAt(page, page.error()));
  return [...new Float32Array(page.memory.buffer, page.scores(), 10)];
}

/// How much of each of 8 x 8 squares is covered, with the strokes as large as they fit.
function pixelsOf(strokes) {
  const points = strokes.flat();
  const [left, right] = rangeOf(points.map(([x]) => x)), [top, bottom] = rangeOf(points.map(([, y]) => y));
  const scale = Math.min((HEIGHT - PEN) / (bottom - top || 1), (WIDTH - PEN) / (right - left || 1), 1);
  small.setTransform(1, 0, 0, 1, 0, 0);
  small.clearRect(0, 0, SIDE, SIDE);
  small.setTransform(scale, 0, 0, scale, SIDE / 2 - scale * (left + right) / 2,
                     SIDE / 2 - scale * (top + bottom) / 2);
  trace(small, strokes, PEN / scale);
  const alpha = small.getImageData(0, 0, SIDE, SIDE).data.filter((_, i) => i % 4 === 3);
  const pixels = new Float32Array(CELLS * CELLS), step = SIDE / CELLS;
  alpha.forEach((value, i) => {
    const row = Math.floor(i / SIDE / step), column = Math.floor((i % SIDE) / step);
    pixels[row * CELLS + column] += value / 255 / (step * step);
  });
  return pixels;
}

function rangeOf(numbers) {
  return [Math.min(...numbers), Math.max(...numbers)];
}

function trace(context, strokes, width) {
  context.lineWidth = width;
  context.lineCap = context.lineJoin = "round";
  for (const points of strokes) {
    context.beginPath();
    context.moveTo(...points[0]);
    for (const point of points) context.lineTo(...point);
    context.stroke();
  }
}

function show() {
  paper.clearRect(0, 0, canvas.width, canvas.height);
  paper.strokeStyle = getComputedStyle(canvas).color;
  trace(paper, strokes, INK);
  const scores = strokes.length && network ? scoresOf(network, pixelsOf(strokes)) : null;
  const most = scores && Math.max(...scores), parts = scores && scores.map((x) => Math.exp(x - most));
  const total = parts && parts.reduce((a, b) => a + b, 0);
  bars.forEach((bar, i) => (bar.value = parts ? parts[i] / total : 0));
  answer.textContent = scores ? String(scores.indexOf(most)) : "";
}

function pointOf(event) {
  const box = canvas.getBoundingClientRect();
  return [(event.clientX - box.left) * canvas.width / box.width,
          (event.clientY - box.top) * canvas.height / box.height];
}

canvas.addEventListener("pointerdown", (event) => {
  strokes.push([pointOf(event)]);
  canvas.addEventListener("pointermove", extend);
  show();
});
addEventListener("pointerup", () => canvas.removeEventListener("pointermove", extend));
document.getElementById("clear").addEventListener("click", () => { strokes = []; show(); });

function extend(event) {
  strokes.at(-1).push(pointOf(event));
  show();
}

const ready = loadNetwork().then((page) => { network = page; show(); },
                                 (error) => { answer.textContent = error.message; });
