// The map of what LoRA and the best coefficients retain.
// Okabe and Ito's colours, which colour-blind people can tell apart; the marks help too.
const COLORS = ["blue", "red", "green", "pink", "sky", "orange", "grey"];
const MARKS = [["circle", "●"], ["triangle", "▲"], ["square", "■"], ["diamond", "◆"], ["inverted_triangle", "▼"]];
const SPREAD = Math.min(0.06, 0.004 * (last - first)); // moves a point against the line by less than its size
const kinds = [...new Set(data.rows.map(({ kind }) => kind))];
let drawMap = () => {}, markMap = () => {};
const TOP = 1.04;
if (data.ranks.length && page.column("LoRA") >= 0) {
  const map = figure("map", {
    x_axis_type: "log", x_range: new Range1d({ start: 0.001, end: 1 }), y_range: new Range1d({ start: 0, end: TOP }),
    tools: ["box_zoom", "reset"], active_drag: null, toolbar_location: "above",
    x_axis_label: "coefficients in the budget / all",
    y_axis_label: "energy of the r largest singular values",
  });
  map.toolbar.logo = null;
  const [axis] = map.xaxis;
  axis.ticker = new Bokeh.LogTicker({ desired_num_ticks: 4 });
  const { x, y } = data.line;
  map.varea({ x, y1: y, y2: x.map(() => 0), fill_color: "#009e73", fill_alpha: 0.1 });
  map.varea({ x, y1: y, y2: x.map(() => TOP), fill_color: "#d55e00", fill_alpha: 0.1 });
  const border = map.line(x, y, { line_width: 2 });
  const words = ["above the line LoRA retains more", "below it the best coefficients retain more"].map((text, i) => {
    const label = new Bokeh.Label({
      text, x: 0, y: i === 0 ? TOP : 0, x_offset: i === 0 ? 8 : -8, y_offset: i === 0 ? -6 : 6,
      text_align: i === 0 ? "left" : "right", text_baseline: i === 0 ? "top" : "bottom",
      text_font: "system-ui, sans-serif", text_font_size: "13px",
    });
    map.add_layout(label);
    return label;
  });
  const points = new ColumnDataSource({ data: { x: [], y: [], color: [], mark: [], row: [] } });
  const marks = map.scatter({ field: "x" }, { field: "y" }, {
    source: points, marker: { field: "mark" }, size: 8, fill_color: { field: "color" }, fill_alpha: 0.75,
    line_color: { field: "color" },
  });
  const ring = new ColumnDataSource({ data: { x: [], y: [] } });
  const circle = map.scatter({ field: "x" }, { field: "y" }, { source: ring, size: 17, fill_color: null, line_width: 2.5 });
  react(map, marks, (index) => {
    const row = points.data.row[index];
    return tip(named(data.rows[row]), [`kind: ${data.rows[row].kind}`, ...facts(row, ["layer", "shape", "best", "LoRA", "LoCA", "entries", "stable rank"])]);
  }, (index) => choose(points.data.row[index]));

  drawMap = () => {
    const fractions = data.coefficients[page.rank], retained = data.columns[page.column("LoRA")].values;
    const rows = data.rows.flatMap((_, i) => (page.shown[i] && fractions[i] !== null && retained[i] !== null ? [i] : []));
    const side = (row) => (layers.length > 1 && data.rows[row].layer !== null ? 2 * (data.rows[row].layer - first) / (last - first) - 1 : 0);
    points.data = {
      row: rows,
      x: rows.map((i) => fractions[i] * (1 + SPREAD * side(i))),
      y: rows.map((i) => retained[i] / 100),
      color: rows.map((i) => color(COLORS[kinds.indexOf(data.rows[i].kind) % COLORS.length])),
      mark: rows.map((i) => MARKS[kinds.indexOf(data.rows[i].kind) % MARKS.length][0]),
    };
    const all = finite(fractions);
    if (all.length) {
      map.x_range.start = Math.min(...all) / 1.5;
      map.x_range.end = Math.min(1.6 * Math.max(...all), 1.06);
      [words[0].x, words[1].x] = [map.x_range.start, map.x_range.end];
      map.x_range.reset_start = map.x_range.start;
      map.x_range.reset_end = map.x_range.end;
    }
    markMap();
  };
  markMap = () => {
    const at = points.data.row.indexOf(page.chosen);
    ring.data = at < 0 ? { x: [], y: [] } : { x: [points.data.x[at]], y: [points.data.y[at]] };
    border.glyph.line_color = circle.glyph.line_color = color("text");
    for (const label of words) label.text_color = color("text");
  };
  find("legend").append(...kinds.map((kind, k) => {
    const mark = element("span", MARKS[k % MARKS.length][1]);
    mark.style.color = `var(--${COLORS[k % COLORS.length]})`;
    return element("span", mark, ` ${kind}`);
  }));
}
