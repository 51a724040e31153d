// The language, the theme, and the article shown. The first two are stored, if the browser allows it.

const CODES = ["zh", "en"];
const keep = (name, value) => { try { localStorage.setItem(`normlab ${name}`, value); } catch { /* not allowed for this page */ } };

function drawWordsOfPage() {
  document.documentElement.lang = language ? "en" : "zh-CN";
  document.title = `normlab: ${t("title")}`;
  document.querySelectorAll("[data-words]").forEach((element) => element.replaceChildren(...prose(t(element.dataset.words))));
  document.querySelectorAll("[data-language]").forEach((button) => button.setAttribute("aria-pressed", String(Number(button.dataset.language) === language)));
  byId("theme").textContent = t(isDark() ? "light" : "dark");
}

function drawPage() {
  drawWordsOfPage();
  drawLegend();
  drawPieceList();
  drawArticleList();
  drawArticle();
}

function isDark() {
  return document.documentElement.dataset.theme === "dark";
}

/** The language in the address (#zh, #en, #en/3) or -1, and the name that follows it. */
function address() {
  const [first, ...rest] = decodeURIComponent(location.hash.slice(1)).split("/");
  const code = CODES.indexOf(first);
  return [code, code < 0 ? first : rest.join("/")];
}

/** Show what the address names: a language, and an article (#3), a live piece (#words), or a sentence (#s1-2-3). */
function follow() {
  const [code, name] = address();
  if (code >= 0 && code !== language) {
    language = code;
    drawPage();
  }
  const holds = (each) => each.sections.some((section) => section.body.some((passage) => passage.piece === name));
  const found = DATA.articles.find((each) => String(each.id) === name || name.startsWith(`s${each.id}-`)) ?? DATA.articles.find(holds);
  if (found && found !== article) {
    article = found;
    drawLegend();
    drawArticleList();
    drawArticle();
  }
  const target = byId(String(found?.id) === name ? "content" : name || "top");
  if (!target) return;
  target.scrollIntoView();
  (target.querySelector("button") ?? target).focus({ preventScroll: true });
}

document.querySelectorAll("[data-language]").forEach((button) => button.addEventListener("click", () => {
  language = Number(button.dataset.language);
  keep("language", CODES[language]);
  const name = address()[1];
  history.replaceState(null, "", `#${CODES[language]}${name && "/"}${name}`);
  drawPage();
}));
byId("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  keep("theme", document.documentElement.dataset.theme);
  drawWordsOfPage();
});
addEventListener("hashchange", follow);
addEventListener("keydown", walk);
scheme.addEventListener("change", () => {
  dress();
  drawWordsOfPage();
});
language = CODES.indexOf(kept("language"));
if (language < 0) language = navigator.language.startsWith("zh") ? 0 : 1;
drawPage();
follow();
