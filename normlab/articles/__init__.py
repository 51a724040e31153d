"""The five articles, sentence by sentence, and what was found on each sentence.

The command `normlab articles` shows them. An article is a file of the config group `article`, such
as `configs/article/1.yaml`. Its sentences and the cells of its tables refer to their evidence:
parts of claims, findings of checks, or rows of studies.

- `article.py`: an article as in its file; `evidence_kinds/`: what a sentence refers to
- `sentence_verdict.py`: the verdict on a sentence, from the verdicts of its evidence
- `results.py`: the ledger, findings and runs that evidence refers to
- `table.py`: an article's table in Markdown, LaTeX and HTML; `table_text.py`: for a terminal
- `sentences.py`: the page `results/sentences.md`
- `interactive_page.py`: the page `docs/play/index.html`; `page_data.py`: its data;
  `explanation.py`: what opens below a sentence
- `pages.py`: both pages

The Chinese below a sentence of the interactive page comes from these files:

- the statement and the answer to the whole claim: `chinese` and `chinese_answer` in `configs/claim`
- the findings of runs and timings: `finding.zh.txt` of `normlab.claims.in_words`
- the findings of a check: `templates/check_findings.zh.yaml` for a part of a claim, and `zh:` of a
  sentence's `check:` in `configs/article`; `checks_in_chinese.py` fills in the numbers
- what published sources say: `chinese` of the part's `published:` in `configs/claim`
- verdicts and names of scores: `language.zh.yaml` of `normlab.claims.in_words`; other words:
  `templates/page.yaml`
- why a part is open, and the names of settings and data: `normlab/claims/templates`
"""
