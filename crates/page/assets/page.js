"use strict";
/* The page as a whole: its ground, printing, its width. Last, so that what says that it is painted is. */
(() => {
  const { byId, charts, isDark, print, redraws, root, system, widthOf } = probeSync;
  const repaint = () => {
    charts.forEach((it) => it.plot.redraw());
    redraws.forEach((draw) => draw());
  };
  const theme = byId("theme");
  const named = () => { theme.textContent = isDark() ? "Light" : "Dark"; };
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    named();
    repaint();
  });
  system.addEventListener("change", () => { named(); repaint(); });
  named();
  let before = null;
  window.addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    root.dataset.theme = "light";
    print(true);
    document.querySelectorAll("details").forEach((it) => { it.dataset.open = it.open; it.open = true; });
    repaint();
  });
  window.addEventListener("afterprint", () => {
    if (before === undefined || before === null) delete root.dataset.theme; else root.dataset.theme = before;
    print(false);
    document.querySelectorAll("details").forEach((it) => { it.open = it.dataset.open === "true"; });
    repaint();
  });
  let waiting = 0;
  window.addEventListener("resize", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => {
      for (const it of charts) it.plot.setSize({ width: widthOf(it.plot.root.parentElement), height: it.plot.height });
      redraws.forEach((draw) => draw());
    });
  });
  root.dataset.painted = "yes";
})();
