// The page's own script: theme, filters, and charts, which are drawn when they come into view.
(() => {
  "use strict";
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const button = document.getElementById("theme");

  function showTheme() {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
    button.setAttribute("aria-pressed", String(isDark()));
  }
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("normlab-theme", root.dataset.theme);
    } catch { /* some browsers keep nothing for pages opened from disk */ }
    showTheme();
  });
  dark.addEventListener("change", showTheme);
  showTheme();

  // Filters -------------------------------------------------------------------------------------
  let filters = null;
  const boxes = (name) => [...(filters?.querySelectorAll(`input[name="${name}"]`) ?? [])];
  const chosen = (name) => {
    const all = boxes(name);
    return all.length ? new Set(all.filter((box) => box.checked).map((box) => box.value)) : null;
  };
  let rows = chosen("row");
  let points = chosen("at");
  const shows = (row, at) => (!rows || row === undefined || rows.has(row)) && (!points || points.has(at));

  function hide() {
    rows = chosen("row");
    points = chosen("at");
    for (const element of document.querySelectorAll("[data-at]")) {
      element.hidden = !shows(element.dataset.row, element.dataset.at);
    }
    const all = boxes("row").length + boxes("at").length;
    const on = (rows?.size ?? 0) + (points?.size ?? 0);
    filters.querySelector(".shown").textContent = on === all ? "" : `${all - on} hidden`;
    filters.classList.toggle("tall", filters.offsetHeight > 0.4 * innerHeight); // it would cover the page
  }
  function filter() {
    hide();
    redraw();
  }
  document.addEventListener("change", ({ target }) => {
    if (!filters?.contains(target)) return;
    normlab.keep(filters);
    filter();
  });
  document.addEventListener("submit", (event) => event.preventDefault());

  // Charts --------------------------------------------------------------------------------------
  const key = (row, at) => JSON.stringify([row, at]);
  let looks = new Map();
  let names = {}; // of grid points, in words
  let figures = [];

  // Returns the points of a panel that the filters leave, one object per point.
  function visible(panel) {
    const found = [];
    for (const line of panel.series) {
      line.x.forEach((x, i) => {
        const at = Array.isArray(line.at) ? line.at[i] : line.at;
        if (!shows(line.row, at)) return;
        const mean = line.mean[i];
        const [low, high] = [line.low?.[i] ?? mean, line.high?.[i] ?? mean];
        const n = Array.isArray(line.n) ? line.n[i] : line.n;
        found.push({ row: line.row, facet: line.facet, at: at || "–", x, mean, low, high, n });
      });
    }
    for (const end of panel.ended) {
      if (shows(end.row, end.at)) found.push({ ...end, at: end.at || "–", n: 0 });
    }
    return found;
  }

  const exact = (number) => number.toLocaleString("en", { maximumSignificantDigits: 6 });

  // Returns the points with their lines smoothed: an exponential moving average that weights each
  // former point by `share`, corrected for its start. `raw` is the point as it was logged.
  function smoothed(points, share) {
    const sums = new Map();
    return points.map((point) => {
      if (!point.n) return point;
      const line = key(point.row, point.facet);
      const sum = sums.get(line) ?? { weight: 0, mean: 0, low: 0, high: 0 };
      sum.weight = share * sum.weight + 1 - share;
      for (const name of ["mean", "low", "high"]) sum[name] = share * sum[name] + (1 - share) * point[name];
      sums.set(line, sum);
      const { weight, mean, low, high } = sum;
      return { ...point, mean: mean / weight, low: low / weight, high: high / weight, raw: point };
    });
  }

  // Returns the tooltip of a point: for each line, a name and a text.
  const told = (panel) => ({ raw, ...shown }) => tip(panel, raw ?? shown, raw ? [["smoothed", exact(shown.mean)]] : []);
  const tip = (panel, value, more) => [
    ["setting", value.row],
    ["at", names[value.at] ?? value.at],
    ...(panel.names ? [] : [[panel.across, value.x.toLocaleString("en")]]),
    ...(value.n ? [["mean", exact(value.mean)]] : [["diverged", `seed ${value.seed}`]]),
    ...more,
    ...(value.n > 1 ? [["lowest", exact(value.low)], ["highest", exact(value.high)]] : []),
    ...(value.n ? [["seeds", String(value.n)]] : []),
  ];

  function draw(figure) {
    figure.stale = false;
    const place = figure.element.querySelector(".plot");
    const { panel, range } = figure;
    const share = panel.ticks ? 0 : Number(filters?.elements.smoothing?.value ?? 0);
    const values = share ? smoothed(visible(panel), share) : visible(panel);
    const positive = values.every((point) => (point.raw ?? point).low > 0 || (!point.n && point.mean > 0));
    const log = { log: positive, linear: false }[filters?.elements.axis?.value] ?? panel.log.y;
    const zoom = (to) => zoomed(figure, to);
    if (values.length) {
      normlab.chart(place, panel, values, { looks, told: told(panel), log, range, zoom });
    } else {
      const none = document.createElement("p");
      none.className = "none";
      none.textContent = "None of the settings shown has this metric.";
      place.replaceChildren(none);
    }
    figure.element.dataset.lines = new Set(values.map((value) => key(value.row, value.facet))).size;
    if (figure.element.querySelector(".values").open) list(figure);
  }

  // Zoom ----------------------------------------------------------------------------------------
  // Shows the part [first, last] of a chart's horizontal axis, or all of it.
  function zoomed(figure, range) {
    figure.range = range;
    figure.element.querySelector(".whole").hidden = !range;
    draw(figure);
  }

  // Zooms by keys: + and - about the middle, arrows to the sides, 0 or Escape to all.
  function press(figure, event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const xs = visible(figure.panel).map(({ x }) => x);
    const all = [figure.panel.ticks ? Math.min(...xs) : 0, Math.max(...xs)];
    const [first, last] = figure.range ?? all;
    const quarter = (last - first) / 4;
    const moves = {
      "+": [quarter, -quarter], "=": [quarter, -quarter], "-": [-2 * quarter, 2 * quarter],
      ArrowLeft: [-quarter, -quarter], ArrowRight: [quarter, quarter],
    };
    const ends = { 0: true, Escape: true }[event.key];
    const move = moves[event.key];
    if (!xs.length || !(ends || move) || (!figure.range && event.key !== "+" && event.key !== "=")) return;
    event.preventDefault();
    if (ends) return zoomed(figure, null);
    const slide = move[0] === move[1] ? Math.min(Math.max(move[0], all[0] - first), all[1] - last) : 0;
    const to = slide || move[0] === move[1]
      ? [first + slide, last + slide]
      : [Math.max(first + move[0], all[0]), Math.min(last + move[1], all[1])];
    zoomed(figure, to[0] <= all[0] && to[1] >= all[1] ? null : to);
  }

  function ask(figure) {
    if (figure.stale && figure.near) draw(figure);
  }
  function redraw() {
    for (const figure of figures) {
      figure.stale = true;
      ask(figure);
    }
  }

  // Shows the values of a chart as a table: one row per x, one column per line.
  function list(figure) {
    const lines = new Map();
    const places = new Map();
    for (const value of visible(figure.panel)) {
      if (!value.n) continue;
      const name = [value.row, value.facet].filter(Boolean).join(" ");
      lines.set(name, true);
      const text = value.n > 1 ? `${value.mean} (${value.low} to ${value.high})` : `${value.mean}`;
      places.set(value.x, { ...places.get(value.x), [name]: text });
    }
    const names = [...lines.keys()];
    const table = document.createElement("table");
    const line = (into, cells, tag) => {
      const row = into.insertRow();
      cells.forEach((text, i) => {
        const cell = document.createElement(i ? tag : "th");
        cell.textContent = text;
        cell.className = "number";
        if (!i || tag === "th") cell.scope = tag === "th" ? "col" : "row";
        row.append(cell);
      });
    };
    line(table.createTHead(), [figure.panel.across, ...names], "th");
    const body = table.createTBody();
    for (const x of [...places.keys()].sort((a, b) => a - b)) {
      line(body, [x.toLocaleString("en"), ...names.map((name) => places.get(x)[name] ?? "")], "td");
    }
    figure.element.querySelector(".values .scroll").replaceChildren(table);
  }

  // Returns the points of a chart that are shown, one row per point.
  function lines(figure) {
    const rows = visible(figure.panel).filter(({ n }) => n).map((value) =>
      [value.row, names[value.at] ?? value.at, value.x, value.mean, value.low, value.high, value.n].map(String));
    return [["setting", "at", figure.panel.across, "mean", "lowest", "highest", "seeds"], ...rows];
  }

  function picture(figure) {
    figure.near = true;
    ask(figure);
    return normlab.drawing(figure.element.querySelector(".plot svg"));
  }

  function files(caption, buttons) {
    const place = document.createElement("span");
    place.className = "files";
    place.append(...buttons);
    caption.append(place);
  }

  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const figure = figures.find(({ element }) => element === entry.target);
      if (!figure) continue;
      figure.near = entry.isIntersecting;
      ask(figure);
    }
  }, { rootMargin: "400px" });

  function made(panel) {
    const element = document.getElementById(panel.id);
    const figure = { panel, element, near: false, stale: true, range: null };
    const whole = document.createElement("button");
    Object.assign(whole, { type: "button", className: "file whole", textContent: "Reset zoom", hidden: true });
    whole.addEventListener("click", () => zoomed(figure, null));
    const plot = element.querySelector(".plot");
    plot.tabIndex = 0;
    plot.setAttribute("role", "group");
    plot.setAttribute("aria-label", `${panel.title}: + and - zoom, arrows move, 0 resets`);
    plot.addEventListener("keydown", (event) => press(figure, event));
    files(element.querySelector("figcaption"), [
      normlab.download(panel.title, "svg", () => picture(figure)),
      normlab.download(panel.title, "csv", () => normlab.csv(lines(figure))),
      whole,
    ]);
    element.querySelector(".values").addEventListener("toggle", (event) => {
      if (event.target.open) list(figure);
    });
    observer.observe(element);
    return figure;
  }

  // Reads the page's data; a chart whose data are unchanged stays.
  normlab.read = () => {
    const source = document.getElementById("charts");
    const content = source ? JSON.parse(source.textContent) : { panels: [], looks: [] };
    names = content.points ?? {};
    looks = new Map(content.looks.map((look) => [look.name, look]));
    const form = document.getElementById("filters");
    if (form && form !== filters) normlab.recall(form);
    filters = form;
    const former = figures;
    figures = content.panels.map((panel) => {
      const known = former.find(({ element }) => element.id === panel.id && element.isConnected);
      if (!known) return made(panel);
      known.stale ||= JSON.stringify(known.panel) !== JSON.stringify(panel);
      known.panel = panel;
      return known;
    });
    for (const { element } of former) {
      if (!element.isConnected) observer.unobserve(element);
    }
    if (!filters) return;
    hide();
    figures.forEach(ask);
  };
  normlab.read();
  addEventListener("beforeprint", () => {
    for (const figure of figures) {
      figure.near = true;
      ask(figure);
    }
  });
  let width = document.body.clientWidth;
  let waiting = 0;
  new ResizeObserver(() => {
    if (document.body.clientWidth === width) return; // the height changes with every chart
    width = document.body.clientWidth;
    clearTimeout(waiting);
    waiting = setTimeout(redraw, 150);
  }).observe(document.body);
})();
