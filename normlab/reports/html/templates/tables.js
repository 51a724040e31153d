
// Tables: headers that sort, and a button that downloads what of a table is shown.
normlab.tables = () => {
  "use strict";
  // Returns the cell that stands in a column, null where a wider one does.
  function at(row, column) {
    let place = 0;
    for (const cell of row.cells) {
      if (place === column) return cell.colSpan === 1 ? cell : null;
      place += cell.colSpan;
    }
    return null;
  }
  // What a cell says first, without what stands small below it.
  const figure = (cell) => cell.dataset.value ??
    [...cell.childNodes].filter(({ nodeName }) => nodeName !== "SMALL").map((node) => node.textContent).join("").trim();
  const small = (cell) => [...cell.querySelectorAll("small, div")].map((node) => node.textContent.trim());
  const whole = (cell) => {
    const texts = [figure({ dataset: {}, childNodes: [...cell.childNodes].filter(({ nodeName }) => nodeName !== "DIV") })];
    return [...texts, ...small(cell)].filter(Boolean).join("; ");
  };

  document.querySelectorAll(".scroll > table").forEach((table, number) => {
    if (table.dataset.ready || table.closest(".values")) return;
    table.dataset.ready = "yes";
    const name = table.classList[0] ?? `table${number}`;
    const heads = [...(table.tHead?.rows[0].cells ?? [])];
    const bodies = () => [...table.tBodies].map((body) => [...body.rows].filter((row) => !row.matches(".point")));
    const said = table.parentNode.getAttribute("aria-label") ?? name;
    const titles = heads.map(whole);
    if (heads.length) {
      normlab.sortable(name, heads, bodies, (row, column) => {
        const cell = at(row, column);
        return cell && figure(cell);
      });
    }
    // What of the table is shown, a list of texts a row; what its groups are called comes last.
    const shown = () => {
      const grouped = table.querySelector(".point") !== null;
      const lines = bodies().flat().filter((row) => !row.hidden).map((row) => [
        ...[...row.cells].flatMap((cell) => [whole(cell), ...Array(cell.colSpan - 1).fill("")]),
        ...(grouped ? [row.parentNode.querySelector(".point")?.textContent ?? ""] : []),
      ]);
      return [...(heads.length ? [[...titles, ...(grouped ? [table.dataset.group ?? "at"] : [])]] : []), ...lines];
    };
    const files = document.createElement("p");
    files.className = "files";
    files.append(normlab.download(said, "csv", () => {
      return normlab.csv(shown());
    }));
    table.parentNode.after(files);
  });
};
normlab.tables();
