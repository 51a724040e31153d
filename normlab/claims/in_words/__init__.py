"""The ledger in words, in Chinese and in English.

- `language.py` has the texts of both languages, from `templates/language.CODE.yaml`
- `finding_text.py` says what was found on a part: `templates/finding.CODE.txt`
- `claim_lines.py` formats claims for a terminal (`normlab claims`)
"""
