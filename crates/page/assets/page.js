"use strict";
/* The charts of the report page, drawn from the block of data. Texts go into the page as text alone. */
(() => {
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
    { stroke: () => color("soft"), font: axisFont, labelFont: axisFont, labelSize: 18, label: yLabel, size: 66, values: yTexts, grid: { stroke: () => color("grid"), width: 1 }, ticks: { stroke: () => color("grid"), width: 1 } },
  ];
  /* All ticks of an axis have one unit. */
  const unitTexts = (plot, ticks) => {
    const size = Math.max(...ticks.map(Math.abs), 0);
    const [least, unit] = unitOf(size);
    return ticks.map((tick) => (tick === null ? "" : digits(tick / least) + " " + unit));
  };
  const logTexts = (plot, ticks) => ticks.map((tick) => (tick === null || !"125".includes(tick.toExponential(0)[0]) ? "" : length(tick)));

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

  /* One chart; `make` gives options and values, and is asked again when what is shown has changed. */
  const chart = (id, label, make, isTime) => {
    const place = byId(id);
    if (!place) return;
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

  /* ----- over time ----- */
  const series = data.series;
  const hosts = new Map(data.nodes.map((row) => [row.node_id, row.host]));
  const nodeName = (node) => "node " + node + (hosts.get(node) ? " · " + shown(hosts.get(node)) : "");
  const nodes = series.nodes;
  const chosen = new Set(nodes.slice(0, nodes.length <= 8 ? 8 : 6).map((it) => it.node));
  const placeOf = new Map([...nodes].sort((a, b) => a.node - b.node).map((it, place) => [it.node, place]));
  const sum = (values, widths, sign) => values.map((value, at) => (value === null || widths[at] === null ? null : value + sign * widths[at]));
  const low = (it) => (it.low.length ? it.low : sum(it.offset, it.half_width, -1));
  const high = (it) => (it.high.length ? it.high : sum(it.offset, it.half_width, 1));
  const visible = () => nodes.filter((it) => chosen.has(it.node));
  const line = (it, extra) => ({ stroke: () => lineColor(placeOf.get(it.node)), width: 1.4, dash: lineDash(placeOf.get(it.node)), points: { show: series.t.length < 60, size: 4 }, spanGaps: false, ...extra });
  const xScale = () => { const [min, max] = whole(); return { time: false, min, max }; };
  const X = "time since the first round, s";

  const bands = (it, at) => ({ series: [at + 1, at], fill: () => lineColor(placeOf.get(it.node)) + alpha(Math.max(0.03, 0.16 / Math.sqrt(chosen.size))) });
  const alpha = (share) => Math.round(255 * share).toString(16).padStart(2, "0");
  const offsets = () => {
    const values = [series.t];
    const lines = [{}];
    const areas = [];
    for (const it of sortedByNode(visible())) {
      const edge = { stroke: () => "transparent", width: 0, points: { show: false } };
      areas.push(bands(it, values.length));
      values.push(low(it), high(it), it.offset);
      lines.push(edge, edge, line(it));
    }
    return { options: { scales: { x: xScale() }, axes: axes(X, "offset less trend", unitTexts), series: lines, bands: areas, hooks: { draw: [drawMarks] } }, values };
  };
  const sortedByNode = (list) => [...list].sort((a, b) => a.node - b.node);
  let focus = nodes.length ? nodes[0].node : null;
  const one = () => {
    const it = nodes.find((candidate) => candidate.node === focus);
    const none = series.t.map(() => null);
    const edge = { stroke: () => "transparent", width: 0, points: { show: false } };
    const bound = { stroke: () => color("soft"), width: 1, dash: [5, 4], points: { show: false } };
    const hardLow = it.hard_low.length ? it.hard_low : none;
    const hardHigh = it.hard_high.length ? it.hard_high : none;
    return {
      options: {
        scales: { x: xScale() }, axes: axes(X, "offset less trend", unitTexts), hooks: { draw: [drawMarks] },
        series: [{}, bound, bound, edge, edge, line(it, { dash: [] })],
        bands: [{ series: [2, 1], fill: () => color("soft") + "14" }, { series: [4, 3], fill: () => lineColor(placeOf.get(it.node)) + "40" }],
      },
      values: [series.t, hardLow, hardHigh, low(it), high(it), it.offset],
    };
  };
  const widths = () => {
    const values = [series.t];
    const lines = [{}];
    const areas = [];
    if (series.others) {
      const edge = { stroke: () => color("soft"), width: 1, points: { show: false } };
      areas.push({ series: [2, 1], fill: () => color("soft") + "26" });
      values.push(series.others.narrowest, series.others.widest);
      lines.push(edge, edge);
    }
    for (const it of sortedByNode(visible())) {
      values.push(it.half_width.map((ns) => (ns > 0 ? ns : null)));
      lines.push(line(it));
    }
    const all = values.slice(1).flat().filter((ns) => ns > 0);
    if (data.target_ns > 0) all.push(data.target_ns);
    const least = all.length ? all.reduce((a, b) => Math.min(a, b)) : 1;
    const most = all.length ? all.reduce((a, b) => Math.max(a, b)) : 10;
    return {
      options: {
        scales: { x: xScale(), y: { distr: 3, range: () => [least / 1.5, most * 1.5] } }, series: lines, bands: areas,
        axes: axes(X, "half-width", logTexts), hooks: { draw: [drawLevel(data.target_ns), drawMarks] },
      },
      values,
    };
  };
  const plain = (key, label, texts) => () => {
    const stated = sortedByNode(visible()).filter((it) => it[key].length);
    return {
      options: { scales: { x: xScale() }, axes: axes(X, label, texts), series: [{}, ...stated.map((it) => line(it))], hooks: { draw: [drawMarks] } },
      values: [series.t, ...stated.map((it) => it[key])],
    };
  };
  const ppb = (plot, ticks) => ticks.map((tick) => (tick === null ? "" : digits(tick) + " ppb"));

  function readout(at) {
    const place = byId("readout");
    if (at === null || at === undefined || series.t[at] === undefined) {
      place.textContent = "\u00a0";
      return;
    }
    const t = series.t[at];
    const told = sortedByNode(visible()).slice(0, 8).map((it) => "node " + it.node + ": " + signed(it.offset[at]) + " ±" + length(it.half_width[at]));
    const shownSpan = charts.length ? charts[0].plot.scales.x : { min: 0, max: 0 };
    const near = data.marks.filter((mark) => Math.abs(mark.t - t) <= (shownSpan.max - shownSpan.min) / 100);
    const faults = near.slice(0, 2).map((mark) => shown(mark.text) + (mark.count > 1 ? " and " + (mark.count - 1) + " more" : ""));
    place.textContent = [seconds(t), ...told, ...faults].join("   ");
  }

  const rebuild = () => charts.forEach((it) => it.build());

  const choices = () => {
    const place = byId("nodes");
    const boxes = [];
    const all = element("button", "all");
    const none = element("button", "none");
    for (const [button, on] of [[all, true], [none, false]]) {
      button.type = "button";
      button.addEventListener("click", () => {
        chosen.clear();
        if (on) nodes.forEach((it) => chosen.add(it.node));
        boxes.forEach((box) => { box.checked = on; });
        rebuild();
      });
    }
    place.append(all, none);
    for (const it of sortedByNode(nodes)) {
      const label = element("label");
      const box = element("input");
      box.type = "checkbox";
      box.checked = chosen.has(it.node);
      box.addEventListener("change", () => {
        if (box.checked) chosen.add(it.node); else chosen.delete(it.node);
        rebuild();
      });
      boxes.push(box);
      const swatch = element("canvas");
      swatch.className = "swatch";
      swatch.setAttribute("aria-hidden", "true");
      swatch.width = 36;
      swatch.height = 20;
      const paint = () => {
        const ctx = swatch.getContext("2d");
        ctx.clearRect(0, 0, 36, 20);
        ctx.strokeStyle = lineColor(placeOf.get(it.node));
        ctx.lineWidth = 5;
        ctx.setLineDash(lineDash(placeOf.get(it.node)).map((part) => 1.6 * part));
        ctx.beginPath();
        ctx.moveTo(0, 10);
        ctx.lineTo(36, 10);
        ctx.stroke();
      };
      paint();
      redraws.push(paint);
      label.append(box, swatch, element("span", nodeName(it.node)));
      place.append(label);
    }
    const select = byId("one-node");
    for (const it of sortedByNode(nodes)) {
      const option = element("option", nodeName(it.node));
      option.value = it.node;
      option.selected = it.node === focus;
      select.append(option);
    }
    select.addEventListener("change", () => {
      focus = Number(select.value);
      rebuild();
    });
  };

  if (data.rounds > 0 && nodes.length) {
    choices();
    chart("offset", "Offsets of the chosen nodes less their trends over time, with 95 % bands", offsets, true);
    chart("one", "One node's offset less its trend over time, with its 95 % band and hard interval", one, true);
    chart("width", "Half-widths of the 95 % intervals over time, on a logarithmic axis", widths, true);
    chart("rate", "Rates of the chosen nodes less their trends over time", plain("rate", "rate less trend", ppb), true);
    chart("error", "Errors of the chosen nodes against the true clocks over time", plain("error", "offset − truth", unitTexts), true);
    byId("zoom-reset").addEventListener("click", resetZoom);
  } else {
    for (const id of ["nodes", "readout"]) if (byId(id)) byId(id).remove();
    for (const id of ["offset", "one", "width"]) if (byId(id)) byId(id).closest("figure").remove();
    byId("zoom-reset").remove();
  }

  /* ----- maps ----- */
  /* Points of cividis (Nuñez, Anderton, Renslow 2018), which people with and without full colour vision see alike. */
  const CIVIDIS = [[0, 32, 77], [0, 60, 110], [69, 85, 108], [107, 109, 114], [141, 134, 120], [180, 162, 112], [219, 192, 91], [255, 234, 70]];
  /* From blue over grey to orange, for values on both sides of zero. */
  const BOTH = [[0, 90, 160], [90, 150, 205], [185, 200, 215], [230, 205, 185], [230, 140, 60], [180, 75, 0]];
  const mixed = (colors, share) => {
    const at = Math.min(Math.max(share, 0), 1) * (colors.length - 1);
    const from = colors[Math.floor(at)];
    const to = colors[Math.ceil(at)];
    return from.map((part, index) => Math.round(part + (to[index] - part) * (at - Math.floor(at))));
  };

  /* A map of rows and columns: canvas, scale, and what is under the pointer. */
  const map = (ids, label, it) => {
    const place = byId(ids.map);
    if (!place) return;
    const canvas = element("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", label);
    place.append(canvas);
    const scale = element("canvas");
    scale.setAttribute("aria-hidden", "true");
    byId(ids.scale).append(scale);
    let geometry = null;
    const draw = () => {
      const { rows, columns, value, both, text, rowNames, columnNames, squares } = it();
      const ratio = devicePixelRatio || 1;
      const left = 58;
      const top = 8;
      const bottom = 38;
      const room = Math.max(180, Math.min(widthOf(place), squares ? 620 : 1e9) - left - 12);
      const cell = squares ? Math.max(1, Math.floor(room / columns)) : room / columns;
      const height = squares ? cell : Math.max(3, Math.min(22, Math.floor(420 / rows)));
      const size = [left + cell * columns + 12, top + height * rows + bottom];
      canvas.width = Math.round(size[0] * ratio);
      canvas.height = Math.round(size[1] * ratio);
      canvas.style.width = size[0] + "px";
      canvas.style.height = size[1] + "px";
      const ctx = canvas.getContext("2d");
      ctx.scale(ratio, ratio);
      const values = [];
      for (let row = 0; row < rows; row++) for (let column = 0; column < columns; column++) {
        const found = value(row, column);
        if (found !== null && found !== undefined) values.push(Math.abs(found));
      }
      values.sort((a, b) => a - b);
      const most = values.length ? values[Math.floor(0.995 * (values.length - 1))] || values[values.length - 1] || 1 : 1;
      ctx.fillStyle = color("panel");
      ctx.fillRect(left, top, cell * columns, height * rows);
      for (let row = 0; row < rows; row++) for (let column = 0; column < columns; column++) {
        const found = value(row, column);
        if (found === null || found === undefined) continue;
        const share = both ? 0.5 + 0.5 * Math.max(-1, Math.min(1, found / most)) : found / most;
        ctx.fillStyle = "rgb(" + mixed(both ? BOTH : CIVIDIS, share).join(",") + ")";
        ctx.fillRect(left + column * cell, top + row * height, Math.max(cell - (cell > 6 ? 1 : 0), 0.75), Math.max(height - (height > 6 ? 1 : 0), 0.75));
      }
      ctx.fillStyle = color("soft");
      ctx.font = axisFont;
      ctx.textAlign = "right";
      ctx.textBaseline = "middle";
      const every = Math.max(1, Math.ceil(14 / height));
      for (let row = 0; row < rows; row += every) ctx.fillText(rowNames(row), left - 6, top + (row + 0.5) * height, left - 8);
      ctx.textAlign = "center";
      ctx.textBaseline = "top";
      const apart = Math.max(1, Math.ceil((squares ? 26 : 90) / cell));
      for (let column = 0; column < columns; column += apart) ctx.fillText(columnNames(column), left + (column + 0.5) * cell, top + rows * height + 5);
      geometry = { left, top, cell, height, rows, columns };
      const wide = Math.min(360, widthOf(byId(ids.scale)));
      scale.width = Math.round(wide * ratio);
      scale.height = Math.round(34 * ratio);
      scale.style.width = wide + "px";
      scale.style.height = "34px";
      const bar = scale.getContext("2d");
      bar.scale(ratio, ratio);
      for (let x = 0; x < wide; x++) {
        bar.fillStyle = "rgb(" + mixed(both ? BOTH : CIVIDIS, x / wide).join(",") + ")";
        bar.fillRect(x, 0, 1, 12);
      }
      bar.fillStyle = color("soft");
      bar.font = axisFont;
      bar.textBaseline = "top";
      bar.textAlign = "left";
      bar.fillText(both ? text(-most) : text(0), 0, 17);
      bar.textAlign = "right";
      bar.fillText("≥ " + text(most), wide, 17);
    };
    canvas.addEventListener("mousemove", (event) => {
      const { left, top, cell, height, rows, columns } = geometry;
      const column = Math.floor((event.offsetX - left) / cell);
      const row = Math.floor((event.offsetY - top) / height);
      const { value, text, under } = it();
      const inside = row >= 0 && column >= 0 && row < rows && column < columns;
      byId(ids.readout).textContent = inside ? under(row, column) + ": " + text(value(row, column)) : "";
    });
    canvas.addEventListener("mouseleave", () => { byId(ids.readout).textContent = ""; });
    byId(ids.choice).addEventListener("change", draw);
    redraws.push(draw);
    draw();
  };

  if (byId("edges")) {
    const ids = data.edges.nodes;
    const each = Math.ceil(ids.length / 256);
    const count = Math.ceil(ids.length / each);
    const rowOf = new Map(ids.map((node, place) => [node, Math.floor(place / each)]));
    const it = (key) => {
      const cells = new Map();
      for (const edge of data.edges.edges) {
        if (edge[key] === null) continue;
        const at = rowOf.get(edge.src) * count + rowOf.get(edge.dst);
        if (!cells.has(at) || Math.abs(edge[key]) > Math.abs(cells.get(at))) cells.set(at, edge[key]);
      }
      return cells;
    };
    const known = { residual_ns: it("residual_ns"), margin_ns: it("margin_ns"), loss: it("loss") };
    const name = (place) => (each === 1 ? String(ids[place]) : ids[place * each] + "–" + ids[Math.min(ids.length, (place + 1) * each) - 1]);
    map({ map: "edges", scale: "edge-scale", readout: "edge-readout", choice: "edge-value" }, "Map of edges between nodes: residual, margin or loss; the table below lists the largest", () => {
      const key = byId("edge-value").value;
      return {
        rows: count, columns: count, squares: true, both: key === "residual_ns", value: (row, column) => known[key].get(row * count + column),
        text: key === "loss" ? percent : key === "residual_ns" ? signed : length, rowNames: name, columnNames: name,
        under: (row, column) => "from node " + name(row) + " to node " + name(column),
      };
    });
  }

  /* ----- traces ----- */
  const traces = data.traces;
  if (traces) {
    const [before, after] = traces.edges;
    if (after && after[0] > 0) {
      chart("broken", "Broken happens-before edges as recorded and after alignment", () => {
        const shownEdges = [before, after].filter(Boolean);
        const names = before ? ["as recorded", "after alignment"] : ["as they are"];
        const most = Math.max(...shownEdges.map(([edges]) => edges));
        const bars = uPlot.paths.bars({ size: [0.5, 120] });
        return {
          options: {
            height: 200, scales: { x: { time: false, range: () => [-0.5, shownEdges.length - 0.5] }, y: { range: () => [0, most * 1.15] } },
            series: [{}, { paths: bars, fill: () => color("grid"), stroke: () => color("line"), points: { show: false } }, { paths: bars, fill: () => lineColor(1), stroke: () => lineColor(1), points: { show: false } }],
            axes: [{ ...axes("", "", null)[0], label: undefined, splits: () => names.map((_, at) => at), values: () => names, grid: { show: false } }, { ...axes("", "edges", null)[1] }],
            cursor: { show: false },
            hooks: { draw: [(plot) => {
              const { ctx } = plot;
              ctx.save();
              ctx.fillStyle = color("ink");
              ctx.font = 13 * devicePixelRatio + "px system-ui, sans-serif";
              ctx.textAlign = "center";
              shownEdges.forEach(([edges, broken], at) => ctx.fillText(broken + " of " + edges, plot.valToPos(at, "x", true), plot.valToPos(edges, "y", true) - 6 * devicePixelRatio));
              ctx.restore();
            }] },
          },
          values: [shownEdges.map((_, at) => at), shownEdges.map(([edges]) => edges), shownEdges.map(([, broken]) => broken)],
        };
      }, false);
    } else {
      byId("edges-figure").remove();
    }
    if (traces.columns.length) {
      map({ map: "late", scale: "late-scale", readout: "late-readout", choice: "late-value" }, "Map of ranks and steps: lateness or time waited; the table below sums it by rank", () => {
        const key = byId("late-value").value;
        return {
          rows: traces.ranks.length, columns: traces.columns.length, squares: false, both: key === "late_ns", value: (row, column) => traces[key][row][column],
          text: key === "late_ns" ? signed : length, rowNames: (row) => "rank " + traces.ranks[row], columnNames: (column) => traces.columns[column].label,
          under: (row, column) => "rank " + traces.ranks[row] + ", " + traces.columns[column].label,
        };
      });
      chart("spread", "Spread of arrivals and time lost, by step", () => {
        const labels = (plot, ticks) => ticks.map((tick) => (Number.isInteger(tick) && traces.columns[tick] ? traces.columns[tick].label : ""));
        const base = axes("steps in order of time", "time", unitTexts);
        base[0].values = labels;
        base[0].space = 90;
        return {
          options: { scales: { x: { time: false } }, axes: base, series: [{}, { stroke: () => lineColor(0), width: 1.5 }, { stroke: () => lineColor(1), width: 1.5, dash: [6, 3] }] },
          values: [traces.columns.map((_, at) => at), traces.columns.map((it) => it.spread_ns), traces.columns.map((it) => it.lost_ns)],
        };
      }, false);
      const select = byId("operation");
      traces.operations.forEach((it, at) => {
        const option = element("option", shown(it.name));
        option.value = at;
        select.append(option);
      });
      chart("arrival", "Arrivals of the ranks at the chosen operation", () => {
        const it = traces.operations[Number(select.value) || 0];
        byId("arrival-last").textContent = shown(it.last);
        const base = axes("rank", "after the first", unitTexts);
        const first = Math.min(...it.ranks.map(([rank]) => rank));
        const last = Math.max(...it.ranks.map(([rank]) => rank));
        base[0].values = (plot, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? String(tick) : ""));
        return {
          options: {
            scales: { x: { time: false, range: () => [first - 0.6, last + 0.6] } }, axes: base,
            series: [{}, { stroke: () => lineColor(0), paths: () => null, points: { show: true, size: 8, fill: () => lineColor(0) } }],
            hooks: { draw: [(plot) => {
              const { ctx } = plot;
              ctx.save();
              ctx.strokeStyle = lineColor(0);
              ctx.lineWidth = 1.5 * devicePixelRatio;
              for (const [rank, ns, width] of it.ranks) {
                const x = plot.valToPos(rank, "x", true);
                ctx.beginPath();
                ctx.moveTo(x, plot.valToPos(ns - (width || 0), "y", true));
                ctx.lineTo(x, plot.valToPos(ns + (width || 0), "y", true));
                ctx.stroke();
              }
              ctx.restore();
            }] },
          },
          values: [it.ranks.map(([rank]) => rank), it.ranks.map(([, ns]) => ns)],
        };
      }, false);
      select.addEventListener("change", rebuild);
    }
  }

  /* ----- the page as a whole ----- */
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
    printing = true;
    document.querySelectorAll("details").forEach((it) => { it.dataset.open = it.open; it.open = true; });
    repaint();
  });
  window.addEventListener("afterprint", () => {
    if (before === undefined || before === null) delete root.dataset.theme; else root.dataset.theme = before;
    printing = false;
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
