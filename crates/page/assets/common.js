"use strict";
/* What all charts of the report page share: the block of data, colours, numbers with units, and how a chart is made. Texts go into the page as text alone. */
const probeSync = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  let printing = false;
  const isDark = () => !printing && (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const color = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
  /* Okabe and Ito's colours, which people with any colour vision tell apart; on a dark ground black gives way to white, on a light one yellow is darker. */
  const LIGHT = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#8c8200"];
  const DARK = ["#56b4e9", "#ff8c3a", "#2fc79c", "#e39cc4", "#4f8fe0", "#e69f00", "#f2f2f2", "#f0e442"];
  const DASHES = [[], [6, 3], [2, 3]];
  const lineColor = (place) => (isDark() ? DARK : LIGHT)[place % 8];
  const lineDash = (place) => DASHES[Math.floor(place / 8) % 3];

  /* Names are somebody else's: what reorders or hides text becomes a number. */
  const shown = (text) => {
    let clean = "";
    for (const letter of String(text).slice(0, 200)) {
      const code = letter.codePointAt(0);
      const hides = code < 32 || (code >= 127 && code < 160) || (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e)
        || (code >= 0x2060 && code <= 0x206f) || code === 0xfeff;
      clean += hides ? "\\u{" + code.toString(16) + "}" : letter;
    }
    return clean;
  };
  const element = (tag, text) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    return made;
  };

  /* Numbers with the unit that suits the size of what is shown. */
  const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
  const unitOf = (size) => UNITS.find(([least]) => size >= least) || UNITS[3];
  const digits = (value) => String(Number(value.toPrecision(4))).replace("-", "−");
  const length = (ns) => {
    if (ns === null || ns === undefined) return "none";
    const [least, unit] = unitOf(Math.abs(ns));
    return digits(ns / least) + " " + unit;
  };
  const signed = (ns) => (ns === null || ns === undefined ? "none" : (ns >= 0 ? "+" : "") + length(ns));
  const percent = (share) => (share === null ? "none" : digits(100 * share) + " %");
  const seconds = (s) => {
    if (s < 120) return digits(s) + " s";
    const whole = Math.round(s);
    const parts = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
    return parts[0] > 0 ? parts[0] + " h " + parts[1] + " min " + parts[2] + " s" : parts[1] + " min " + parts[2] + " s";
  };

  const charts = [];
  const redraws = [];
  const SYNC = "time";

  const widthOf = (place) => Math.max(240, place.clientWidth);
  const axisFont = "12px system-ui, sans-serif";
  const axes = (xLabel, yLabel, yTexts) => [
    { stroke: () => color("soft"), font: axisFont, labelFont: axisFont, labelSize: 18, label: xLabel, size: 34, grid: { stroke: () => color("grid"), width: 1 }, ticks: { stroke: () => color("grid"), width: 1 } },
    { stroke: () => color("soft"), font: axisFont, labelFont: axisFont, labelSize: 18, label: yLabel, size: 76, values: yTexts, grid: { stroke: () => color("grid"), width: 1 }, ticks: { stroke: () => color("grid"), width: 1 } },
  ];
  /* All ticks of an axis have one unit. */
  const unitTexts = (plot, ticks) => {
    const size = Math.max(...ticks.map(Math.abs), 0);
    const [least, unit] = unitOf(size);
    return ticks.map((tick) => (tick === null ? "" : digits(tick / least) + " " + unit));
  };

  const drawMarks = (plot) => {
    if (!data.marks.length) return;
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.strokeStyle = ctx.fillStyle = color("fault");
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
    for (const mark of data.marks) {
      const x = Math.round(plot.valToPos(mark.t, "x", true)) + 0.5;
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      const size = 5 * devicePixelRatio;
      ctx.beginPath();
      ctx.moveTo(x - size, bbox.top);
      ctx.lineTo(x + size, bbox.top);
      ctx.lineTo(x, bbox.top + 1.6 * size);
      ctx.fill();
    }
    ctx.restore();
  };
  const drawLevel = (level) => (plot) => {
    if (level === null) return;
    const { ctx, bbox } = plot;
    const y = Math.round(plot.valToPos(level, "y", true)) + 0.5;
    if (!(y >= bbox.top && y <= bbox.top + bbox.height)) return;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = color("ink");
    ctx.lineWidth = 1.5 * devicePixelRatio;
    ctx.setLineDash([8 * devicePixelRatio, 4 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    ctx.font = 12 * devicePixelRatio + "px system-ui, sans-serif";
    ctx.textAlign = "right";
    ctx.fillText("target " + length(level), bbox.left + bbox.width - 6 * devicePixelRatio, y - 5 * devicePixelRatio);
    ctx.restore();
  };

  let zoomed = false;
  const zoomAll = (least, most) => {
    for (const chart of charts) if (chart.isTime) chart.plot.setScale("x", { min: least, max: most });
  };
  const whole = () => {
    const t = data.series.t;
    const last = t[t.length - 1];
    return t.length > 1 ? [t[0], last] : [t[0] - 1, t[0] + 1];
  };
  const resetZoom = () => {
    zoomAll(...whole());
    zoomed = false;
    byId("zoom-reset").disabled = true;
  };

  /* One chart; `make` gives options and values, and is asked again when what is shown has changed. Charts over time zoom together, and tell `readout` where the pointer is. */
  const chart = (id, label, make, readout) => {
    const place = byId(id);
    if (!place) return;
    const isTime = Boolean(readout);
    const own = { plot: null, isTime };
    const build = () => {
      const kept = own.plot && isTime ? [own.plot.scales.x.min, own.plot.scales.x.max] : null;
      if (own.plot) own.plot.destroy();
      const { options, values } = make();
      const base = {
        width: widthOf(place), height: place.clientWidth < 600 ? 230 : 280, legend: { show: false }, padding: [12, 16, 0, 0],
        cursor: isTime
          ? { sync: { key: SYNC, setSeries: false, scales: ["x", null], filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } }, drag: { x: true, y: false, setScale: false }, points: { size: 6 } }
          : { drag: { x: false, y: false }, points: { size: 6 } },
      };
      if (isTime) {
        options.hooks = options.hooks || {};
        options.hooks.setSelect = [(plot) => {
          if (plot.select.width < 4) return;
          zoomAll(plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x"));
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          zoomed = true;
          byId("zoom-reset").disabled = false;
        }];
        options.hooks.setCursor = [(plot) => readout(plot.cursor.idx)];
        base.cursor.bind = { dblclick: () => () => resetZoom() };
      }
      own.plot = new uPlot({ ...base, ...options }, values, place);
      const canvas = own.plot.root.querySelector("canvas");
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", label);
      if (kept && zoomed) own.plot.setScale("x", { min: kept[0], max: kept[1] });
    };
    own.build = build;
    build();
    charts.push(own);
  };

  const rebuild = () => charts.forEach((it) => it.build());
  /* What is printed is light. */
  const print = (on) => { printing = on; };
  return { axes, axisFont, byId, chart, charts, color, data, digits, drawLevel, drawMarks, element, isDark, length, lineColor, lineDash, percent, print, rebuild, redraws, resetZoom, root, seconds, shown, signed, system, unitTexts, whole, widthOf };
})();
