// The map of a scene: move, zoom, lay layers over the scene, hide classes, ask what a pixel is.
// Every layer is an image that the page holds already; nothing is fetched.
"use strict";

const LARGEST_PIXEL = 48; // on the screen, in CSS pixels
const STEP = 1.5; // of a zoom by button or key
const TAP = { seconds: 0.3, pixels: 24 }; // two taps within these are a double tap

/** Return the size, the values and the palette (RGBA) of a PNG of 8-bit palette indices, as this report writes them. */
async function decoded(address) {
  const bytes = Uint8Array.from(atob(address.slice(address.indexOf(",") + 1)), (char) => char.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  const chunks = { PLTE: [], tRNS: [], IDAT: [] };
  for (let at = 8; at < bytes.length; at += 12 + view.getUint32(at)) {
    const kind = String.fromCharCode(...bytes.subarray(at + 4, at + 8));
    if (kind in chunks) chunks[kind].push(bytes.subarray(at + 8, at + 8 + view.getUint32(at)));
  }
  const [width, height] = [view.getUint32(16), view.getUint32(20)];
  const inflated = new Blob(chunks.IDAT).stream().pipeThrough(new DecompressionStream("deflate"));
  const rows = new Uint8Array(await new Response(inflated).arrayBuffer());
  const values = new Uint8Array(width * height);
  // Each row begins with the number of its filter, which is 0 in an image with a palette.
  for (let row = 0; row < height; row++) {
    values.set(rows.subarray(row * (width + 1) + 1, (row + 1) * (width + 1)), row * width);
  }
  const palette = new Uint8ClampedArray(1024);
  const [colours, alphas] = [chunks.PLTE[0], chunks.tRNS[0] || []];
  for (let index = 0; index * 3 < colours.length; index++) {
    palette.set(colours.subarray(index * 3, index * 3 + 3), index * 4);
    palette[index * 4 + 3] = index < alphas.length ? alphas[index] : 255;
  }
  return { width, height, values, palette };
}

/** Paint the values of `layer` by its palette, but for the hidden ones, on its own canvas. */
function paint(layer, hidden = new Set()) {
  const shown = new Uint32Array(layer.palette.slice().buffer);
  for (const index of hidden) shown[index] = 0;
  layer.canvas ??= Object.assign(document.createElement("canvas"), { width: layer.width, height: layer.height });
  const context = layer.canvas.getContext("2d");
  const image = context.createImageData(layer.width, layer.height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let at = 0; at < pixels.length; at++) pixels[at] = shown[layer.values[at]];
  context.putImageData(image, 0, 0);
}

/** Start the viewer in the element `scene`; resolves when it has drawn for the first time. */
async function start(scene) {
  const viewer = scene.querySelector(".viewer");
  const port = viewer.querySelector(".port");
  const canvas = port.querySelector("canvas");
  const context = canvas.getContext("2d");
  const readout = viewer.querySelector(".readout");
  const picture = scene.querySelector("img.picture");
  const layers = {};
  for (const image of scene.querySelectorAll("img[data-layer]")) {
    layers[image.dataset.layer] = { ...(await decoded(image.src)), name: image.dataset.name };
  }
  await picture.decode();
  const { width, height, values } = layers.classes;
  const names = [...viewer.querySelectorAll(".classes .name")].map((name) => name.textContent);
  const outlines = [...scene.querySelectorAll(".static path.line")].map((path) => ({
    split: path.dataset.split,
    path: new Path2D(path.getAttribute("d")),
    dash: (getComputedStyle(path).strokeDasharray.match(/[\d.]+/g) || []).map(Number),
    colour: getComputedStyle(path).stroke,
  }));
  const slider = viewer.querySelector(".opacity");
  const choice = viewer.querySelector(".layer");
  const boxes = [...viewer.querySelectorAll(".classes input")];
  const splits = [...viewer.querySelectorAll(".splits input")];
  // `fit` shows the whole scene; `left` and `top` are the image's pixel in the port's upper left corner.
  let [scale, fit, left, top, waiting, keyboard] = [0, 1, 0, 0, false, false];

  const limits = () => {
    fit = Math.min(port.clientWidth / width, port.clientHeight / height);
    scale = Math.min(Math.max(scale, fit), Math.max(LARGEST_PIXEL, fit));
    const [across, down] = [port.clientWidth / scale, port.clientHeight / scale];
    left = across >= width ? (width - across) / 2 : Math.min(Math.max(left, 0), width - across);
    top = down >= height ? (height - down) / 2 : Math.min(Math.max(top, 0), height - down);
    port.classList.toggle("zoomed", scale > fit * 1.001);
  };

  const drawScale = () => {
    const bar = port.querySelector(".scale");
    const metres = Number(viewer.dataset.metres) / scale; // of a CSS pixel
    const longest = 0.25 * port.clientWidth * metres;
    const power = 10 ** Math.floor(Math.log10(longest));
    const length = [5, 2, 1].map((step) => step * power).find((value) => value <= longest);
    bar.style.width = `${length / metres}px`;
    bar.textContent = length >= 1000 ? `${length / 1000} km` : `${Number(length.toPrecision(3))} m`;
  };

  const draw = () => {
    waiting = false;
    const ratio = window.devicePixelRatio || 1;
    const size = [Math.round(port.clientWidth * ratio), Math.round(port.clientHeight * ratio)];
    if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
    limits();
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    const zoom = scale * ratio;
    context.setTransform(zoom, 0, 0, zoom, -left * zoom, -top * zoom);
    context.imageSmoothingEnabled = zoom < 1;
    context.imageSmoothingQuality = "high";
    context.drawImage(picture, 0, 0, width, height);
    // Codes of classes have no mean: their pixels are picked, never mixed.
    context.imageSmoothingEnabled = false;
    context.globalAlpha = slider.value / 100;
    context.drawImage(layers[choice ? choice.value : "classes"].canvas, 0, 0, width, height);
    context.globalAlpha = 1;
    for (const box of splits.filter((item) => item.checked)) {
      const { path, dash, colour } = outlines.find((item) => item.split === box.value);
      const unit = ratio / zoom;
      for (const [stroke, line, pattern] of [["rgb(0 0 0 / 65%)", 4, []], [colour, 2, dash]]) {
        context.strokeStyle = stroke;
        context.lineWidth = line * unit;
        context.setLineDash(pattern.map((part) => part * unit));
        context.stroke(path);
      }
    }
    drawScale();
    if (keyboard) tell(port.clientWidth / 2, port.clientHeight / 2);
  };
  const redraw = () => {
    if (!waiting) requestAnimationFrame(draw);
    waiting = true;
  };

  /** Write what lies at a place of the port: class, uncertainty and coordinates. */
  function tell(x, y) {
    const [column, row] = [Math.floor(left + x / scale), Math.floor(top + y / scale)];
    if (column < 0 || row < 0 || column >= width || row >= height) {
      readout.textContent = "Outside the scene";
      return;
    }
    const at = row * width + column;
    const parts = [names[values[at]] ?? "No class"];
    for (const [key, layer] of Object.entries(layers)) {
      if (key !== "classes" && layer.values[at] !== 255) parts.push(`${layer.name} ${(layer.values[at] / 250).toFixed(2)}`);
    }
    const [a, b, c, d, e, f] = viewer.dataset.transform.split(" ").map(Number);
    const digits = viewer.dataset.geographic === "true" ? 5 : 0;
    const place = [a * (column + 0.5) + b * (row + 0.5) + c, d * (column + 0.5) + e * (row + 0.5) + f];
    readout.textContent = `${parts.join(" · ")} · ${place.map((value) => value.toFixed(digits)).join(", ")} (${viewer.dataset.crs})`;
  }

  /** Zoom by a factor about a place of the port, by default its middle. */
  const zoom = (factor, x = port.clientWidth / 2, y = port.clientHeight / 2) => {
    const [column, row] = [left + x / scale, top + y / scale];
    scale *= factor;
    limits();
    [left, top] = [column - x / scale, row - y / scale];
    redraw();
  };
  const whole = () => { scale = 0; redraw(); };
  const move = (across, down) => { left += across / scale; top += down / scale; redraw(); };

  const pointers = new Map();
  const spread = () => {
    const [one, two] = [...pointers.values()];
    return { distance: Math.hypot(one.x - two.x, one.y - two.y), x: (one.x + two.x) / 2, y: (one.y + two.y) / 2 };
  };
  const place = (event) => {
    const frame = canvas.getBoundingClientRect();
    return { x: event.clientX - frame.left, y: event.clientY - frame.top };
  };
  // A touch's double tap is told from its own events: not every browser makes a dblclick of it.
  let [touched, pressed, tapped] = [false, null, null];
  const soonAfter = (one, next) => one !== null && next.time - one.time < 1000 * TAP.seconds
    && Math.hypot(next.x - one.x, next.y - one.y) < TAP.pixels;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    keyboard = false;
    touched = event.pointerType === "touch";
    pressed = pointers.size ? null : { ...place(event), time: event.timeStamp };
    pointers.set(event.pointerId, place(event));
    canvas.setPointerCapture(event.pointerId);
    tell(...Object.values(place(event)));
  });
  canvas.addEventListener("pointermove", (event) => {
    const now = place(event);
    const before = pointers.get(event.pointerId);
    if (!before) {
      keyboard = false;
      tell(now.x, now.y);
    } else if (pointers.size === 1) {
      pointers.set(event.pointerId, now);
      move(before.x - now.x, before.y - now.y);
    } else if (pointers.size === 2) {
      const old = spread();
      pointers.set(event.pointerId, now);
      const next = spread();
      move(old.x - next.x, old.y - next.y);
      zoom(next.distance / Math.max(old.distance, 1), next.x, next.y);
    }
  });
  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, (event) => pointers.delete(event.pointerId));
  }
  canvas.addEventListener("pointerup", (event) => {
    const up = { ...place(event), time: event.timeStamp };
    const tap = touched && soonAfter(pressed, up); // not a finger that moved or stayed, nor one of two
    const second = tap && soonAfter(tapped, up);
    if (second) zoom(2, up.x, up.y);
    tapped = tap && !second ? up : null;
  });
  canvas.addEventListener("dblclick", (event) => {
    if (!touched) zoom(2, place(event).x, place(event).y);
  });
  // The wheel alone scrolls the page; a trackpad's pinch comes as wheel with ctrlKey.
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(2 ** (-event.deltaY / (event.deltaMode ? 5 : 120)), place(event).x, place(event).y);
  }, { passive: false });

  const quarter = () => Math.min(port.clientWidth, port.clientHeight) / 4;
  const keys = {
    ArrowLeft: () => move(-quarter(), 0), ArrowRight: () => move(quarter(), 0),
    ArrowUp: () => move(0, -quarter()), ArrowDown: () => move(0, quarter()),
    "+": () => zoom(STEP), "=": () => zoom(STEP), "-": () => zoom(1 / STEP), 0: whole,
  };
  port.addEventListener("keydown", (event) => {
    if (event.target !== port || !(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keyboard = true;
    keys[event.key]();
  });
  port.addEventListener("blur", () => { keyboard = false; });
  port.querySelector(".closer").addEventListener("click", () => zoom(STEP));
  port.querySelector(".farther").addEventListener("click", () => zoom(1 / STEP));
  port.querySelector(".whole").addEventListener("click", whole);

  slider.addEventListener("input", () => {
    viewer.querySelector(".opacity-value").textContent = `${slider.value} %`;
    redraw();
  });
  const legends = [...viewer.querySelectorAll("[data-legend]")];
  if (choice) choice.addEventListener("change", () => {
    for (const legend of legends) legend.hidden = legend.dataset.legend !== choice.value;
    redraw();
  });
  for (const box of splits) box.addEventListener("change", redraw);
  const classes = () => {
    paint(layers.classes, new Set(boxes.filter((box) => !box.checked).map((box) => Number(box.value))));
    redraw();
  };
  for (const box of boxes) box.addEventListener("change", classes);
  for (const [button, checked] of [[".all", true], [".none", false]]) {
    viewer.querySelector(button).addEventListener("click", () => {
      for (const box of boxes) box.checked = checked;
      classes();
    });
  }

  for (const layer of Object.values(layers)) paint(layer);
  viewer.hidden = false;
  scene.classList.add("live");
  new ResizeObserver(redraw).observe(port);
  draw();
}

for (const scene of document.querySelectorAll(".scene")) {
  // Where the browser is too old for the map, the plain pictures stay.
  start(scene).catch((error) => console.warn(`no interactive map: ${error.message}`));
}
