"""The articles' claims, the endpoints that decide them, and the ledger of verdicts."""
