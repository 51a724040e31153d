"""The five articles, sentence by sentence, with what was found.

The command `normlab articles` shows them. An article is a file of the config group `article`,
`configs/article/1.yaml`. A sentence of it, or a cell of its tables, refers to its evidence: a part
of a claim, a finding of a check, a row of a study.

- `article.py`: an article as its file has it; `evidence_kinds/`: what a sentence refers to
- `sentence_verdict.py`: the verdict on a sentence, from the verdicts of its evidence
- `results.py`: the ledger, checks and runs that evidence refers to
- `table.py`: an article's table in Markdown, LaTeX and HTML; `table_text.py`: on a terminal
- `sentences.py`: the page `results/sentences.md`
- `interactive_page.py`: the page `docs/play/index.html`; `page_data.py`: its data;
  `explanation.py`: what opens below a sentence
- `pages.py`: both pages

Where the Chinese below a sentence of the page comes from:

- the statement and the answer to the whole claim: `chinese` and `chinese_answer` in `configs/claim`
- what runs and timings found: `finding.zh.txt` of `normlab.claims.in_words`
- what a check found: `templates/check_findings.zh.yaml` for a part of a claim, `zh:` of the
  sentence's `check:` in `configs/article`; both are filled by `checks_in_chinese.py`
- what published sources say: `chinese` of the part's `published:` in `configs/claim`
- verdicts and names of scores: `language.zh.yaml` of `normlab.claims.in_words`; other words:
  `templates/page.yaml`
- why a part is open, and the names of settings and data: `normlab/claims/templates`
"""
