"""Other programs at the work of normlab's speed measurements: see `scripts/bench_peers.sh`."""
