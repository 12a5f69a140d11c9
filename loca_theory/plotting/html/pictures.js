"use strict";
// The heat map, the map of methods and the spectrum of the chosen matrix, drawn by BokehJS.
{
  const { data } = page, find = (id) => document.getElementById(id);
  const { ColumnDataSource, FixedTicker, HoverTool, Palettes, Plotting, Range1d, FactorRange } = Bokeh;
  const figures = [];
  const finite = (values) => values.filter((value) => value !== null);
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  // --- what the pictures have in common -----------------------------------------------------------
  function element(tag, ...content) {
    const made = document.createElement(tag);
    made.append(...content);
    return made;
  }
  // What pointing shows. Names are set as text, never as markup.
  function tip(title, lines) {
    const made = element("div", element("b", title), ...lines.map((line) => element("div", line)));
    made.style.cssText = "font:13px/1.4 system-ui,sans-serif;max-width:min(19rem,42vw);overflow-wrap:anywhere;white-space:normal;"
      + "margin:-5px;padding:5px 8px;color:var(--text);background:var(--back)";
    return made;
  }
  const facts = (row, titles) => titles.map((title) => page.column(title)).filter((i) => i >= 0)
    .map((i) => `${page.short(data.columns[i].title)}: ${page.text(row, i)}`);
  const named = ({ name, tuned }) => (tuned ? `${name} (${tuned})` : name);

  function figure(target, options) {
    const made = Plotting.figure({
      sizing_mode: "stretch_both", tools: [], toolbar_location: null, background_fill_color: null,
      border_fill_color: null, min_border: 4, lod_threshold: null, ...options,
    });
    for (const axis of [...made.xaxis, ...made.yaxis]) {
      axis.axis_label_text_font_style = "normal";
      axis.axis_label_text_font = axis.major_label_text_font = "system-ui, sans-serif";
      axis.axis_label_text_font_size = "13px";
      axis.major_label_text_font_size = "12px";
      axis.minor_tick_line_color = null;
    }
    figures.push(made);
    Plotting.show(made, `#${target}`);
    return made;
  }
  // Point at or click the marks of a renderer: `describe` and `click` take a mark's index.
  function react(made, renderer, describe, click) {
    const source = renderer.data_source;
    renderer.selection_glyph = renderer.nonselection_glyph = renderer.glyph;
    made.add_tools(new HoverTool({ renderers: [renderer], visible: false, tooltips: (_, vars) => describe(vars.index) }));
    if (!click) return;
    made.add_tools(new Bokeh.TapTool({ renderers: [renderer], visible: false }));
    const { selected } = source;
    selected.connect(selected.properties.indices.change, () => {
      const [index] = selected.indices;
      if (index === undefined) return;
      selected.indices = []; // so that the same mark can be clicked again
      click(index);
    });
  }
  function choose(row) {
    find("chosen").classList.add("open");
    page.choose(row);
  }
  function paint() {
    for (const made of figures) {
      made.outline_line_color = color("rule");
      for (const axis of [...made.xaxis, ...made.yaxis]) {
        axis.axis_line_color = axis.major_tick_line_color = color("rule");
        axis.axis_label_text_color = color("text");
        axis.major_label_text_color = color("quiet");
      }
      for (const grid of [...made.xgrid, ...made.ygrid]) grid.grid_line_color = color("rule");
    }
  }

  // --- heat map: layers and kinds -------------------------------------------------------------------
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
  const without = first - (layers.length ? 1.5 : 0); // where matrices without a layer are
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

  const shades = [...new Set(data.columns.filter(({ values }) => values).map(({ title }) => page.short(title)))]
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
  const digits = (value) => (Math.abs(value) >= 1e4 || (value !== 0 && Math.abs(value) < 1e-3)
    ? value.toExponential(2) : String(Number(value.toPrecision(3))));

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
      ...(values.length === 0 ? ["no values"] : low === high ? [`all ${digits(low)}`]
        : [digits(low), bar, `${digits(high)}${isWide ? " (logarithmic)" : ""}`]));
    find("heat-about").textContent = column.about;
  }
  react(heat, squares, (index) => {
    const { rows, mean } = drawn[index];
    const title = find("shade").value, [row] = rows;
    if (rows.length === 1) return tip(named(data.rows[row]), [`kind: ${data.rows[row].kind}`, ...facts(row, [title, "layer", "shape"])]);
    const value = mean === null ? "none" : digits(mean);
    const more = rows.length > 5 ? [`… and ${rows.length - 5} more`] : [];
    return tip(`${title}: ${value}, mean of ${rows.length} matrices`, [...rows.slice(0, 5).map((i) => named(data.rows[i])), ...more]);
  }, (index) => {
    const { rows } = drawn[index]; // further clicks on a cell go through its matrices
    choose(rows[(rows.indexOf(page.chosen) + 1) % rows.length]);
  });

  // --- map: what LoRA and the best coefficients retain ------------------------------------------------
  // Okabe and Ito's colours, which colour-blind people can tell apart; the marks help too.
  const COLORS = ["blue", "red", "green", "pink", "sky", "orange", "grey"];
  const MARKS = [["circle", "●"], ["triangle", "▲"], ["square", "■"], ["diamond", "◆"], ["inverted_triangle", "▼"]];
  const SPREAD = Math.min(0.06, 0.004 * (last - first)); // moves a point against the line by less than its size
  const kinds = [...new Set(data.rows.map(({ kind }) => kind))];
  let drawMap = () => {}, markMap = () => {};
  const TOP = 1.04;
  if (data.ranks.length && page.column("R") >= 0) {
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
      return tip(named(data.rows[row]), [`kind: ${data.rows[row].kind}`, ...facts(row, ["layer", "shape", "best", "R", "D", "S", "stable rank"])]);
    }, (index) => choose(points.data.row[index]));

    drawMap = () => {
      const fractions = data.coefficients[page.rank], errors = data.columns[page.column("R")].values;
      const rows = data.rows.flatMap((_, i) => (page.shown[i] && fractions[i] !== null && errors[i] !== null ? [i] : []));
      const side = (row) => (layers.length > 1 && data.rows[row].layer !== null ? 2 * (data.rows[row].layer - first) / (last - first) - 1 : 0);
      points.data = {
        row: rows,
        x: rows.map((i) => fractions[i] * (1 + SPREAD * side(i))),
        y: rows.map((i) => 1 - errors[i]),
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

  // --- spectrum of the chosen matrix ------------------------------------------------------------------
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
    find("chosen-facts").textContent = [row.tuned, row.kind, row.layer === null ? "" : `layer ${row.layer}`, row.shape.join("×")].filter(Boolean).join(", ");
    find("chosen-values").replaceChildren(...data.columns.flatMap((column, i) => (
      column.group === data.columns[0].group || !page.isShownAt(column) ? []
        : [fact(page.short(column.title), page.text(page.chosen, i))])));
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

  // --- follow the controls ------------------------------------------------------------------------------
  page.listeners.push((what) => {
    if (what === "rank") drawSpectrum();
    if (what === "shown") { drawHeat(); drawMap(); }
    if (what === "chosen") { drawHeat(); markMap(); drawSpectrum(); }
  });
  find("close").addEventListener("click", () => find("chosen").classList.remove("open"));
  const redraw = () => { paint(); drawHeat(); drawMap(); drawSpectrum(); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  redraw();
}
