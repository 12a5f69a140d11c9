"use strict";
// Tables that can be sorted and filtered. The pictures follow what `page` says is shown.
const page = {
  data: JSON.parse(document.getElementById("data").textContent),
  table: document.getElementById("matrices"),
  rank: null, // the rank whose budget is shown
  shown: [], // whether each matrix passes the filters
  chosen: 0, // the matrix whose spectrum is shown
  listeners: [], // functions to call when one of these has changed
  changed(what) { for (const listener of this.listeners) listener(what); },
};
page.body = [...page.table.tBodies[0].rows]; // rows in the order of the data, however sorted
page.text = (row, column) => page.body[row].cells[column].textContent;
page.isShownAt = (column) => column.r === null || column.r === page.rank;
// The column of this title at the chosen rank.
page.column = (title) => page.data.columns.findIndex((c) => c.title === title && page.isShownAt(c));

{
  const { data } = page, find = (id) => document.getElementById(id);
  const collator = new Intl.Collator("en", { numeric: true });
  const option = (parent, value, text = value) => parent.append(new Option(text, value));

  // --- sorting: a button in every heading ---------------------------------------------------
  function keys(table, column) {
    const rows = [...table.tBodies[0].rows];
    if (table === page.table) {
      const { values } = data.columns[column];
      if (values) return new Map(page.body.map((row, i) => [row, values[i]]));
    }
    const texts = rows.map((row) => row.cells[column].textContent);
    const isMissing = (text) => ["none", "not known", ""].includes(text);
    const numbers = texts.map((text) => parseFloat(text.replaceAll(",", "")));
    const isNumeric = texts.every((text, i) => isMissing(text) || !Number.isNaN(numbers[i]));
    return new Map(rows.map((row, i) => [row, isMissing(texts[i]) ? null : isNumeric ? numbers[i] : texts[i]]));
  }
  function sort(table, heading) {
    const found = keys(table, heading.cellIndex);
    // Numbers start with the largest, names with the first.
    const isNumeric = [...found.values()].some((key) => typeof key === "number");
    const descending = heading.ariaSort ? heading.ariaSort === "ascending" : isNumeric;
    for (const other of heading.parentNode.cells) other.removeAttribute("aria-sort");
    heading.ariaSort = descending ? "descending" : "ascending";
    const compare = (a, b) => (typeof a === "number" ? a - b : collator.compare(a, b));
    const order = (a, b) => {
      const [x, y] = [found.get(a), found.get(b)];
      if (x === null || y === null) return (x === null) - (y === null); // missing values come last
      return descending ? compare(y, x) : compare(x, y);
    };
    table.tBodies[0].append(...[...found.keys()].sort(order));
  }
  for (const table of document.querySelectorAll("table")) {
    for (const heading of table.tHead.rows[0].cells) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => sort(table, heading));
    }
  }

  // --- columns: those of the other ranks are hidden, and groups can be ------------------------
  const style = document.head.appendChild(document.createElement("style"));
  const groups = new Map(); // whether each group of columns is shown
  // In a narrow window what is retained stands beside the names.
  const isNarrow = matchMedia("(max-width: 40rem)").matches, [{ group: kinds }] = data.columns;
  for (const { group } of data.columns.slice(1)) groups.set(group, !isNarrow || group !== kinds);
  function hideColumns() {
    const hidden = data.columns.flatMap((column, i) =>
      i > 0 && (!groups.get(column.group) || !page.isShownAt(column)) ? [`#matrices tr > :nth-child(${i + 1})`] : []);
    const others = data.ranks.filter((r) => r !== page.rank).map((r) => `tr[data-r="${r}"]`);
    style.textContent = [...hidden, ...others].map((one) => `${one} { display: none }`).join("\n");
  }
  const box = document.createElement("p");
  box.className = "groups";
  for (const group of groups.keys()) {
    const label = box.appendChild(document.createElement("label")), input = document.createElement("input");
    input.type = "checkbox";
    input.checked = groups.get(group);
    input.addEventListener("change", () => { groups.set(group, input.checked); hideColumns(); });
    label.append(input, ` ${group}`);
  }
  page.table.parentNode.before(box);

  // --- a mark at the right edge while there are more columns to the right -----------------------
  const mark = (wide) => wide.classList.toggle("more", wide.scrollWidth - wide.clientWidth - wide.scrollLeft > 1);
  for (const wide of document.querySelectorAll(".wide")) {
    wide.addEventListener("scroll", () => mark(wide));
    new ResizeObserver(() => mark(wide)).observe(wide);
    new ResizeObserver(() => mark(wide)).observe(wide.firstElementChild);
  }

  // --- filters ----------------------------------------------------------------------------------
  const controls = find("controls");
  const distinct = (key) => [...new Set(data.rows.map((row) => row[key]))].sort(collator.compare);
  for (const r of data.ranks) option(find("rank"), r);
  page.rank = data.ranks[0] ?? null;
  find("rank").parentNode.hidden = data.ranks.length === 0;
  for (const kind of distinct("kind")) option(find("kind"), kind);
  for (const tuned of distinct("tuned")) option(find("tuned"), tuned);
  controls.querySelector("[data-for=tuned]").hidden = distinct("tuned").length < 2;
  const titles = new Set(data.columns.filter((column) => column.values).map((column) => column.title));
  for (const title of titles) option(find("field"), title);

  function filter() {
    const words = find("search").value.toLowerCase(), [kind, tuned] = [find("kind").value, find("tuned").value];
    const field = find("field").value, limit = find("limit").valueAsNumber, sign = Number(find("relation").value);
    const values = field && !Number.isNaN(limit) ? data.columns[page.column(field)].values : null;
    find("bound").hidden = !field;
    page.shown = data.rows.map((row, i) =>
      row.name.toLowerCase().includes(words) && (!kind || row.kind === kind) && (!tuned || row.tuned === tuned)
      && (!values || (values[i] !== null && sign * (values[i] - limit) >= 0)));
    page.body.forEach((row, i) => { row.hidden = !page.shown[i]; });
    const count = page.shown.filter(Boolean).length;
    find("count").textContent = `${count} of ${data.rows.length} ${data.rows.length === 1 ? "matrix" : "matrices"}`;
    page.changed("shown");
  }
  controls.addEventListener("input", (event) => {
    if (event.target.id === "rank") {
      page.rank = Number(event.target.value);
      hideColumns();
      page.changed("rank");
    }
    filter();
  });
  controls.addEventListener("reset", () => setTimeout(() => {
    page.rank = data.ranks[0] ?? null;
    hideColumns();
    page.changed("rank");
    filter();
  }));
  controls.addEventListener("submit", (event) => event.preventDefault());

  // --- the chosen matrix ------------------------------------------------------------------------
  page.choose = (row) => {
    page.body[page.chosen].classList.remove("chosen");
    page.chosen = row;
    page.body[row].classList.add("chosen");
    page.changed("chosen");
  };
  page.body.forEach((row, i) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...row.cells[0].childNodes);
    row.cells[0].append(button);
    row.addEventListener("click", () => { find("chosen").className = "picture open"; page.choose(i); });
  });

  for (const part of document.querySelectorAll(".picture")) part.hidden = false;
  controls.hidden = false;
  find("map-section").hidden = data.ranks.length === 0;
  hideColumns();
  filter();
  page.body[0].classList.add("chosen");
}
