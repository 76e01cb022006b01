// The table of adapters: what its buttons ask for. The table itself comes from the server.
element.addEventListener("click", (event) => {
  const button = event.target.closest("[data-act]");
  if (!button) return;
  const row = button.closest("tr"), name = row.dataset.name;
  if (button.dataset.act === "rename") rename(row, name);
  else if (button.dataset.act === "unload") unload(button, name);
  else trigger("replace", { name });
});

// The name becomes a field; Enter or leaving it renames, Escape leaves the name as it was.
function rename(row, name) {
  const place = row.querySelector("th"), before = place.firstElementChild;
  const field = kev.make("input", { type: "text", "aria-label": kev.say("adapters.name"), spellcheck: "false" });
  let isOver = false;
  const end = (to) => {
    if (isOver) return;
    isOver = true;
    field.replaceWith(before);
    if (to !== name) trigger("rename", { name, to });
  };
  field.value = name;
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") end(field.value);
    if (event.key === "Escape") { event.preventDefault(); event.stopPropagation(); end(name); }
  });
  field.addEventListener("blur", () => end(field.value));
  before.replaceWith(field);
  field.select();
}

// The first click asks, the second one does it.
function unload(button, name) {
  if (button.classList.contains("asked")) return trigger("drop", { name });
  button.classList.add("asked");
  button.textContent = button.dataset.sure;
  setTimeout(() => { button.classList.remove("asked"); button.textContent = ""; }, 3000);
}
