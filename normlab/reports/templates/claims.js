
// The ledger's script: which claims are shown, opening them, and addresses such as #claim-12.
(() => {
  "use strict";
  const form = document.getElementById("choose");
  const shown = form.querySelector(".shown");
  const all = document.getElementById("all");
  const folded = (text) => text.toLowerCase().replace(/\s+/g, " ");
  const claims = [...document.querySelectorAll(".claim")].map((element) => ({
    element,
    details: element.querySelector("details"),
    text: folded(element.textContent),
    verdict: element.dataset.verdict,
    documents: element.dataset.documents.split(" "),
  }));
  const visible = () => claims.filter(({ element }) => !element.hidden);

  // Returns the values that are ticked under a name.
  const ticked = (name) =>
    [...form.querySelectorAll(`input[name="${name}"]:checked`)].map((box) => box.value);

  function filter() {
    const [verdicts, documents] = [ticked("verdict"), ticked("document")];
    const words = folded(form.elements.words.value).trim().split(" ");
    for (const claim of claims) {
      claim.element.hidden = !(
        (!verdicts.length || verdicts.includes(claim.verdict)) &&
        (!documents.length || claim.documents.some((name) => documents.includes(name))) &&
        words.every((word) => claim.text.includes(word))
      );
    }
    const left = visible().length;
    shown.textContent = left === claims.length ? `${left} claims` : `${left} of ${claims.length} claims`;
    document.querySelector(".empty").hidden = left > 0;
    label();
  }

  function clear() {
    form.reset();
    normlab.keep(form);
    filter();
  }

  const closed = () => visible().some(({ details }) => !details.open);

  function label() {
    all.textContent = closed() || !visible().length ? "Open all" : "Close all";
  }

  // Shows and opens the claim that the address names.
  function arrive() {
    const claim = claims.find(({ element }) => `#${element.id}` === location.hash);
    if (!claim) return;
    if (claim.element.hidden) clear();
    claim.details.open = true;
    claim.element.scrollIntoView();
  }

  form.addEventListener("input", () => {
    normlab.keep(form);
    filter();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("clear").addEventListener("click", () => {
    clear();
    form.elements.words.focus();
  });
  all.addEventListener("click", () => {
    const open = closed();
    for (const { details } of visible()) details.open = open;
  });
  for (const { details } of claims) details.addEventListener("toggle", label);
  addEventListener("hashchange", arrive);

  let opened = [];
  addEventListener("beforeprint", () => {
    const printed = document.querySelectorAll("header details, .claim:not([hidden]) > details");
    opened = [...printed].filter(({ open }) => !open);
    for (const details of opened) details.open = true;
  });
  addEventListener("afterprint", () => {
    for (const details of opened) details.open = false;
  });

  const columns = [".id", "h2", ".from", ".figure", ".verdict"];
  const heads = document.querySelector(".heads");
  heads.removeAttribute("aria-hidden");
  heads.setAttribute("role", "group");
  heads.setAttribute("aria-label", "Sort the claims");
  const read = (element, column) => {
    const cell = element.querySelector(`summary ${columns[column]}`).cloneNode(true);
    cell.querySelector(".label")?.remove();
    return cell.textContent.trim();
  };
  normlab.sortable("claims", [...heads.children], () => [claims.map(({ element }) => element)], read);
  const listed = () => [
    [...heads.children].map((head) => head.textContent),
    ...[...document.querySelectorAll(".claim:not([hidden])")].map((element) => columns.map((_, i) => read(element, i))),
  ];
  const picture = () => normlab.drawn(document.querySelector("h1").textContent, listed().map((texts, number) => ({
    kind: number ? "" : "head", cells: texts.map((text) => ({ lines: [text], right: false })),
  })));
  all.after(
    normlab.download("claims", "svg", picture),
    normlab.download("claims", "csv", () => normlab.csv(listed())),
  );

  normlab.recall(form);
  filter();
  arrive();
})();
