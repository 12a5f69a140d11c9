"use strict";
// What the pictures have in common. BokehJS draws them.
const { data } = page, find = (id) => document.getElementById(id);
const { ColumnDataSource, FixedTicker, HoverTool, Palettes, Plotting, Range1d, FactorRange } = Bokeh;
const figures = [];
const finite = (values) => values.filter((value) => value !== null);
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

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
  .map((i) => `${data.columns[i].title}: ${page.text(row, i)}`);
const hasSeveral = new Set(data.rows.map(({ tuned }) => tuned)).size > 1; // fine-tunes
const named = ({ name, tuned }) => (hasSeveral ? `${name} (${tuned})` : name);

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
// Beside the pictures the chosen matrix has its place; in a narrow window it covers their lower part.
function choose(row) {
  find("chosen").className = "picture picked";
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
const digits = (value) => (Math.abs(value) >= 1e4 || (value !== 0 && Math.abs(value) < 1e-3)
  ? value.toExponential(2) : String(Number(value.toPrecision(3))));
