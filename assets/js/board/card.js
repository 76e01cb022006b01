// One question's card, and that of a shared context.
function cardNode(card) {
  const id = card.id;
  const head = make("header", { class: "head", draggable: "true", title: say("drag"),
    ondragstart: (event) => startDrag(event, id), ondragend: endDrag },
    make("button", { type: "button", class: "letter", id: "letter-" + id, title: say("fold"),
      "aria-label": say("card.label", { letter: id }), "aria-expanded": String(!card.collapsed),
      onclick: () => fold(card) }, id),
    make("span", { class: "excerpt" }, card.collapsed ? excerpt(card) : ""),
    make("span", { class: "tools" },
      button("alone", () => act("alone", { id }), "icon alone"),
      button("duplicate", () => duplicate(card), "icon duplicate"),
      menu(id, [
        ["again", () => act("again", { id })], ["sweep", () => act("sweep", { id })], ["attach", () => attach(card, "context")],
        ["up", () => moveBy(card, -1)], ["down", () => moveBy(card, 1)], ["fold", () => fold(card)],
        ["clear", () => clearCard(card)],
      ]),
      button("remove", () => remove(card), "icon remove")));
  head.querySelector(".duplicate").id = "duplicate-" + id;
  head.querySelector(".remove").id = "remove-" + id;
  head.querySelector(".alone").id = "alone-" + id;
  const answer = make("div", { class: "answer", id: "answer-" + id });
  drawAnswer(answer, id);
  const body = make("div", { class: "body" },
    area(card, "question", "question-" + id, "question_hint", "question"),
    area(card, "context", "context-" + id, "context_hint", "context"),
    make("div", { class: "pills" },
      choice(card, "adapter", adapterOptions()),
      ...(board.shared.length || card.shared ? [sharedChoice(card)] : []),
      ...PILLS.map((name) => pill(card, name)),
      moreNode(card)));
  return make("section", { class: `card q${LETTERS.indexOf(id) % 8}${card.collapsed ? " folded" : ""}`,
    id: "card-" + id, "aria-label": say("card.label", { letter: id }), onkeydown: (event) => cardKeys(event, card) },
    head, body, answer);
}

function excerpt(card) {
  return (card.question || "").replace(/\s+/g, " ");
}

function sharedChoice(card) {
  const node = choice(card, "shared", [["", say("shared.none")], ...board.shared.map((one) => [one.name, one.name])]);
  node.addEventListener("change", drawReaders);
  return node;
}

// Which cards name which shared context, in both directions; the rest of the board keeps its focus.
function drawReaders() {
  for (const card of board.cards) {
    const node = list.querySelector("#shared-" + card.id);
    if (node && !node.contains(document.activeElement)) node.replaceWith(sharedChoice(card));
  }
  board.shared.forEach((one, index) => {
    const letters = board.cards.filter((card) => card.shared === one.name).map((card) => card.id).join(" ");
    list.querySelector(`#shared-card-${index} .readers`).textContent =
      letters ? say("shared.readers", { letters }) : say("shared.unread");
  });
}

// What most questions leave alone; the summary says how many of these fields hold something.
function moreNode(card) {
  const count = () => MORE.filter((name) => card[name]).length;
  const title = make("summary", {});
  const write = () => { title.textContent = say("more") + (count() ? " · " + say("more.set", { count: count() }) : ""); };
  write();
  const node = make("details", { class: "more", id: "more-" + card.id, "data-card": card.id, open: opened.has(card.id), oninput: write,
    onchange: write }, title);
  // Filled when it is first opened: 32 cards are 500 fields that nobody sees.
  const fill = () => node.append(
    make("div", { class: "pills" }, ...SAMPLING.map((name) => pill(card, name)),
      choice(card, "order", ORDERS.map((order) => [order, say(order ? "order.last" : "order.first")]))),
    make("div", { class: "pills" }, ...OUTPUT.map((name) => pill(card, name)), tick(card, "ignore_eos")),
    make("div", { class: "pills" }, ...TEXTS.map((name) => wide(card, name))));
  if (node.open) fill();
  node.addEventListener("toggle", () => {
    if (node.open && node.childElementCount === 1) fill();
  });
  return node;
}

function menu(id, items) {
  const list = make("div", { class: "items" }, ...items.map(([action, run]) =>
    button(action, () => { node.open = false; run(); }, action)));
  const node = make("details", { class: "menu", id: "menu-" + id },
    make("summary", { class: "icon dots", title: say("actions"), "aria-label": say("actions") }), list);
  node.addEventListener("focusout", (event) => { if (!node.contains(event.relatedTarget)) node.open = false; });
  return node;
}

function sharedNode(one, index) {
  const name = make("input", { type: "text", class: "name", "aria-label": say("shared.name"),
    placeholder: say("shared.name"), spellcheck: "false" });
  name.value = one.name;
  name.addEventListener("input", () => {
    for (const card of board.cards) if (card.shared === one.name) card.shared = name.value;
    one.name = name.value;
    keep();
  });
  name.addEventListener("change", drawReaders);
  return make("section", { class: "card shared-card", id: "shared-card-" + index, "aria-label": say("shared.title") },
    make("header", { class: "head" }, make("span", { class: "kind" }, say("shared.title")), name,
      make("span", { class: "readers" }),
      make("span", { class: "tools" }, button("attach", () => attach(one, "text"), "icon attach"),
        button("remove", () => removeShared(index), "icon remove"))),
    make("div", { class: "body" },
      area(one, "text", "shared-text-" + index, "shared.text_hint", "question"),
      area(one, "system", "shared-system-" + index, "system_hint", "context")));
}
