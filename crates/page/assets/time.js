"use strict";
/* Charts over time: offsets, one node, widths, rates, errors; which nodes are shown, and what is under the pointer. */
(() => {
  const { axes, byId, chart, charts, color, data, digits, drawLevel, drawMarks, element, length, lineColor, lineDash, rebuild, redraws, resetZoom, seconds, shown, signed, unitTexts, whole } = probeSync;
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
    return { options: { scales: { x: xScale() }, axes: axes(X, "offset minus trend", unitTexts), series: lines, bands: areas, hooks: { draw: [drawMarks] } }, values };
  };
  const sortedByNode = (list) => [...list].sort((a, b) => a.node - b.node);
  let focus = nodes.length ? nodes[0].node : null;
  const one = () => {
    const it = nodes.find((candidate) => candidate.node === focus);
    const none = series.t.map(() => null);
    const edge = { stroke: () => "transparent", width: 0, points: { show: false } };
    const bound = { stroke: () => color("soft"), width: 1, dash: series.t.length > 200 ? [] : [5, 4], points: { show: false } };
    const hardLow = it.hard_low.length ? it.hard_low : none;
    const hardHigh = it.hard_high.length ? it.hard_high : none;
    return {
      options: {
        scales: { x: xScale() }, axes: axes(X, "offset minus trend", unitTexts), hooks: { draw: [drawMarks] },
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
    /* 1, 2 and 5 of each power of ten. */
    const ticks = [];
    for (let power = Math.floor(Math.log10(least / 1.5)); power <= Math.log10(most * 1.5); power++) for (const part of [1, 2, 5]) ticks.push(part * 10 ** power);
    const both = axes(X, "half-width", (plot, at) => at.map((tick) => (tick === null ? "" : length(tick))));
    both[1].splits = () => ticks.filter((tick) => tick >= least / 1.5 && tick <= most * 1.5);
    return {
      options: {
        scales: { x: xScale(), y: { distr: 3, range: () => [least / 1.5, most * 1.5] } }, series: lines, bands: areas,
        axes: both, hooks: { draw: [drawLevel(data.target_ns), drawMarks] },
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
  /* All ticks have one unit. */
  const rates = (plot, ticks) => {
    const [least, unit] = Math.max(...ticks.map(Math.abs), 0) >= 1e3 ? [1e3, "ppm"] : [1, "ppb"];
    return ticks.map((tick) => (tick === null ? "" : digits(tick / least) + " " + unit));
  };

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
    chart("offset", "Offsets of the selected nodes minus their trends over time, with 95 % bands", offsets, readout);
    chart("one", "One node's offset minus its trend over time, with its 95 % band and hard interval", one, readout);
    chart("width", "Half-widths of the 95 % intervals over time, on a logarithmic axis", widths, readout);
    chart("rate", "Rates of the selected nodes minus their trends over time", plain("rate", "rate minus trend", rates), readout);
    chart("error", "Errors of the selected nodes relative to the true clocks over time", plain("error", "offset − truth", unitTexts), readout);
    byId("zoom-reset").addEventListener("click", resetZoom);
  } else {
    for (const id of ["nodes", "readout"]) if (byId(id)) byId(id).remove();
    for (const id of ["offset", "one", "width"]) if (byId(id)) byId(id).closest("figure").remove();
    byId("zoom-reset").remove();
  }
})();
