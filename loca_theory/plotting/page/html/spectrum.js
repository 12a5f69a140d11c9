// The eigenvalues of the chosen matrix.
const bars = new ColumnDataSource({ data: { left: [], right: [], count: [] } });
const law = new ColumnDataSource({ data: { x: [], y: [] } });
const spectrum = figure("spectrum", {
  x_range: new Range1d({ start: 0, end: 1 }), y_range: new Range1d({ start: 0, end: 1 }),
  x_axis_label: " ", y_axis_label: "number of eigenvalues",
});
const blocks = spectrum.quad({ field: "left" }, { field: "right" }, 0, { field: "count" }, {
  source: bars, fill_alpha: 0.7, line_color: null,
});
const curve = spectrum.line({ field: "x" }, { field: "y" }, { source: law, line_width: 2 });
react(spectrum, blocks, (index) => {
  const { left, right, count } = bars.data, isLog = data.spectra[page.chosen].is_logarithmic;
  const text = (edge) => (isLog ? digits(10 ** edge) : digits(edge));
  return tip(`${count[index]} ${count[index] === 1 ? "eigenvalue" : "eigenvalues"}`, [`from ${text(left[index])} to ${text(right[index])}`]);
});

function fact(title, text) {
  const made = element("div", element("dt", title), element("dd", text));
  if (title.length + text.length > 22) made.className = "long";
  return made;
}
function drawSpectrum() {
  const row = data.rows[page.chosen], found = data.spectra[page.chosen];
  const parts = row.name.split(".").map((part, i, all) => (i < all.length - 1 ? `${part}.` : part));
  find("chosen-name").replaceChildren(...parts.flatMap((part) => [part, element("wbr")]));
  find("chosen-facts").textContent = [hasSeveral ? row.tuned : "", row.kind, row.layer === null ? "" : `layer ${row.layer}`, row.shape.join("×")].filter(Boolean).join(", ");
  find("chosen-values").replaceChildren(...data.columns.flatMap((column, i) => (
    column.group === data.columns[0].group || !page.isShownAt(column) ? []
      : [fact(column.title, page.text(page.chosen, i))])));
  find("spectrum").hidden = !found;
  find("spectrum-words").textContent = found ? sentence(row, found) : "The eigenvalues of this matrix are not stored.";
  if (!found) return;
  const { counts, start, stop } = found, width = (stop - start) / counts.length;
  bars.data = { left: counts.map((_, i) => start + i * width), right: counts.map((_, i) => start + (i + 1) * width), count: counts };
  law.data = { x: [], y: [] };
  if (!found.is_logarithmic) {
    const aspect = Math.min(...row.shape) / Math.max(...row.shape), [low, high] = [-1, 1].map((sign) => (1 + sign * Math.sqrt(aspect)) ** 2);
    const x = Array.from({ length: 200 }, (_, i) => low + (high - low) * ((i + 0.5) / 200) ** 2);
    const scale = width * Math.min(...row.shape) / (2 * Math.PI * aspect);
    law.data = { x, y: x.map((one) => scale * Math.sqrt((high - one) * (one - low)) / one) };
  }
  spectrum.x_range.start = start;
  spectrum.x_range.end = stop;
  spectrum.y_range.end = 1.08 * Math.max(...counts, 1);
  const [axis] = spectrum.xaxis;
  axis.axis_label = found.is_logarithmic ? "eigenvalue, relative to the largest" : "eigenvalue / (max(p, q) σ²)";
  axis.major_label_overrides = new Map(found.is_logarithmic
    ? Array.from({ length: 1 - start }, (_, i) => [start + i, i === -start ? "1" : `1e${start + i}`]) : []);
  axis.ticker = found.is_logarithmic
    ? new FixedTicker({ ticks: Array.from({ length: 1 - start }, (_, i) => start + i).filter((one) => one % Math.ceil(-start / 6) === 0) })
    : new Bokeh.BasicTicker();
  curve.glyph.line_color = color("text");
  blocks.glyph.fill_color = color("blue");
}
function sentence(row, found) {
  const size = Math.min(...row.shape);
  const parts = [`The ${size} eigenvalues of ΔWᵀΔW (the squared singular values of the change).`];
  if (found.is_logarithmic) {
    parts.push("They have no bulk that follows the Marchenko–Pastur law of independent entries, so the axis is logarithmic.");
    if (found.below) parts.push(`Not shown: ${found.below} that are 0 or rounding errors.`);
    return parts.join(" ");
  }
  parts.push("The line is the Marchenko–Pastur law, which independent entries of standard deviation σ follow: what it covers is like noise.");
  if (found.above) {
    const more = found.above > found.leading.length ? ", …" : "";
    parts.push(`${found.above} beyond the axis: ${found.leading.map(digits).join(", ")}${more}.`);
  }
  return parts.join(" ");
}
