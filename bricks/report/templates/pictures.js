// Unfolds the data of a model's pictures, and draws them when they are opened.
// Text only ever becomes text: nothing that a model calls itself is taken for markup.
const data = JSON.parse(document.getElementById("data").textContent);
const specs = JSON.parse(document.getElementById("specs").textContent);
const SVG = "http://www.w3.org/2000/svg";
const OTHERS = "all others";

const seconds = (s) => {
  for (const [unit, factor] of [["s", 1], ["ms", 1e3], ["µs", 1e6]]) {
    const value = s * factor;
    if (value >= 1) return `${value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} ${unit}`;
  }
  return `${(s * 1e9).toFixed(0)} ns`;
};
const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;

// A model's parts, with all that follows from what a brick does and how long it takes.
function partsOf() {
  const total = data.parts.reduce((sum, part) => sum + part[2], 0);
  return data.parts.map(([index, occurrences, all, predicted]) => {
    const [brick, operator, shapes, flops, bytes, roof] = data.bricks[index];
    const latency = occurrences ? all / occurrences : 0;
    const rates = [];
    if (latency && flops !== null) rates.push(`${(flops / latency / 1e9).toPrecision(3)} GFLOP/s`);
    if (latency) rates.push(`${(bytes / latency / 1e9).toPrecision(3)} GB/s`);
    return {
      index, occurrences, all, latencyS: latency, share: total ? all / total : 0, flops, bytes,
      brick: brick.slice(0, 11), operator, shapes,
      color: data.colors.includes(operator) ? operator : OTHERS,
      latency: seconds(latency) + (predicted ? " (predicted)" : ""),
      rates: rates.join(", ") || "–",
      peak: roof !== null && latency ? percent(roof / latency, 0) : "–",
    };
  });
}

// Colours mean the same in all pictures.
function colored(spec) {
  const copy = structuredClone(spec);
  const domain = [...data.colors, OTHERS];
  for (const layer of copy.layer || [copy]) {
    const scale = layer.encoding && layer.encoding.color && layer.encoding.color.scale;
    if (scale && scale.range) scale.domain = domain;
  }
  return copy;
}

function draw(element, spec, datasets) {
  if (spec.usermeta) {
    const { step, by } = spec.usermeta;
    spec = { ...spec, height: step * new Set(datasets.rows.map((row) => row[by])).size };
  }
  const options = { actions: false, renderer: "svg" };
  return window.vegaEmbed(element, { ...spec, datasets }, options).catch((error) => {
    element.textContent = `This picture cannot be drawn: ${error.message}`;
    console.error(error);
  });
}

function drawModel(details) {
  const parts = partsOf();
  const byIndex = new Map(parts.map((part) => [part.index, part]));
  const charts = { breakdown, timeline, roofline };
  for (const element of details.querySelectorAll(".chart")) {
    const name = element.dataset.chart;
    draw(element, colored(specs[name]), charts[name](parts, byIndex));
  }
  drawGraph(details.querySelector(".graph"), byIndex);
}

function breakdown(parts) {
  const groups = new Map();
  for (const part of parts) {
    const group = groups.get(part.operator)
      || { operator: part.operator, color: part.color, all: 0, occurrences: 0, share: 0 };
    group.all += part.all; group.occurrences += part.occurrences; group.share += part.share;
    groups.set(part.operator, group);
  }
  const rows = [...groups.values()].sort((a, b) => b.all - a.all);
  for (const row of rows) {
    row.ms = row.all * 1e3; row.latency = seconds(row.all); row.text = percent(row.share);
  }
  return { rows };
}

function timeline(parts, byIndex) {
  let now = 0;
  const rows = [];
  data.occurrences.forEach(([index], number) => {
    const part = byIndex.get(index);
    if (!part) return;
    const { brick, operator, shapes, color, latency, rates, peak } = part;
    rows.push({
      number, lane: operator, start_ms: now * 1e3, end_ms: (now + part.latencyS) * 1e3,
      brick, operator, shapes, color, latency, rates, peak,
    });
    now += part.latencyS;
  });
  const busy = new Map();
  for (const row of rows) busy.set(row.lane, (busy.get(row.lane) || 0) + row.end_ms - row.start_ms);
  return { rows: rows.sort((a, b) => busy.get(b.lane) - busy.get(a.lane) || a.number - b.number) };
}

function roofline(parts) {
  const rows = parts.filter((part) => part.flops && part.bytes && part.latencyS).map((part) => ({
    ...part, intensity: part.flops / part.bytes, gflops: part.flops / part.latencyS / 1e9,
  }));
  // One roof for what comes from memory, one for what the fastest cache holds.
  const [flopsPeak, memoryPeak, cachePeak] = data.peaks;
  const roof = [];
  for (const bytesPeak of new Set([memoryPeak, cachePeak])) {
    if (!flopsPeak || !bytesPeak || !rows.length) continue;
    const knee = flopsPeak / bytesPeak;
    const intensities = rows.map((row) => row.intensity);
    const low = Math.min(...intensities, knee / 10);
    const high = Math.max(...intensities, knee * 10);
    for (const intensity of [low, knee, high]) {
      const gflops = Math.min(flopsPeak, intensity * bytesPeak) / 1e9;
      roof.push({ intensity, gflops, level: bytesPeak });
    }
  }
  return { rows, roof };
}

function node(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// A row for each occurrence, in execution order; lanes as where histories of versions are drawn.
function drawGraph(box, byIndex) {
  const step = 17, wide = 13, bar = 90;
  const lanes = Math.max(...data.occurrences.map((occurrence) => occurrence[1]), 0) + 1;
  const left = lanes * wide + 8;
  const height = data.occurrences.length * step + 8;
  const hottest = Math.max(...[...byIndex.values()].map((part) => part.latencyS), 1e-12);
  const x = (lane) => lane * wide + wide / 2 + 2;
  const y = (row) => row * step + step / 2 + 4;
  const label = "Graph: a row for each occurrence, in execution order";
  const svg = node("svg", { width: left + bar + 700, height, role: "img", "aria-label": label });
  const lines = svg.appendChild(node("g", {}));
  data.occurrences.forEach(([index, lane, needed], row) => {
    for (const producer of needed) {
      const from = x(data.occurrences[producer][1]), to = x(lane);
      const bend = from === to ? "" : `L${from},${y(row) - step * 0.8}`;
      lines.appendChild(node("path", { d: `M${from},${y(producer)}${bend}L${to},${y(row)}` }));
    }
    const part = byIndex.get(index);
    const heat = part ? Math.sqrt(part.latencyS / hottest) : 0;
    const fill = part ? `color-mix(in oklab, var(--hot) ${Math.round(100 * heat)}%, var(--cool))` : "none";
    const group = svg.appendChild(node("g", {}));
    group.appendChild(node("title", {}, part
      ? `${row}: ${part.operator} ${part.shapes}, ${part.brick}, ${part.latency}, ${part.rates}`
      : `${row}: no measurement`));
    const square = group.appendChild(node("rect", { x: x(lane) - 5, y: y(row) - 5, width: 10, height: 10, rx: 2 }));
    square.style.fill = fill;
    if (part) {
      const length = Math.max(1, bar * part.latencyS / hottest);
      const stripe = group.appendChild(node("rect", { x: left, y: y(row) - 4, width: length, height: 8 }));
      stripe.style.fill = fill;
    }
    const text = part ? `${part.operator}` : "no measurement";
    const label = group.appendChild(node("text", { x: left + bar + 8, y: y(row) + 4 }, text));
    if (part) {
      label.appendChild(node("tspan", { class: "aside", dx: 8 }, `${part.latency}  ${part.shapes}`));
    }
  });
  box.replaceChildren(svg);
}

for (const details of document.querySelectorAll("details.model")) {
  details.addEventListener("toggle", () => {
    if (details.open && !details.dataset.drawn) {
      details.dataset.drawn = "yes";
      drawModel(details);
    }
  });
  if (details.open) details.dispatchEvent(new Event("toggle"));
}
