"""The articles' claims, the endpoints that decide them, and the ledger of verdicts.

From a claim file to its verdict:

1. `claim` reads the parts of a claim, and the endpoint that decides each part.
2. `study_endpoints` and `other_endpoints` have the kinds of endpoints; `endpoint` has their bases.
3. `sample` chooses the runs and seeds that count from the `evidence`, and makes values of them.
4. `decision` turns the values into a verdict by a table, and lists the reasons to stay undecided.
5. `ledger` corrects the verdicts of parts for each other; `verdict` combines them into the claim's.

`judged_results` does all of this for a folder of results. `pages`, `saved` and `texts` format the
verdicts, and the rest of normlab reads them with `ledger_file`.
"""
