"""CPU time of a job's processes by the tasks of their threads, from the kernel's scheduler."""
import os

# Threads that exist only for changes of membership, and the one that encrypts.
CONTROL = {"coordinator", "control", "signals", "mayfly-sentinel", "tls"}


def processes_of(root):
    """The process and all its descendants."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as f:
                    text = f.read()
                parents[int(entry)] = int(text[text.rindex(")") + 2:].split()[1])
            except OSError:
                pass  # ended meanwhile
    found = {root}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return found
        found |= more


def cpu_by_role(root):
    """Nanoseconds of CPU time by role: names of control threads, "launcher", "training"."""
    roles = {}
    for pid in processes_of(root):
        try:
            tasks = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue
        for task in tasks:
            try:
                with open(f"/proc/{pid}/task/{task}/comm") as f:
                    name = f.read().strip()
                with open(f"/proc/{pid}/task/{task}/schedstat") as f:
                    nanoseconds = int(f.read().split()[0])
            except OSError:
                continue
            role = name if name in CONTROL else "launcher" if pid == root else "training"
            roles[role] = roles.get(role, 0) + nanoseconds
    return roles
