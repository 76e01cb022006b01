// Shapes onto a canvas, or into an SVG.
function paintCanvas(pen, shapes, dpr, font) {
  for (const shape of shapes) {
    pen.globalAlpha = shape.alpha ?? 1;
    if (shape.kind === "area") {
      pen.beginPath();
      shape.points.forEach(([x, y], index) => { if (index) pen.lineTo(x, y); else pen.moveTo(x, y); });
      pen.closePath();
      if (shape.fill) { pen.fillStyle = shape.fill; pen.fill(); }
      if (shape.hatch) hatch(pen, shape, dpr);
      if (shape.stroke) { pen.strokeStyle = shape.stroke; pen.lineWidth = dpr; pen.stroke(); }
    } else if (shape.kind === "dash") {
      pen.strokeStyle = shape.stroke;
      pen.lineWidth = dpr;
      pen.setLineDash([3 * dpr, 2.5 * dpr]);
      pen.beginPath();
      pen.moveTo(...shape.from.map(crisp));
      pen.lineTo(...shape.to.map(crisp));
      pen.stroke();
      pen.setLineDash([]);
    } else {
      pen.font = shape.size + "px " + font;
      pen.textAlign = shape.align;
      pen.save();
      pen.translate(...shape.at);
      if (shape.turned) pen.rotate(Math.PI / 2);
      if (shape.halo) {
        pen.strokeStyle = shape.halo;
        pen.lineWidth = 3 * dpr;
        pen.lineJoin = "round";
        pen.strokeText(shape.text, 0, 0);
      }
      pen.fillStyle = shape.fill;
      pen.fillText(shape.text, 0, 0);
      pen.restore();
    }
  }
  pen.globalAlpha = 1;
}

const crisp = (value) => Math.round(value) + 0.5;

// Strokes through an area that several read: memory that is shared looks the same in the block map.
function hatch(pen, shape, dpr) {
  const xs = shape.points.map(([x]) => x), ys = shape.points.map(([, y]) => y);
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  pen.save();
  pen.clip();
  pen.strokeStyle = shape.hatch;
  pen.lineWidth = dpr;
  pen.beginPath();
  const gap = 7 * dpr;
  for (let at = Math.floor((left + top) / gap) * gap; at < right + bottom; at += gap) {
    pen.moveTo(at - top, top);
    pen.lineTo(at - bottom, bottom);
  }
  pen.stroke();
  pen.restore();
}

function svgOf(shapes, width, height, colours) {
  const space = "http://www.w3.org/2000/svg";
  const node = (tag, properties, text = "") => {
    const made = document.createElementNS(space, tag);
    for (const [name, value] of Object.entries(properties)) if (value !== undefined) made.setAttribute(name, value);
    made.textContent = text;
    return made;
  };
  const points = (list) => list.map(([x, y]) => x.toFixed(1) + "," + y.toFixed(1)).join(" ");
  const root = node("svg", { xmlns: space, viewBox: `0 0 ${width} ${height}`, width, height, "font-family": "sans-serif" });
  const pattern = node("pattern", { id: "shared", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  pattern.append(node("line", { x1: 0, y1: 0, x2: 0, y2: 7, stroke: colours.panel, "stroke-width": 1.4 }));
  const defs = node("defs", {});
  defs.append(pattern);
  root.append(defs, node("rect", { width, height, fill: colours.panel }));
  for (const shape of shapes) {
    if (shape.kind === "area") {
      root.append(node("polygon", { points: points(shape.points), fill: shape.fill || "none", opacity: shape.alpha,
        stroke: shape.stroke }));
      if (shape.hatch) root.append(node("polygon", { points: points(shape.points), fill: "url(#shared)" }));
    } else if (shape.kind === "dash") {
      root.append(node("line", { x1: shape.from[0], y1: shape.from[1], x2: shape.to[0], y2: shape.to[1],
        stroke: shape.stroke, "stroke-dasharray": "3 2.5" }));
    } else {
      const turn = shape.turned ? `rotate(90 ${shape.at[0]} ${shape.at[1]})` : undefined;
      root.append(node("text", { x: shape.at[0], y: shape.at[1], fill: shape.fill, "font-size": shape.size,
        "text-anchor": shape.align, transform: turn, stroke: shape.halo, "stroke-width": shape.halo && 3,
        "paint-order": shape.halo && "stroke" }, shape.text));
    }
  }
  return new XMLSerializer().serializeToString(root);
}
