"""Communication between processes; without a process group, everything runs in one process."""
