"""Other toolkits do the same work as normlab, in turns: see `scripts/bench/peers.sh`."""
