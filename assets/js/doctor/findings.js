// A finding that is clicked moves the mask; a button copies what stands under it.
element.addEventListener("click", async (event) => {
  const finding = event.target.closest("[data-go]"), copy = event.target.closest("[data-copy]");
  if (finding) {
    const [query, key, row] = finding.dataset.go.split(",").map(Number);
    element.closest(".doctor-scope").dispatchEvent(new CustomEvent("kev-doctor-go", { detail: { query, key, row } }));
  }
  if (copy) {
    const text = copy.closest("section").querySelector("pre").textContent, label = copy.textContent;
    await write(text);
    copy.textContent = copy.dataset.copied;
    setTimeout(() => { copy.textContent = label; }, 1200);
  }
});

// Without a secure address the browser has no clipboard for scripts; a selection can still be copied.
async function write(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
