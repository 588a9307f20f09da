// Draws each digit in the page by events of a pointer, and leaves what was read in the page.
"use strict";

const round = (count, f) => Array.from({ length: count + 1 }, (_, i) => f((2 * Math.PI * i) / count));
const strokesOf = {
  0: [round(40, (t) => [140 + 70 * Math.sin(t), 140 - 105 * Math.cos(t)])],
  1: [[[120, 70], [145, 40], [145, 240]]],
  2: [[[80, 90], [95, 55], [140, 40], [185, 60], [190, 100], [160, 150], [110, 195], [80, 235], [140, 235],
       [205, 235]]],
  3: [[[85, 60], [140, 40], [185, 65], [180, 105], [135, 130], [185, 155], [195, 200], [150, 240], [85, 225]]],
  4: [[[150, 40], [80, 150], [200, 150]], [[165, 100], [160, 245]]],
  5: [[[195, 45], [100, 45], [90, 125], [140, 115], [190, 140], [195, 190], [155, 235], [85, 225]]],
  6: [[[170, 40], [115, 90], [90, 160], [95, 215], [140, 240], [185, 215], [180, 170], [140, 150], [95, 180]]],
  7: [[[80, 50], [195, 50], [160, 130], [125, 240]]],
  8: [[[140, 135], [95, 100], [95, 60], [140, 40], [185, 60], [185, 100], [140, 135], [90, 175], [90, 215],
       [140, 240], [190, 215], [190, 175], [140, 135]]],
  9: [[[185, 85], [150, 120], [105, 110], [95, 70], [135, 40], [180, 55], [185, 85], [180, 160], [160, 240]]],
};

function send(target, kind, [x, y]) {
  const box = canvas.getBoundingClientRect();
  const place = { clientX: box.left + (x * box.width) / canvas.width, clientY: box.top + (y * box.height) / canvas.height };
  target.dispatchEvent(new PointerEvent(kind, { ...place, bubbles: true }));
}

function draw(strokes) {
  document.getElementById("clear").click();
  for (const points of strokes) {
    send(canvas, "pointerdown", points[0]);
    for (const point of points) send(canvas, "pointermove", point);
    send(canvas, "pointerup", points.at(-1));
  }
  return answer.textContent;
}

(async () => {
  const pictures = await (await fetch("pictures.json")).json();
  await ready;
  const scores = pictures.map((pixels) => scoresOf(network, pixels));
  const answers = Object.entries(strokesOf).map(([digit, strokes]) => [digit, draw(strokes)]);
  const results = document.createElement("pre");
  results.id = "results";
  results.textContent = JSON.stringify({ scores, answers });
  document.body.append(results);
})();
