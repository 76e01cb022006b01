// An answer token by token: the stronger the colour, the less likely. What else might have stood there is shown under
// the pointer, or under the token that the arrow keys are on.
const percent = (share) => (100 * share).toFixed(share < 0.1 && share > 0 ? 1 : 0) + " %";

function tokenText(sample) {
  const node = make("p", { class: "text tokens", tabindex: "0", role: "group", "aria-label": say("tokens.label") });
  const box = make("div", { class: "others", role: "status", hidden: true });
  let at = -1;
  const show = (part) => {
    at = parts.indexOf(part);
    for (const other of parts) other.classList.toggle("on", other === part);
    box.replaceChildren(...sample.pieces[at][1].map(alternatives));
    const inside = node.parentElement.getBoundingClientRect(), place = part.getBoundingClientRect();
    box.hidden = false;
    box.style.left = Math.max(0, Math.min(place.left - inside.left, inside.width - box.offsetWidth)) + "px";
    box.style.top = place.bottom - inside.top + 3 + "px";
  };
  const hide = () => {
    box.hidden = true;
    for (const other of parts) other.classList.remove("on");
  };
  const parts = sample.pieces.map(([text, tokens]) => {
    const least = tokens.reduce((low, [, share]) => Math.min(low, share), 1);
    return make("span", { class: least < 0.1 ? "token rare" : "token", onpointerenter: (event) => show(event.target),
      onpointerleave: hide, style: `--p: ${((1 - least) ** 0.7 * 62).toFixed(0)}%` }, text || "·");
  });
  node.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || !parts.length || event.altKey) return;
    event.preventDefault();
    show(parts[Math.max(0, Math.min(parts.length - 1, at + by))]);
  });
  node.addEventListener("blur", hide);
  node.append(...parts);
  return [node, box];
}

function alternatives([token, share, others]) {
  const shown = others.some(([text]) => text === token) || !others.length ? others : [...others, [token, share]];
  const rows = (shown.length ? shown : [[token, share]]).map(([text, part]) =>
    make("tr", { class: text === token ? "drawn" : "" }, make("td", {}, JSON.stringify(text).slice(1, -1)),
      make("td", { class: "share" }, percent(part)),
      make("td", {}, make("i", { style: `width: ${Math.max(1, 60 * part).toFixed(0)}px` }))));
  return make("table", {}, ...rows);
}
