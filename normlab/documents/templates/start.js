// The language, the theme, and which article is shown.

function drawWordsOfPage() {
  document.documentElement.lang = language ? "en" : "zh-CN";
  document.title = `normlab: ${t("title")}`;
  document.querySelectorAll("[data-words]").forEach((element) => element.replaceChildren(...prose(t(element.dataset.words))));
  document.querySelectorAll("[data-language]").forEach((button) => button.setAttribute("aria-pressed", String(Number(button.dataset.language) === language)));
  document.getElementById("theme").textContent = t(isDark() ? "light" : "dark");
}

function drawPage() {
  drawWordsOfPage();
  drawLegend();
  drawPieceList();
  drawArticleList();
  drawArticle();
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Show what the address names: an article (#3), a live piece (#words), or a sentence (#s1-2-3). */
function follow() {
  const name = decodeURIComponent(location.hash.slice(1));
  const holds = (each) => each.sections.some((section) => section.body.some((passage) => passage.piece === name));
  const found = DATA.articles.find((each) => String(each.id) === name || name.startsWith(`s${each.id}-`)) ?? DATA.articles.find(holds);
  if (found && found !== article) {
    article = found;
    drawLegend();
    drawArticleList();
    drawArticle();
  }
  const target = document.getElementById(String(found?.id) === name ? "content" : name || "top");
  if (!target) return;
  target.scrollIntoView();
  (target.querySelector("button") ?? target).focus({ preventScroll: true });
}

document.querySelectorAll("[data-language]").forEach((button) => button.addEventListener("click", () => {
  language = Number(button.dataset.language);
  drawPage();
}));
document.getElementById("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  drawWordsOfPage();
});
addEventListener("hashchange", follow);
language = navigator.language.startsWith("zh") ? 0 : 1;
drawPage();
follow();
