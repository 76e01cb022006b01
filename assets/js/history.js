// The list of kept runs, whose HTML comes from the server: a click opens a run, a chosen file is sent as text.
element.addEventListener("click", (event) => {
  const run = event.target.closest("button[data-run]");
  if (run) trigger("open", { number: Number(run.dataset.run) });
  else if (event.target.closest("button[data-import]")) choose();
});

function choose() {
  const input = kev.make("input", { type: "file", accept: ".json" });
  input.addEventListener("change", async () => {
    const file = input.files[0];
    if (file) trigger("bring", { name: file.name, text: await file.text() });
  });
  input.click();
}
