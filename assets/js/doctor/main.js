// Reading, the stretch in sight, the pointer and the keyboard. Stands behind story.js, painters.js and strip.js.
function read() {
  const before = mask;
  mask = JSON.parse(props.value);
  near = null;
  for (const side of ["right", "leak", "missing"]) mask[side] ||= [];
  const captions = element.querySelectorAll("figcaption b"), axes = element.querySelectorAll(".axis");
  ["difference", "expected", "effective"].forEach((name, index) => { captions[index].textContent = word(name); });
  axes[0].textContent = word("query");
  axes[1].textContent = word("key");
  find(".title").textContent = word("map");
  find(".empty").textContent = mask.empty;
  for (const button of scaleButtons) button.textContent = word(button.dataset.scale);
  element.querySelectorAll(".legend span").forEach((box, index) => { box.textContent = word("legend." + ["right", "leak", "missing"][index]); });
  panes.forEach((pane) => pane.canvas.setAttribute("aria-label", word(pane.side) + ". " + mask.label));
  showRows();
  // Another language draws the same cells: the stretch that is looked at stays.
  if (before.queries !== mask.queries || before.keys !== mask.keys || !same(before.leak, mask.leak) || !same(before.right, mask.right)) {
    cell = locked = null;
    view = { q: 0, k: 0, rows: Math.max(1, mask.queries), cols: Math.max(1, mask.keys) };
  }
  if (pending) { go(pending.query, pending.key); pending = null; }
  show();
}

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

function showRows() {
  const box = find(".rows");
  box.hidden = !(mask.rows > 1);
  box.querySelector("span").textContent = filled(word("row"), { row: mask.row, rows: mask.rows });
  box.querySelectorAll("button").forEach((button) => button.setAttribute("aria-label", word(button.dataset.turn < 0 ? "previous" : "next")));
}

function show() {
  const whole = view.rows >= mask.queries && view.cols >= mask.keys;
  const scale = whole ? "overview" : view.rows > 2 * SCALES.token ? "block" : "token";
  for (const button of scaleButtons) button.setAttribute("aria-pressed", String(button.dataset.scale === scale));
  for (const pane of panes) pane.canvas.style.touchAction = whole ? "pan-y" : "none";
  whereLine.textContent = mask.queries ? filled(word("view"), {
    q0: view.q, q1: Math.min(mask.queries, view.q + view.rows) - 1, queries: mask.queries.toLocaleString("en"),
    k0: view.k, k1: Math.min(mask.keys, view.k + view.cols) - 1, keys: mask.keys.toLocaleString("en") }) : "";
  hoverLine.textContent = describe(cell || locked);
  askNear();
  if (!frame) frame = requestAnimationFrame(draw);
}

// A mask of very many bands comes in blocks; the stretch that is looked at closely is asked for.
function askNear() {
  const span = Math.max(view.rows, view.cols);
  if (mask.step === 1 || span > 256) return;
  const covers = near && near.queries[0] <= view.q && view.q + view.rows <= near.queries[1] + 1e-9 && near.keys[0] <= view.k && view.k + view.cols <= near.keys[1] + 1e-9;
  const edge = (from, size, all) => [Math.max(0, from - 64), Math.min(all, from + size + 64)];
  const wanted = [...edge(view.q, view.rows, mask.queries), ...edge(view.k, view.cols, mask.keys)];
  if (covers || String(wanted) === askNear.last) return;
  askNear.last = String(wanted);
  trigger("select", { stretch: wanted });
}

function readNear() {
  near = props.near ? JSON.parse(props.near) : null;
  askNear.last = "";
  if (!frame) frame = requestAnimationFrame(draw);
}

function locate(pane, event) {
  const box = pane.canvas.getBoundingClientRect(), dpr = window.devicePixelRatio || 1, { side, edge, x, y } = shape(pane, dpr);
  const right = (event.clientX - box.left) / box.width * side - edge, down = (event.clientY - box.top) / box.height * side - edge;
  if (!mask.queries || right < 0 || down < 0 || right >= side - edge || down >= side - edge) return null;
  const query = Math.floor(view.q + down / y), key = Math.floor(view.k + right / x);
  return query < mask.queries && key < mask.keys ? { query, key } : null;
}

function zoom(rows, centre) {
  const size = Math.max(mask.queries, mask.keys);
  if (rows >= size) {
    view = { q: 0, k: 0, rows: mask.queries, cols: mask.keys };
  } else {
    const height = Math.min(rows, mask.queries), width = Math.min(rows, mask.keys);
    view = { q: clamp(Math.round(centre.query - height / 2), 0, mask.queries - height), rows: height,
      k: clamp(Math.round(centre.key - width / 2), 0, mask.keys - width), cols: width };
  }
  show();
}

// Where a closer look starts: the locked cell, the first wrong one, or the first of all.
function centre() {
  if (locked) return locked;
  const first = mask.leak[0] || mask.missing[0];
  return first ? { query: first[0] * mask.step, key: first[2] * mask.step } : { query: view.q, key: view.k };
}

function go(query, key) {
  locked = { query: clamp(query, 0, mask.queries - 1), key: clamp(key, 0, mask.keys - 1) };
  cell = null;
  stripTo(locked.query);
  if (mask.queries) zoom(SCALES.token, locked);
}

let drag = null;
for (const pane of panes) {
  pane.canvas.addEventListener("pointermove", (event) => {
    if (drag && drag.pane === pane) return pan(pane, event);
    cell = locate(pane, event);
    show();
  });
  pane.canvas.addEventListener("pointerleave", () => { cell = null; show(); });
  pane.canvas.addEventListener("pointerdown", (event) => {
    drag = { pane, x: event.clientX, y: event.clientY, q: view.q, k: view.k, moved: false };
    pane.canvas.setPointerCapture(event.pointerId);
  });
  pane.canvas.addEventListener("pointerup", (event) => {
    if (drag && !drag.moved) {
      const at = locate(pane, event);
      locked = at && locked && at.query === locked.query && at.key === locked.key ? null : at;
      if (locked) stripTo(locked.query);
    }
    drag = null;
    show();
  });
  pane.canvas.addEventListener("dblclick", (event) => { const at = locate(pane, event); if (at) zoom(view.rows > SCALES.block ? SCALES.block : SCALES.token, at); });
  pane.canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey || !mask.queries) return;
    event.preventDefault();
    const at = locate(pane, event) || centre();
    zoom(clamp(Math.round(Math.max(view.rows, view.cols) * (event.deltaY > 0 ? 1.5 : 1 / 1.5)), 4, Math.max(mask.queries, mask.keys)), at);
  }, { passive: false });
}

function pan(pane, event) {
  const right = event.clientX - drag.x, down = event.clientY - drag.y;
  if (Math.hypot(right, down) > 4) drag.moved = true;
  if (!drag.moved) return;
  const dpr = window.devicePixelRatio || 1, { x, y } = shape(pane, dpr);
  view = { ...view, q: clamp(Math.round(drag.q - down * dpr / y), 0, mask.queries - view.rows), k: clamp(Math.round(drag.k - right * dpr / x), 0, mask.keys - view.cols) };
  show();
}

main.addEventListener("keydown", (event) => {
  if (!mask.queries) return;
  const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (event.key === "+" || event.key === "-") return zoom(clamp(Math.round(Math.max(view.rows, view.cols) * (event.key === "-" ? 2 : 0.5)), 4, Math.max(mask.queries, mask.keys)), locked || centre());
  if (!by) return;
  event.preventDefault();
  const from = locked || { query: view.q, key: view.k };
  locked = { query: clamp(from.query + by[0], 0, mask.queries - 1), key: clamp(from.key + by[1], 0, mask.keys - 1) };
  cell = null;
  const isOut = locked.query < view.q || locked.query >= view.q + view.rows || locked.key < view.k || locked.key >= view.k + view.cols;
  if (isOut) zoom(Math.max(view.rows, view.cols), locked); else show();
  stripTo(locked.query);
});

for (const button of scaleButtons) {
  button.addEventListener("click", () => { if (mask.queries) zoom(SCALES[button.dataset.scale] || Infinity, centre()); });
}
element.querySelectorAll("[data-turn]").forEach((button) => button.addEventListener("click", () => trigger("select", { row: mask.row + Number(button.dataset.turn) })));
element.closest(".doctor-scope").addEventListener("kev-doctor-go", (event) => {
  const { query, key, row } = event.detail;
  if (row === mask.row || !(mask.rows > 1)) return mask.queries ? go(query, key) : stripTo(query);
  pending = { query, key };
  trigger("select", { row });
});
for (const pane of panes) new ResizeObserver(() => { if (!frame) frame = requestAnimationFrame(draw); }).observe(pane.canvas);
new MutationObserver(() => { if (!frame) frame = requestAnimationFrame(draw); }).observe(document.body, { attributes: true, attributeFilter: ["class"] });
new ResizeObserver(drawStrip).observe(body);
watch(["value"], () => { read(); drawStrip(); });
watch(["strip"], readStrip);
watch(["near"], readNear);
read();
readStrip();
