
// Charts: lines with bands in small multiples, drawn as SVG in the colours of the page's theme, from
// the JSON that chart_json.py describes.
normlab.chart = (() => {
  "use strict";
  const NAMESPACE = "http://www.w3.org/2000/svg";
  const [GAP, BELOW, RIGHT, SIZE] = [24, 40, 10, 11]; // between plots, of an axis, beside all, of text
  const LETTER = 6.4; // width of a letter of that size, about
  const MARKS = {
    circle: "M-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0-6.4 0",
    square: "M-2.9-2.9h5.8v5.8h-5.8z",
    "triangle-up": "M0-3.8 3.6 2.8h-7.2z",
    diamond: "M0-4.2 3.6 0 0 4.2-3.6 0z",
    "triangle-down": "M0 3.8-3.6-2.8h7.2z",
    cross: "M-1.3-3.8h2.6v2.5h2.5v2.6h-2.5v2.5h-2.6v-2.5h-2.5v-2.6h2.5z",
    ended: "M-3.9-3.9 3.9 3.9M-3.9 3.9 3.9-3.9",
  };

  function make(name, attributes, ...children) {
    const element = document.createElementNS(NAMESPACE, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }
  const words = (text, attributes) => make("text", { "font-size": SIZE, fill: "var(--quiet)", ...attributes }, text);
  const at = (x, y) => `${x.toFixed(1)},${y.toFixed(1)}`;

  // Scales ----------------------------------------------------------------------------------------
  // Returns the step between about so many round numbers: 1, 2 or 5 times a power of ten.
  function stepOf(low, high, count) {
    const rough = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    const share = rough / power;
    return power * (share >= Math.sqrt(50) ? 10 : share >= Math.sqrt(10) ? 5 : share >= Math.SQRT2 ? 2 : 1);
  }
  function round(low, high, count) {
    const step = stepOf(low, high, count);
    const found = [];
    for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9 * step; n += 1) {
      found.push(Number((n * step).toPrecision(12)));
    }
    return found;
  }

  // Returns the marks of a logarithmic axis, from the power of ten below to that above.
  function powers(low, high) {
    const [, marks] = [[6, [1, 2, 3, 4, 5, 6, 7, 8, 9]], [30, [1, 2, 3, 5]], [300, [1, 3]], [Infinity, [1]]].find(([below]) => high / low < below);
    const found = [];
    for (let n = Math.floor(Math.log10(low)); n <= Math.ceil(Math.log10(high)); n += 1) {
      found.push(...marks.map((mark) => Number(`${mark}e${n}`)));
    }
    return found;
  }

  // Returns the axis from `start` to `end`: `place` maps a value to pixels, `value` maps back.
  function scale(low, high, { log, ticks, nice, count, pad = 0 }, start, end) {
    if (low === high) {
      [low, high] = log ? [low / 1.1, high * 1.1] : [low - (Math.abs(low) / 10 || 1), high + (Math.abs(high) / 10 || 1)];
    }
    if (nice && !log) {
      const step = stepOf(low, high, count);
      [low, high] = [Math.floor(low / step + 1e-9) * step, Math.ceil(high / step - 1e-9) * step];
    }
    const flat = log ? Math.log : (value) => value;
    const inner = [start + Math.sign(end - start) * pad, end - Math.sign(end - start) * pad];
    const place = (value) => inner[0] + ((flat(value) - flat(low)) / (flat(high) - flat(low))) * (inner[1] - inner[0]);
    const given = (ticks ?? (log ? powers(low, high) : [])).filter((tick) => tick >= low && tick <= high);
    const value = (at) => {
      const share = (at - inner[0]) / (inner[1] - inner[0]);
      const level = flat(low) + share * (flat(high) - flat(low));
      return log ? Math.exp(level) : level;
    };
    return { place, value, ticks: given.length > (ticks ? 1 : 2) ? given : round(low, high, count) };
  }

  // Numbers ---------------------------------------------------------------------------------------
  function short(value) {
    const size = Math.abs(value);
    const digits = size && (size < 1e-3 || size >= 1e6)
      ? value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e")
      : String(Number(value.toPrecision(4)));
    return digits.replaceAll("-", "\u2212");
  }
  const whole = (value) => value.toLocaleString("en", { maximumSignificantDigits: 10 });

  // Returns the marks that have room side by side.
  function apart(ticks, place, write) {
    let end = -Infinity;
    return ticks.filter((tick) => {
      const half = (write(tick).length * LETTER) / 2;
      if (place(tick) - half < end + 4) return false;
      end = place(tick) + half;
      return true;
    });
  }

  // A plot ----------------------------------------------------------------------------------------
  function axes(plot, { x, y, width, height, across, unit, edge, write, first }) {
    const upright = make("g", { class: "axis" });
    for (const tick of y.ticks) {
      const level = y.place(tick);
      upright.append(make("path", { d: `M0 ${level.toFixed(1)}H${width}`, stroke: "var(--grid)" }));
      if (first) upright.append(words(short(tick), { x: -6, y: (level + 4).toFixed(1), "text-anchor": "end" }));
    }
    if (first && unit) {
      upright.append(words(unit, { transform: `translate(${-edge} ${height / 2}) rotate(-90)`, "text-anchor": "middle" }));
    }
    const level = make("g", { class: "axis" }, make("path", { d: `M0 ${height}H${width}`, stroke: "var(--quiet)", "stroke-width": 0.8 }));
    for (const tick of apart(x.ticks, x.place, write)) {
      const place = x.place(tick);
      const last = width + RIGHT - (write(tick).length * LETTER) / 2; // a wider label would be cut off
      level.append(make("path", { d: `M${place.toFixed(1)} ${height}v4`, stroke: "var(--quiet)" }));
      level.append(words(write(tick), { x: Math.min(place, last).toFixed(1), y: height + 16, "text-anchor": "middle" }));
    }
    level.append(words(across, { x: width / 2, y: height + 32, "text-anchor": "middle" }));
    plot.append(upright, level);
  }

  // Draws a line with its band; where the line is smoothed, the original is drawn faintly behind it.
  function drawLine(plot, points, look, { x, y, marked, joined }) {
    const color = `var(--hue-${look.hue})`;
    const places = points.map((point) => at(x.place(point.x), y.place(point.mean)));
    const several = points.filter(({ n }) => n > 1);
    for (const point of joined && several.length > 1 ? [] : several) { // a band of no width would not be seen
      const place = x.place(point.x).toFixed(1);
      plot.append(make("path", { class: "band", d: `M${place} ${y.place(point.high).toFixed(1)}V${y.place(point.low).toFixed(1)}`, stroke: color, "stroke-width": 2, opacity: 0.45 }));
    }
    if (joined && several.length > 1) {
      const above = several.map((point) => at(x.place(point.x), y.place(point.high)));
      const below = several.map((point) => at(x.place(point.x), y.place(point.low))).reverse();
      plot.append(make("path", { class: "band", d: `M${[...above, ...below].join("L")}Z`, fill: color, opacity: 0.13 }));
    }
    if (points.some(({ raw }) => raw)) {
      const raw = points.map((point) => at(x.place(point.x), y.place((point.raw ?? point).mean)));
      plot.append(make("path", { class: "raw", d: `M${raw.join("L")}`, fill: "none", stroke: color, opacity: 0.3 }));
    }
    const stroke = { stroke: color, "stroke-width": 1.8, "stroke-dasharray": look.dashes, "stroke-linejoin": "round" };
    if (joined) plot.append(make("path", { class: "line", d: `M${places.join("L")}`, fill: "none", ...stroke }));
    for (const place of marked ? places : []) {
      plot.append(make("path", { d: MARKS[look.mark], transform: `translate(${place})`, fill: color }));
    }
  }

  function drawEnds(plot, points, looks, { x, y }) {
    for (const point of points) {
      const place = at(x.place(point.x), y.place(point.mean));
      const stroke = { stroke: `var(--hue-${looks.get(point.row).hue})`, "stroke-width": 2.4, fill: "none" };
      plot.append(make("path", { class: "ended", d: MARKS.ended, transform: `translate(${place})`, ...stroke }));
    }
  }

  // The pointer -----------------------------------------------------------------------------------
  let tip = null;

  function show(event, lines) {
    tip ??= document.body.appendChild(Object.assign(document.createElement("div"), { className: "tip" }));
    const table = document.createElement("table");
    for (const texts of lines) {
      const row = table.insertRow();
      for (const text of texts) row.insertCell().textContent = text;
    }
    tip.replaceChildren(table);
    tip.hidden = false;
    const [wide, high] = [tip.offsetWidth, tip.offsetHeight];
    const [left, top] = [event.clientX + 14, event.clientY + 14];
    tip.style.left = `${Math.max(4, left + wide > innerWidth ? event.clientX - wide - 14 : left)}px`;
    tip.style.top = `${Math.max(4, top + high > innerHeight ? event.clientY - high - 14 : top)}px`;
  }

  // Shows the values of the point nearest to the pointer and rings it.
  function follow(svg, plots, told) {
    const ring = make("circle", { r: 5, "stroke-width": 2, stroke: "var(--paper)", visibility: "hidden", "pointer-events": "none" });
    svg.append(ring);
    const leave = () => {
      ring.setAttribute("visibility", "hidden");
      if (tip) tip.hidden = true;
    };
    const move = (event) => {
      const corner = svg.getBoundingClientRect();
      const [left, top] = [event.clientX - corner.left, event.clientY - corner.top];
      const plot = plots.find((each) => left >= each.left - 8 && left <= each.left + each.width + 8 && top >= each.top - 8 && top <= each.top + each.height + 8);
      if (!plot) return leave();
      const far = ({ left: x, top: y }) => Math.hypot(x - left, y - top);
      if (!plot.points.length) return leave();
      const near = plot.points.reduce((best, each) => (far(each) < far(best) ? each : best));
      ring.setAttribute("cx", near.left);
      ring.setAttribute("cy", near.top);
      ring.setAttribute("fill", near.color);
      ring.setAttribute("visibility", "visible");
      show(event, told(near.point));
    };
    for (const name of ["pointermove", "pointerdown"]) svg.addEventListener(name, move);
    svg.addEventListener("pointerleave", leave);
  }

  // Zooms in on the steps across which the pointer is dragged. `zoom` takes [first, last], or null.
  function drag(svg, plots, zoom) {
    const area = make("rect", { class: "selection", fill: "var(--hue-0)", opacity: 0.15, "pointer-events": "none" });
    let [plot, start] = [null, 0];
    const left = (event) => event.clientX - svg.getBoundingClientRect().left;
    const within = (place) => Math.min(Math.max(place, plot.left), plot.left + plot.width);
    const stop = () => {
      plot = null;
      area.remove();
    };
    svg.addEventListener("pointerdown", (event) => {
      const top = event.clientY - svg.getBoundingClientRect().top;
      plot = plots.find((each) => left(event) >= each.left && left(event) <= each.left + each.width && top >= each.top && top <= each.top + each.height);
      if (!plot || event.button) return stop();
      start = left(event);
      svg.setPointerCapture(event.pointerId);
      for (const [key, value] of Object.entries({ x: start, y: plot.top, width: 0, height: plot.height })) area.setAttribute(key, value);
      svg.append(area);
    });
    svg.addEventListener("pointermove", (event) => {
      if (!plot) return;
      const end = within(left(event));
      area.setAttribute("x", Math.min(start, end));
      area.setAttribute("width", Math.abs(end - start));
    });
    svg.addEventListener("pointerup", (event) => {
      if (!plot) return;
      const ends = [start, within(left(event))].sort((a, b) => a - b);
      const range = ends.map((place) => plot.x.value(place - plot.left));
      stop();
      if (ends[1] - ends[0] > 6) zoom(range);
    });
    svg.addEventListener("pointercancel", stop);
    svg.addEventListener("dblclick", () => zoom(null));
  }

  // Draws the points of a panel into a place. `looks` maps settings to line styles, `told` returns the
  // tooltip of a point, `log` says whether the vertical axis is logarithmic, `range` is the zoomed part
  // of the horizontal axis or null, and `zoom` changes it.
  function draw(place, panel, values, { looks, told, log, range, zoom }) {
    const room = place.clientWidth;
    const inside = ({ x }) => !range || (x >= range[0] && x <= range[1]);
    const seen = values.some(inside) ? values.filter(inside) : values;
    const ys = seen.flatMap((point) => [point, point.raw ?? point]).flatMap(({ low, mean, high }) => [low ?? mean, mean, high ?? mean]);
    const upright = (height) => scale(Math.min(...ys), Math.max(...ys), { log, nice: true, count: 5, pad: log ? 4 : 0 }, height, 0);
    const edge = Math.max(...upright(200).ticks.map((tick) => short(tick).length)) * LETTER + 14; // beyond the widest tick
    const gutter = Math.ceil(edge) + (panel.unit ? SIZE + 2 : 0);
    const several = panel.facets.join("") !== "";
    const facets = panel.facets.filter((facet) => values.some((value) => value.facet === facet));
    const fit = Math.floor((room - gutter + GAP) / 264);
    const columns = several ? Math.max(1, Math.min(facets.length, fit)) : 1;
    const width = Math.max(120, Math.floor((room - gutter - RIGHT - (columns - 1) * GAP) / columns));
    const height = columns > 2 || room < 420 ? 170 : 200;
    const head = several ? 22 : 8;
    const xs = values.map((value) => value.x);
    const given = panel.ticks;
    const write = panel.names ? (tick) => panel.names[given.indexOf(tick)] : whole;
    const y = upright(height);
    const tall = Math.ceil(facets.length / columns) * (head + height + BELOW);
    const wide = gutter + columns * (width + GAP) - GAP + RIGHT;
    const svg = make("svg", { role: "img", "aria-label": panel.title, viewBox: `0 0 ${wide} ${tall}`, width: wide, height: tall });
    const plots = facets.map((facet, number) => {
      const left = gutter + (number % columns) * (width + GAP);
      const top = Math.floor(number / columns) * (head + height + BELOW) + head;
      const plot = make("g", { transform: `translate(${left} ${top})` });
      const here = values.filter((value) => value.facet === facet);
      const reach = given ? xs : here.map((value) => value.x); // runs of one facet may train for longer
      const [from, to] = range ?? [given ? Math.min(...xs) : 0, Math.max(...reach)];
      const x = scale(from, to, { log: panel.log.x, ticks: given, count: 4, pad: panel.names ? width / (2 * given.length) : given ? 10 : 0 }, 0, width);
      if (several) plot.append(words(facet || "\u2013", { y: -8, "font-size": 12, fill: "var(--ink)" }));
      const clip = `${panel.id}-clip-${number}`;
      const drawn = make("g", range ? { "clip-path": `url(#${clip})` } : {});
      plot.append(make("clipPath", { id: clip }, make("rect", { width, height })));
      axes(plot, { x, y, width, height, across: panel.across, unit: panel.unit, edge, write, first: number % columns === 0 });
      const lines = new Map();
      for (const value of here.filter(({ n }) => n)) lines.set(value.row, [...(lines.get(value.row) ?? []), value]);
      for (const [row, points] of lines) drawLine(drawn, points, looks.get(row), { x, y, marked: panel.marked, joined: panel.joined });
      drawEnds(drawn, here.filter(({ n }) => !n), looks, { x, y });
      plot.append(drawn);
      svg.append(plot);
      const points = here.filter(inside).map((point) => ({
        point, left: left + x.place(point.x), top: top + y.place(point.mean), color: `var(--hue-${looks.get(point.row).hue})`,
      }));
      return { left, top, width, height, points, x };
    });
    follow(svg, plots, told);
    drag(svg, plots, zoom);
    place.replaceChildren(svg);
    if (tip) tip.hidden = true;
  }

  return draw;
})();
