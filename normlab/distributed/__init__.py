"""Communication between processes. Without a process group, everything runs in one process."""
