// The pictures follow the controls and the colours of the system.
page.listeners.push((what) => {
  if (what === "rank") drawSpectrum();
  if (what === "shown") { drawHeat(); drawMap(); }
  if (what === "chosen") { drawHeat(); markMap(); drawSpectrum(); }
});
find("close").addEventListener("click", () => { find("chosen").className = "picture"; });
const redraw = () => { paint(); drawHeat(); drawMap(); drawSpectrum(); };
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
redraw();
