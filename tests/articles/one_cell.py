"""An article with one cell, for tests."""

from normlab.articles.article import load

CELL = """\
id: 9
title: {{zh: 文章}}
tables:
  one:
    section: "1"
    title: {{zh: '50 % & <b>'}}
    columns: [{{zh: '方法_'}}, {{zh: BLEU}}]
    rows:
      - - {{zh: LN}}
        - {{zh: '<35 %>', evidence: {evidence}}}
"""


def article(folder, evidence):
    """Return an article with one cell, which has this evidence."""
    path = folder / "9.yaml"
    path.write_text(CELL.format(evidence=evidence), "utf-8")
    return load(path)
