"""The ledger of claims: what the documents assert, the evidence for and against, the verdict."""
