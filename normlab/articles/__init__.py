"""The five articles, sentence by sentence, with what was found.

The command `normlab articles` shows them. An article is a file of the config group `article`,
`configs/article/1.yaml`. A sentence of it, or a cell of its tables, refers to its evidence: a part
of a claim, a finding of a check, a row of a study.

article.py     an article as its file has it       evidence_kinds/  what a sentence refers to
results.py     the ledger, checks and runs         explanation.py   what opens below a sentence
table.py       a table in Markdown, LaTeX, HTML    table_text.py    and on a terminal
sentences.py   results/sentences.md                which_norm.py    results/which_norm.md
pages.py       all pages of the articles           interactive_page.py    docs/play/index.html
page_data.py   the data of that page
language.py    the texts of both languages         claim_lines.py   a claim on a terminal

Where the Chinese below a sentence of the page comes from:

- the statement and the answer to the whole claim: `chinese` and `chinese_answer` in `configs/claim`
- what runs and timings found: `templates/finding.zh.txt`, filled by `finding_text.py`
- what a check found: `templates/check_findings.zh.yaml` for a part of a claim, `zh:` of the
  sentence's `check:` in `configs/article`; both are filled by `checks_in_chinese.py`
- what published sources say: `chinese` of the part's `published:` in `configs/claim`
- verdicts and names of scores: `templates/language.zh.yaml`; other words: `templates/page.yaml`
- why a part is open, and the names of settings and data: `normlab/claims/templates`
"""
