"""The claims of the articles, the endpoints that decide them, and the ledger of verdicts."""
