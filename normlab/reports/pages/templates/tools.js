
// What the scripts of all pages share: filters kept in the address, sorting, files to download.
const normlab = (() => {
  "use strict";

  // The address -----------------------------------------------------------------------------------
  // Sets the query to these parameters without reloading the page.
  function write(params) {
    const query = params.toString();
    try {
      history.replaceState(null, "", (query ? `?${query}` : location.pathname) + location.hash);
    } catch { /* the page also works if it cannot change its address */ }
  }
  const asked = () => new URLSearchParams(location.search);
  const usual = (select) => ([...select.options].find((option) => option.defaultSelected) ?? select.options[0]).value;
  const boxes = (form) => [...form.querySelectorAll("input[type=checkbox]")];
  const others = (form) => [...form.querySelectorAll("select, input[type=search]")];
  // The address lists the boxes that differ from their default: hide-row=bn for one that was ticked.
  const called = (box) => (box.defaultChecked ? `hide-${box.name}` : box.name);

  // Sets a form to what the address says.
  function recall(form) {
    const params = asked();
    for (const box of boxes(form)) {
      box.checked = params.getAll(called(box)).includes(box.value) !== box.defaultChecked;
    }
    for (const field of others(form)) {
      const value = params.get(field.name);
      const fits = field.options ? [...field.options].some((option) => option.value === value) : value !== null;
      if (fits) field.value = value;
    }
  }

  // Writes the fields of a form that differ from their defaults into the address.
  function keep(form) {
    const params = asked();
    for (const box of boxes(form)) params.delete(called(box));
    for (const box of boxes(form)) {
      if (box.checked !== box.defaultChecked) params.append(called(box), box.value);
    }
    for (const field of others(form)) {
      params.delete(field.name);
      const first = field.options ? usual(field) : field.defaultValue;
      if (field.value !== first) params.set(field.name, field.value);
    }
    write(params);
  }

  // Sorting ---------------------------------------------------------------------------------------
  const plain = (text) => text.replace(/\u2212/g, "-").replace(/(\d),(?=\d{3})/g, "$1");
  const number = (text) => /^[+-]?\d+(\.\d+)?(e[+-]?\d+)?/i.exec(plain(text))?.[0];
  const empty = (text) => text === null || text === "" || text === "\u2013";

  // Returns the order of two texts in a column: as numbers if all are; empty ones come last.
  function order(texts, down) {
    const given = texts.filter((text) => !empty(text));
    const numbers = given.every((text) => number(text) !== undefined);
    return (a, b) => {
      if (empty(a) || empty(b)) return empty(a) - empty(b);
      const [x, y] = [Number(number(a)), Number(number(b))];
      const apart = numbers ? x - y : a.localeCompare(b, "en", { numeric: true });
      return down ? -apart : apart;
    };
  }

  // Turns heads into buttons that sort rows: ascending, descending, original order. The address keeps
  // it. `groups` returns the rows that stay together, `read` the text of a row in a column.
  function sortable(name, heads, groups, read) {
    const first = new Map();
    let place = 0;
    for (const row of groups().flat()) first.set(row, (place += 1));
    const buttons = heads.map((head) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      head.append(button);
      return button;
    });
    let [column, down] = [-1, false];

    function apply() {
      for (const rows of groups()) {
        const texts = new Map(rows.map((row) => [row, column < 0 ? "" : read(row, column)]));
        const before = order([...texts.values()], down);
        const sorted = [...rows].sort((a, b) =>
          (column < 0 ? 0 : before(texts.get(a), texts.get(b))) || first.get(a) - first.get(b));
        const parent = rows[0]?.parentNode;
        const end = rows.length ? rows.at(-1).nextSibling : null;
        for (const row of sorted) parent.insertBefore(row, rows.includes(end) ? null : end);
      }
      heads.forEach((head, i) => {
        const way = i !== column ? null : down ? "descending" : "ascending";
        if (way) head.setAttribute("aria-sort", way);
        else head.removeAttribute("aria-sort");
      });
    }

    buttons.forEach((button, i) => button.addEventListener("click", () => {
      if (column !== i) [column, down] = [i, false];
      else if (!down) down = true;
      else column = -1;
      apply();
      const params = asked();
      const rest = params.getAll("sort").filter((text) => !text.startsWith(`${name}.`));
      params.delete("sort");
      for (const text of rest) params.append("sort", text);
      if (column >= 0) params.append("sort", `${name}.${column}${down ? ".down" : ""}`);
      write(params);
    }));
    const kept = asked().getAll("sort").map((text) => text.split(".")).find(([of]) => of === name);
    if (kept && Number(kept[1]) in heads) {
      [column, down] = [Number(kept[1]), kept[2] === "down"];
      apply();
    }
  }

  // Files -----------------------------------------------------------------------------------------
  // Returns a CSV cell that no spreadsheet evaluates as a formula, as in normlab's own tables.
  function cell(text) {
    const flat = text.replace(/\s+/g, " ").trim();
    const value = number(flat) === plain(flat) ? plain(flat) : flat;
    const safe = value.length > 1 && /^[=+\-@]/.test(value) && !Number.isFinite(Number(value)) ? `'${value}` : value;
    return /[",]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  }
  const csv = (rows) => rows.map((row) => row.map(cell).join(",") + "\n").join("");
  const slug = (text) => text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 60);

  function save(name, ending, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = `${slug(document.querySelector("h1").textContent)}-${slug(name)}.${ending}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // Returns an SVG as a stand-alone file, with the colours and the font of the page.
  function drawing(svg) {
    const style = getComputedStyle(document.documentElement);
    const copy = svg.cloneNode(true);
    const { width, height } = svg.viewBox.baseVal;
    const paper = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    for (const [key, value] of Object.entries({ width, height, fill: "var(--paper)" })) paper.setAttribute(key, value);
    copy.prepend(paper);
    copy.setAttribute("font-family", getComputedStyle(document.body).fontFamily);
    const text = new XMLSerializer().serializeToString(copy);
    return text.replace(/var\((--[a-z0-9-]+)\)/g, (_, name) => style.getPropertyValue(name).trim());
  }

  // Returns a button that downloads; `make` returns the text of the file.
  function download(name, ending, make) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "file";
    button.textContent = ending.toUpperCase();
    button.setAttribute("aria-label", `Download ${name} as ${ending.toUpperCase()}`);
    const type = ending === "svg" ? "image/svg+xml" : "text/csv;charset=utf-8";
    button.addEventListener("click", async () => save(name, ending, type, await make()));
    return button;
  }

  return { recall, keep, sortable, csv, drawing, download };
})();
