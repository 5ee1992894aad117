"use strict";
/* Maps of edges and of ranks and steps, and the charts of traces. */
(() => {
  const { axes, axisFont, byId, chart, color, data, element, length, lineColor, percent, rebuild, redraws, shown, signed, unitTexts, widthOf } = probeSync;
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
      const apart = Math.max(1, Math.ceil((8 * columnNames(columns - 1).length + 12) / cell));
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
        const names = before ? ["as recorded", "after alignment"] : ["unchanged"];
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
      });
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
      });
      const select = byId("operation");
      traces.operations.forEach((it, at) => {
        const option = element("option", shown(it.name));
        option.value = at;
        select.append(option);
      });
      chart("arrival", "Arrivals of the ranks at the selected operation", () => {
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
      });
      select.addEventListener("change", rebuild);
    }
  }
})();
