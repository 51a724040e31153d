
// Returns a table as an SVG of plain text: `rows` have a `kind` (head, group or none) and `cells`,
// each with its `lines` and whether it is aligned to the `right`.
normlab.drawn = (title, rows) => {
  "use strict";
  const [SIZE, LINE, GAP, EDGE, LETTERS] = [13, 17, 20, 16, 56];
  const pen = document.createElement("canvas").getContext("2d");
  const wide = (text, bold) => {
    pen.font = `${bold ? "600 " : ""}${SIZE}px ${getComputedStyle(document.body).fontFamily}`;
    return pen.measureText(text).width;
  };
  const folded = (text) => text.split(/\s+/).reduce((lines, word) => {
    const longer = lines.length ? `${lines.at(-1)} ${word}` : word;
    return lines.length && longer.length <= LETTERS ? [...lines.slice(0, -1), longer] : [...lines, word];
  }, []);
  const make = (name, attributes, text = "") => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.textContent = text;
    return element;
  };
  const written = rows.map(({ kind, cells }) => ({ kind, cells: cells.map((cell) => ({ ...cell, lines: cell.lines.flatMap(folded) })) }));
  const widths = [];
  for (const { kind, cells } of written) {
    if (kind !== "group") cells.forEach(({ lines, span }, i) => {
      if (!span) widths[i] = Math.max(widths[i] ?? 0, ...lines.map((line) => wide(line, kind === "head")));
    });
  }
  const starts = widths.map((_, i) => EDGE + widths.slice(0, i).reduce((sum, width) => sum + width + GAP, 0));
  const width = Math.ceil(Math.max(starts.at(-1) + widths.at(-1), EDGE + wide(title, true)) + EDGE);
  const svg = make("svg", {});
  let top = EDGE;
  const line = (text, place, attributes) => svg.append(make("text", { ...place, "font-size": SIZE, fill: "var(--ink)", ...attributes }, text));
  line(title, { x: EDGE, y: top + SIZE }, { "font-weight": 600 });
  top += LINE + 10;
  for (const { kind, cells } of written) {
    if (kind !== "head") svg.append(make("path", { d: `M${EDGE} ${top}H${width - EDGE}`, stroke: kind === "group" ? "var(--quiet)" : "var(--grid)" }));
    cells.forEach(({ lines, right }, i) => lines.forEach((text, n) => {
      const [x, anchor] = right ? [starts[i] + widths[i], "end"] : [starts[i], "start"];
      const plain = kind ? { fill: "var(--quiet)", ...(kind === "head" ? { "font-weight": 600 } : {}) } : {};
      line(text, { x: x.toFixed(1), y: top + 5 + SIZE + n * LINE }, { "text-anchor": anchor, ...plain });
    }));
    top += Math.max(1, ...cells.map(({ lines }) => lines.length)) * LINE + 8;
  }
  for (const [key, value] of Object.entries({ viewBox: `0 0 ${width} ${top + EDGE}`, width, height: top + EDGE })) svg.setAttribute(key, value);
  return normlab.drawing(svg);
};

// Tables: headers that sort, buttons that download the rows shown, and a hint at hidden columns.
normlab.tables = () => {
  "use strict";
  // Returns the cell of a column; null if a cell that spans several covers it.
  function at(row, column) {
    let place = 0;
    for (const cell of row.cells) {
      if (place === column) return cell.colSpan === 1 ? cell : null;
      place += cell.colSpan;
    }
    return null;
  }
  // Returns the main text of a cell, without the small print below it.
  const figure = (cell) => cell.dataset.value ??
    [...cell.childNodes].filter(({ nodeName }) => nodeName !== "SMALL").map((node) => node.textContent).join("").trim();
  const small = (cell) => [...cell.querySelectorAll("small, div")].map((node) => node.textContent.trim());
  const texts = (cell) => {
    const first = figure({ dataset: {}, childNodes: [...cell.childNodes].filter(({ nodeName }) => nodeName !== "DIV") });
    return [first, ...small(cell)].filter(Boolean);
  };
  const whole = (cell) => texts(cell).join("; ");

  // Says above a table how many columns are beyond its right edge, as long as there are any.
  function hint(table, heads) {
    const box = table.parentNode;
    const said = document.createElement("p");
    said.className = "hint";
    box.before(said);
    const look = () => {
      const edge = box.getBoundingClientRect().right;
      const beyond = heads.filter((head) => head.getBoundingClientRect().right > edge + 8).length;
      const more = box.scrollWidth - box.clientWidth - box.scrollLeft > 8;
      const count = beyond ? `${beyond} more column${beyond > 1 ? "s" : ""}` : "more";
      said.textContent = more ? `${count}: scroll sideways \u2192` : "";
      said.hidden = box.scrollWidth - box.clientWidth <= 8; // no jump at the end of scrolling
    };
    box.addEventListener("scroll", look, { passive: true });
    new ResizeObserver(look).observe(box);
  }

  document.querySelectorAll(".scroll > table").forEach((table, number) => {
    if (table.dataset.ready || table.closest(".values")) return;
    table.dataset.ready = "yes";
    const name = table.classList[0] ?? `table${number}`;
    const heads = [...(table.tHead?.rows[0].cells ?? [])];
    const bodies = () => [...table.tBodies].map((body) => [...body.rows].filter((row) => !row.matches(".point")));
    const said = table.parentNode.getAttribute("aria-label") ?? name;
    const titles = heads.map(texts); // before the sort buttons are added
    hint(table, heads);
    if (heads.length) {
      normlab.sortable(name, heads, bodies, (row, column) => {
        const cell = at(row, column);
        return cell && figure(cell);
      });
    }
    // Returns the rows that are shown as lists of texts; the name of a row's group comes last.
    const shown = () => {
      const grouped = table.querySelector(".point") !== null;
      const lines = bodies().flat().filter((row) => !row.hidden).map((row) => [
        ...[...row.cells].flatMap((cell) => [whole(cell), ...Array(cell.colSpan - 1).fill("")]),
        ...(grouped ? [row.parentNode.querySelector(".point")?.textContent ?? ""] : []),
      ]);
      return [...(heads.length ? [[...titles.map((lines) => lines.join("; ")), ...(grouped ? [table.dataset.group ?? "at"] : [])]] : []), ...lines];
    };
    const files = document.createElement("p");
    files.className = "files";
    const kind = (row) => (row.parentNode === table.tHead ? "head" : row.matches(".point") ? "group" : "");
    const picture = () => normlab.drawn(table.caption?.textContent.trim() || said, [...table.rows]
      .filter((row) => !row.hidden)
      .map((row) => ({
        kind: kind(row),
        cells: [...row.cells].flatMap((cell) => [
          { lines: titles[heads.indexOf(cell)] ?? texts(cell), right: cell.matches(".number"), span: cell.colSpan > 1 },
          ...Array(cell.colSpan - 1).fill({ lines: [], right: false, span: true }),
        ]),
      })));
    files.append(normlab.download(said, "svg", picture), normlab.download(said, "csv", () => normlab.csv(shown())));
    table.parentNode.after(files);
  });
};
normlab.tables();
