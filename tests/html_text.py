"""The text of an HTML page, for tests that read it without a browser."""

from html.parser import HTMLParser


class Text(HTMLParser):
    """A page's visible text, its tables as rows of cells, its links and its elements."""

    def __init__(self, page):
        super().__init__()
        self.tables, self.links, self.tags, self.words = {}, [], [], []
        self._table = self._cell = None
        self._silent = 0
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "table":
            self._table = self.tables.setdefault(dict(attrs).get("class"), [])
        elif tag == "tr" and self._table is not None:
            self._table.append([])
        elif tag in ("td", "th") and self._table is not None:
            self._cell = []
            self._table[-1].append(self._cell)
        elif tag in ("script", "style"):
            self._silent += 1
        elif tag == "a":
            self.links.append(dict(attrs)["href"])

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self._cell = None
        elif tag in ("script", "style"):
            self._silent -= 1

    def handle_data(self, data):
        if self._silent or not data.strip():
            return
        self.words.append(data.strip())
        if self._cell is not None:
            self._cell.append(data.strip())

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    def rows(self, name):
        return [[" ".join(cell) for cell in row] for row in self.tables[name]]
