"""Communication between processes; without a process group everything is one process."""
