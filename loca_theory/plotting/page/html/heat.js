// The heat map of layers and kinds.
const MOST_PARTS = 6; // kinds with at most this many different modules get a line for each
const moduleOf = (name) => {
  const parts = name.replace(/\.weight$/, "").split(".");
  return parts.at(-1) === "dense" ? parts.slice(-2).join(".") : parts.at(-1);
};
const modules = new Map();
for (const { kind, name } of data.rows) modules.set(kind, (modules.get(kind) ?? new Set()).add(moduleOf(name)));
const lineOf = ({ kind, name }) => {
  const { size } = modules.get(kind);
  return size > 1 && size <= MOST_PARTS ? `${kind}: ${moduleOf(name)}`.slice(0, 40) : kind;
};
const cells = new Map(); // rows of the matrices of each cell
data.rows.forEach((row, i) => {
  const key = JSON.stringify([row.layer, lineOf(row)]);
  cells.set(key, [...(cells.get(key) ?? []), i]);
});
const lines = [...new Set(data.rows.map(lineOf))];
const layers = finite([...new Set(data.rows.map(({ layer }) => layer))]).sort((a, b) => a - b);
const [first, last] = layers.length ? [layers[0], layers.at(-1)] : [0, 0];
const without = first - (layers.length ? Math.max(1.5, 0.13 * (last - first)) : 0); // where matrices without a layer are
const hasWithout = data.rows.some(({ layer }) => layer === null);
const step = [1, 2, 5, 10, 20, 50, 100].find((one) => (last - first) / one <= 12) ?? 200;
const ticks = layers.filter((layer) => layer % step === 0 || layers.length <= 12);

find("heat").style.height = `${4.2 + 1.5 * lines.length}rem`;
const heat = figure("heat", {
  x_range: new Range1d({ start: (hasWithout ? without : first) - 0.5, end: (layers.length ? last : without) + 0.5 }),
  y_range: new FactorRange({ factors: [...lines].reverse() }),
  x_axis_label: "layer",
});
const [heatAxis] = heat.xaxis;
heatAxis.ticker = new FixedTicker({ ticks: hasWithout ? [without, ...ticks] : ticks });
heatAxis.major_label_overrides = new Map([[without, "none"]].slice(hasWithout ? 0 : 1));
for (const grid of [...heat.xgrid, ...heat.ygrid]) grid.visible = false;
const heatSource = new ColumnDataSource({ data: { x: [], y: [], fill: [], border: [] } });
const squares = heat.rect({ field: "x" }, { field: "y" }, 0.94, 0.9, {
  source: heatSource, fill_color: { field: "fill" }, line_color: { field: "border" }, line_width: 2,
});
let drawn = []; // the cells that are drawn: rows and mean value

const shades = [...new Set(data.columns.filter(({ values }) => values).map(({ title }) => title))]
  .filter((title) => title !== "layer");
const groups = new Map();
for (const title of shades) {
  const { group } = data.columns[page.column(title)];
  if (!groups.has(group)) groups.set(group, find("shade").appendChild(Object.assign(element("optgroup"), { label: group })));
  groups.get(group).append(new Option(title));
}
find("shade").addEventListener("change", drawHeat);

const mix = (from, to, part) => from.map((one, i) => Math.round(one + (to[i] - one) * part));
const rgb = (text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
// A colour for every part from 0 to 1 of the range of a column.
function palette(isSigned) {
  if (!isSigned) return (part) => Palettes.Viridis256[Math.round(255 * part)];
  const [low, middle, high] = ["#0072b2", color("panel"), "#d55e00"].map(rgb);
  return (part) => `rgb(${part < 0.5 ? mix(low, middle, 2 * part) : mix(middle, high, 2 * part - 1)})`;
}
const css = (shade) => (typeof shade === "number" ? `#${(shade >>> 8).toString(16).padStart(6, "0")}` : shade);

function drawHeat() {
  const column = data.columns[page.column(find("shade").value)];
  drawn = [];
  for (const [key, all] of cells) {
    const rows = all.filter((i) => page.shown[i]);
    if (!rows.length) continue;
    const known = finite(rows.map((i) => column.values[i]));
    const mean = known.length ? known.reduce((sum, one) => sum + one, 0) / known.length : null;
    const [layer, line] = JSON.parse(key);
    drawn.push({ rows, mean, line, x: layer ?? without });
  }
  const values = finite(drawn.map(({ mean }) => mean));
  let [low, high] = values.length ? [Math.min(...values), Math.max(...values)] : [0, 0];
  const isSigned = column.scale === "signed", isWide = column.scale === "wide" && low > 0 && high > 20 * low;
  if (isSigned) [low, high] = [-1, 1].map((sign) => sign * Math.max(Math.abs(low), Math.abs(high)));
  const part = (value) => (high === low ? 0.5
    : isWide ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low));
  const shade = palette(isSigned);
  heatSource.data = {
    x: drawn.map(({ x }) => x),
    y: drawn.map(({ line }) => line),
    fill: drawn.map(({ mean }) => (mean === null ? "rgba(0,0,0,0)" : css(shade(part(mean))))),
    border: drawn.map(({ rows, mean }) => (rows.includes(page.chosen) ? color("text") : mean === null ? color("rule") : "rgba(0,0,0,0)")),
  };
  const stops = Array.from({ length: 11 }, (_, i) => css(shade(i / 10)));
  const bar = element("span");
  bar.className = "bar";
  bar.style.background = `linear-gradient(to right, ${stops})`;
  find("heat-scale").replaceChildren(
    ...(values.length === 0 ? ["no values"] : low === high ? [`all ${digits(low)}${column.unit}`]
      : [digits(low) + column.unit, bar, `${digits(high)}${column.unit}${isWide ? " (logarithmic)" : ""}`]));
  find("heat-about").textContent = column.about;
}
react(heat, squares, (index) => {
  const { rows, mean } = drawn[index];
  const title = find("shade").value, [row] = rows;
  if (rows.length === 1) return tip(named(data.rows[row]), [`kind: ${data.rows[row].kind}`, ...facts(row, [title, "layer", "shape"])]);
  const value = mean === null ? "none" : digits(mean) + data.columns[page.column(title)].unit;
  const more = rows.length > 5 ? [`… and ${rows.length - 5} more`] : [];
  return tip(`${title}: ${value}, mean of ${rows.length} matrices`, [...rows.slice(0, 5).map((i) => named(data.rows[i])), ...more]);
}, (index) => {
  const { rows } = drawn[index]; // further clicks on a cell go through its matrices
  choose(rows[(rows.indexOf(page.chosen) + 1) % rows.length]);
});
