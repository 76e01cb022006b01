// What stands under a card whose question was swept: the plot with the knee, the figures, the samples.
function sweepParts(found) {
  const { groups, points, knee, told } = found.sweep;
  const parts = [make("p", { class: "meta" }, make("span", {}, told))];
  if (points.length) parts.push(make("div", { class: "sweep" }, sweepPlot(points, knee), sweepTable(points, knee)));
  parts.push(...groups.filter(([, texts]) => texts.length).map(([temperature, texts]) =>
    make("details", { class: "group" },
      make("summary", {}, make("b", {}, say("sweep.temperature") + " " + temperature), " ",
        make("span", { class: "soft" }, say("sweep.samples", { count: texts.length }))),
      make("ol", { class: "samples" }, ...texts.map((text) => make("li", {}, make("p", { class: "text" }, make("span", {}, text))))))));
  return parts;
}

function sweepTable(points, knee) {
  const has = points.some((point) => point[4] !== null);
  const heads = ["temperature", "distinct_1", "distinct_2", "agreement", ...(has ? ["accuracy"] : [])];
  const figure = (value) => value === null ? "" : value.toFixed(2);
  return make("table", { class: "figures" },
    make("thead", {}, make("tr", {}, ...heads.map((key) => make("th", { scope: "col" }, say("sweep." + key))))),
    make("tbody", {}, ...points.map(([temperature, ...values], index) =>
      make("tr", { class: index === knee ? "knee" : "" }, make("th", { scope: "row" }, String(temperature)),
        ...values.slice(0, heads.length - 1).map((value) => make("td", {}, figure(value)))))));
}

function sweepPlot(points, knee) {
  const space = "http://www.w3.org/2000/svg", wide = 230, high = 118, left = 22, top = 8;
  const node = (tag, properties, text = "") => {
    const made = document.createElementNS(space, tag);
    for (const [name, value] of Object.entries(properties)) made.setAttribute(name, value);
    made.textContent = text;
    return made;
  };
  const first = points[0][0], span = points[points.length - 1][0] - first || 1;
  const x = (temperature) => left + (temperature - first) / span * (wide - left - 10);
  const y = (value) => top + (1 - value) * (high - top - 18);
  const svg = node("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": say("sweep.plot") });
  for (const value of [0, 0.5, 1]) {
    svg.append(node("line", { class: "grid", x1: left, x2: wide - 4, y1: y(value), y2: y(value) }),
      node("text", { x: left - 4, y: y(value) + 3, "text-anchor": "end" }, String(value)));
  }
  for (const [temperature] of points) svg.append(node("text", { x: x(temperature), y: high - 4, "text-anchor": "middle" }, String(temperature)));
  if (knee !== null) svg.append(node("line", { class: "bend", x1: x(points[knee][0]), x2: x(points[knee][0]), y1: top, y2: high - 18 }));
  for (const [index, name] of [[2, "distinct"], [3, "agreement"], [4, "accuracy"]]) {
    const known = points.filter((point) => point[index] !== null);
    if (!known.length) continue;
    svg.append(node("polyline", { class: name, points: known.map((point) => `${x(point[0])},${y(point[index])}`).join(" ") }));
    for (const point of known) svg.append(node("circle", { class: name, cx: x(point[0]), cy: y(point[index]), r: 2.2 }));
  }
  const keys = [["distinct", "distinct_2"], ["agreement", "agreement"], ...(points.some((point) => point[4] !== null) ? [["accuracy", "accuracy"]] : [])];
  return make("figure", {}, svg, make("figcaption", {}, ...keys.map(([name, key]) => make("span", { class: name }, say("sweep." + key)))));
}
