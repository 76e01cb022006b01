// The board: the cards of this tab, kept as JSON in the component's value, which every event sends along. Adding,
// moving and removing need no server; `answer_…` and `adapters` come from it.
const LETTERS = JSON.parse(props.letters);
let board = { cards: [], shared: [] }, adapters = [], defaults = {}, answers = {}, before = null;
const opened = new Set();
let view = "text";
const since = {}; // a card that takes a letter over shows no answer of the one before
const list = element.querySelector(".list"), told = element.querySelector(".told");

function keep() {
  props.value = JSON.stringify(board);
}

function readBoard() {
  if (board.cards.length) before = JSON.stringify(board);
  board = { ...JSON.parse(props.value), tokens: view === "tokens" };
  drawBoard();
}

function readFacts() {
  adapters = JSON.parse(props.adapters);
  defaults = JSON.parse(props.defaults);
  if (!list.children.length || view === "columns") return drawBoard();
  // The server tells this at any time: what a person has open, or holds the pointer on, stays where it is.
  for (const card of board.cards) {
    offer(list.querySelector(`#adapter-${card.id} select`), card.adapter || "", adapterOptions());
    const field = list.querySelector(`#temperature-${card.id} input`);
    field.placeholder = defaults.temperature;
    field.dispatchEvent(new Event("fit"));
  }
}

const adapterOptions = () => [["", say("base")], ...adapters];

function readAnswers() {
  for (const letter of LETTERS) {
    const text = props["answer_" + letter] || "";
    const found = text ? JSON.parse(text) : null;
    const next = found && found.run > (since[letter] || 0) ? found : null;
    if (text === readAnswers.seen[letter]) continue;
    readAnswers.seen[letter] = text;
    answers[letter] = next;
    const place = element.querySelector("#answer-" + letter);
    if (place) drawAnswer(place, letter);
  }
  if (view === "columns") writeColumns();
}
readAnswers.seen = {};

function drawBoard() {
  tell("");
  for (const node of list.querySelectorAll(".more")) {
    if (node.open) opened.add(node.dataset.card); else opened.delete(node.dataset.card);
  }
  if (view === "columns") list.replaceChildren(columnsNode());
  else list.replaceChildren(...board.shared.map(sharedNode), ...board.cards.map(cardNode));
  if (view !== "columns") drawReaders();
  drawTools();
}

// How the answers are looked at: as text, token by token, or side by side.
function look(next) {
  const isTold = Boolean(board.tokens);
  view = next;
  board.tokens = next === "tokens";
  if (isTold !== board.tokens) act("look", {});
  drawBoard();
}

function drawTools() {
  const tools = element.querySelector(".tools-line");
  const allFolded = board.cards.every((card) => card.collapsed);
  tools.replaceChildren(
    button("import", chooseImport, "quiet import"), button("add_shared", addShared, "quiet add-shared"),
    button(allFolded ? "unfold_all" : "fold_all", () => foldAll(!allFolded), "quiet fold-all"),
    button("clear_all", clearAll, "quiet clear-all"),
    ...(before ? [button("undo", undo, "quiet undo")] : []),
    make("span", { class: "views", role: "group", "aria-label": say("view") },
      ...[["text", "as_text"], ["tokens", "as_tokens"], ["columns", "as_columns"]].map(([name, key]) =>
        make("button", { type: "button", class: key, "aria-pressed": String(view === name), onclick: () => look(name) }, say(key)))),
    ...(view === "columns" ? [make("label", { class: "quiet only" }, onlyBox(), say("only_different"))] : []));
  element.querySelector(".told-view").textContent = view === "tokens" ? say("tokens.legend") : "";
  const add = element.querySelector(".add");
  add.textContent = say("add");
  add.disabled = board.cards.length === LETTERS.length;
}

function onlyBox() {
  const box = make("input", { type: "checkbox", onchange: () => { onlyDifferent = box.checked; drawBoard(); } });
  box.checked = onlyDifferent;
  return box;
}

function tell(text) {
  told.textContent = text;
}

function act(name, data) {
  keep();
  trigger(name, data);
}

function freeLetter() {
  const letter = LETTERS.find((one) => !board.cards.some((card) => card.id === one));
  if (letter) {
    const shown = readAnswers.seen[letter];
    since[letter] = shown ? JSON.parse(shown).run : 0;
    answers[letter] = null;
  }
  return letter;
}

function insert(card, at) {
  board.cards.splice(at, 0, card);
  changed();
  const input = list.querySelector(`#question-${card.id} textarea`);
  input.focus({ preventScroll: true });
  input.closest(".card").scrollIntoView({ block: "nearest" });
}

function changed() {
  keep();
  drawBoard();
}

function add() {
  const letter = freeLetter();
  if (letter) insert(blank(letter), board.cards.length);
}

function duplicate(card) {
  const letter = freeLetter();
  if (!letter) return tell(say("error.pool_full", { limit: LETTERS.length }));
  insert({ ...card, id: letter }, board.cards.indexOf(card) + 1);
}

function remove(card) {
  if (board.cards.length === 1) return tell(say("error.last_card"));
  remember();
  board.cards.splice(board.cards.indexOf(card), 1);
  changed();
}

function clearCard(card) {
  remember();
  board.cards[board.cards.indexOf(card)] = blank(card.id);
  changed();
}

function clearAll() {
  remember();
  board = { ...board, cards: [blank(LETTERS[0])], shared: [] };
  for (const letter of LETTERS) answers[letter] = null;
  changed();
}

function remember() {
  before = JSON.stringify(board);
}

function undo() {
  const now = JSON.stringify(board);
  board = { ...JSON.parse(before), filling: board.filling };
  before = now;
  changed();
}

function fold(card) {
  card.collapsed = !card.collapsed;
  changed();
  list.querySelector("#letter-" + card.id).focus({ preventScroll: true });
}

function foldAll(isFolded) {
  for (const card of board.cards) card.collapsed = isFolded;
  changed();
}

function moveBy(card, by) {
  const from = board.cards.indexOf(card), to = from + by;
  if (to < 0 || to >= board.cards.length) return;
  board.cards.splice(from, 1);
  board.cards.splice(to, 0, card);
  changed();
  list.querySelector("#letter-" + card.id).focus();
}

function cardKeys(event, card) {
  const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (!by || !event.altKey) return;
  event.preventDefault();
  moveBy(card, by);
}

// The id of the card that is dragged by its head, and the order to go back to when it is let go elsewhere.
let dragged = null, orderBefore = [];
function startDrag(event, id) {
  dragged = id;
  orderBefore = [...board.cards];
  event.dataTransfer.setData("text/plain", id);
  event.dataTransfer.effectAllowed = "move";
  list.querySelector("#card-" + id).classList.add("dragged");
}

// It goes behind every card whose middle the pointer has passed: at the edges, cards of unlike height would change
// places for as long as it hangs there.
function overDrag(event) {
  if (!dragged) return;
  event.preventDefault();
  const middle = ({ top, height }) => top + height / 2;
  const others = board.cards.filter((card) => card.id !== dragged);
  const at = others.filter((card) => middle(list.querySelector("#card-" + card.id).getBoundingClientRect()) < event.clientY).length;
  if (board.cards[at].id === dragged) return;
  others.splice(at, 0, board.cards.find((card) => card.id === dragged));
  board.cards = others;
  arrange();
}

function endDrag(event) {
  if (event.dataTransfer.dropEffect === "none") board.cards = orderBefore;
  list.querySelector("#card-" + dragged).classList.remove("dragged");
  dragged = null;
  arrange();
  keep();
}

function arrange() {
  for (const card of board.cards) list.append(list.querySelector("#card-" + card.id));
}

function addShared() {
  let number = board.shared.length + 1;
  while (board.shared.some((one) => one.name === say("shared.new", { number }))) number++;
  board.shared.push({ name: say("shared.new", { number }), text: "", system: "" });
  changed();
  list.querySelector(`#shared-text-${board.shared.length - 1} textarea`).focus();
}

function removeShared(index) {
  remember();
  const [gone] = board.shared.splice(index, 1);
  for (const card of board.cards) if (card.shared === gone.name) card.shared = "";
  changed();
}

const MOST_BYTES = 4 * 2 ** 20;
function chooseFile(accept, use) {
  const input = make("input", { type: "file", accept });
  input.addEventListener("change", async () => {
    const file = input.files[0];
    if (!file) return;
    if (file.size > MOST_BYTES) return tell(say("error.file_size", { name: file.name, limit: MOST_BYTES / 2 ** 20 }));
    try {
      use(file.name, new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer()));
    } catch (error) {
      tell(say(error instanceof TypeError ? "error.not_utf8" : "error.file_read", { name: file.name }));
    }
  });
  input.click();
}

function attach(owner, name) {
  chooseFile(".txt,.md,.json", (_, text) => {
    owner[name] = owner[name] ? owner[name] + "\n\n" + text : text;
    changed();
  });
}

function chooseImport() {
  chooseFile(".json,.jsonl,.csv", (name, text) => act("import", { name, text }));
}

element.querySelector(".add").addEventListener("click", add);
list.addEventListener("dragover", overDrag);
list.addEventListener("drop", (event) => { if (dragged) event.preventDefault(); });
kev.onLanguage(drawBoard);
watch("value", readBoard);
watch(["adapters", "defaults"], readFacts);
watch(LETTERS.map((letter) => "answer_" + letter), readAnswers);
board = JSON.parse(props.value);
readAnswers();
readFacts();
