
// The board's script: asks for the page anew every few seconds, and takes over what has changed.
(() => {
  "use strict";
  const EVERY = 3000;
  const parser = new DOMParser();
  const served = new Map(); // what the server said last, by the id of a part
  let tag = null;

  const panels = (part) => [...part.querySelectorAll("figure.chart")].map(({ id }) => id).join(" ");

  // Puts a part in the place of the one before it; what a reader has opened stays open.
  function swap(old, fresh) {
    const open = [...old.querySelectorAll("details")].map((details) => details.open);
    fresh.querySelectorAll("details").forEach((details, i) => { details.open = open[i] ?? false; });
    old.replaceWith(fresh);
  }

  // Returns the element that stands for a part from now on: the one there, if nothing is new.
  function part(fresh) {
    const old = fresh.id ? document.getElementById(fresh.id) : null;
    const html = fresh.outerHTML;
    const known = served.get(fresh.id);
    if (fresh.id) served.set(fresh.id, html);
    if (!old) return fresh;
    if (known === html) return old;
    const charts = panels(fresh);
    if (!charts || charts !== panels(old)) {
      swap(old, fresh);
      return fresh;
    }
    for (const { id } of fresh.querySelectorAll("figure.chart")) {
      old.querySelector(`#${CSS.escape(id)} .summary`).textContent =
        fresh.querySelector(`#${CSS.escape(id)} .summary`).textContent;
    }
    return old;
  }

  function take(text) {
    const fresh = parser.parseFromString(text, "text/html");
    for (const place of [".overview", "nav"]) {
      const [old, now] = [document.querySelector(place), fresh.querySelector(place)];
      if (old && now && old.innerHTML !== now.innerHTML) old.replaceWith(now);
    }
    const main = document.querySelector("main");
    const parts = [...fresh.querySelector("main").children].map(part);
    const there = [...main.children];
    if (parts.length !== there.length || parts.some((each, i) => each !== there[i])) main.replaceChildren(...parts);
    const [old, now] = [document.getElementById("charts"), fresh.getElementById("charts")];
    if (old && now) old.textContent = now.textContent;
    normlab.tables();
    normlab.read();
  }

  async function ask() {
    const lost = document.getElementById("lost");
    try {
      const answer = await fetch("/", { headers: tag ? { "If-None-Match": tag } : {} });
      if (answer.status === 200) {
        tag = answer.headers.get("ETag");
        take(await answer.text());
      }
      lost.textContent = "";
    } catch {
      lost.textContent = "The board has been closed: this is what it said last.";
    }
  }

  async function always() {
    if (!document.hidden) await ask();
    setTimeout(always, EVERY);
  }
  setTimeout(always, EVERY);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
})();
