// Filter the table of claims, and unfold the claim that the address names.

const form = document.querySelector(".filters");
const rows = [...document.querySelectorAll(".claims tbody tr")];
const texts = rows.map((row) => row.textContent.toLowerCase());

function filter() {
  const { search, ...chosen } = Object.fromEntries(new FormData(form));
  const words = search.toLowerCase().split(/\s+/);
  rows.forEach((row, i) => {
    const isChosen = Object.entries(chosen).every(
      ([key, value]) => !value || row.dataset[key] === value,
    );
    row.hidden = !isChosen || !words.every((word) => texts[i].includes(word));
  });
  const shown = rows.filter((row) => !row.hidden).length;
  form.elements.count.value = `${shown} of ${rows.length} claims shown`;
}

function unfold() {
  const row = document.getElementById(location.hash.slice(1))?.closest(".claims tr");
  if (!row) return;
  if (row.hidden) {
    form.reset();
    filter();
  }
  row.querySelector("details").open = true;
  row.scrollIntoView({ behavior: "instant" });
}

form.addEventListener("input", filter);
form.addEventListener("reset", () => setTimeout(filter));
form.addEventListener("submit", (event) => event.preventDefault());
document.querySelector(".overview").addEventListener("click", ({ target }) => {
  if (!target.dataset.verdict) return;
  form.reset();
  form.elements.verdict.value = target.dataset.verdict;
  form.elements.role.value = target.dataset.role;
  filter();
});
window.addEventListener("hashchange", unfold);

form.hidden = false;
filter();
unfold();
