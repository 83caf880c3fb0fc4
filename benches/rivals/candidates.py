"""Processes that contend for one role, and what they say (go/lead/lead.go)."""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

from servers import RIVALS

COMMAND = RIVALS / "bin/command"


def descendants(pid):
    children = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
        except (OSError, ValueError):
            pass  # it ended meanwhile
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found[1:]


def send(pids, what):
    for pid in pids:
        try:
            os.kill(pid, what)
        except ProcessLookupError:
            pass


class Candidate:
    """One process with what it starts. It writes to a file: the harness wakes up only when it wants to know."""

    def __init__(self, argv, node, directory, is_silent):
        self.node, self.said, self.rest = node, {}, ""
        out, self.errors = directory / f"{node}.out", directory / f"{node}.err"
        environment = {**os.environ, "XDG_STATE_HOME": str(directory), "ETCDCTL_API": "3"}
        with open(out, "w") as stdout, open(self.errors, "w") as stderr:
            stamp = subprocess.Popen([COMMAND, "stamp"], stdin=subprocess.PIPE, stdout=stdout) if is_silent else None
            self.process = subprocess.Popen([str(a) for a in argv], stdin=subprocess.DEVNULL, stderr=stderr, env=environment,
                                            stdout=stamp.stdin if stamp else stdout)
        if stamp:
            stamp.stdin.close()
        self.lines = open(out)

    def times(self, word):
        """When it said that, oldest first, in nanoseconds."""
        *lines, self.rest = (self.rest + self.lines.read()).split("\n")
        for line in lines:
            said, _, time_ = line.partition(" ")
            if time_.isdigit():
                self.said.setdefault(said, []).append(int(time_))
        return self.said.get(word, [])

    def last(self, word):
        return (self.times(word) or [0])[-1]

    def tree(self):
        return [self.process.pid, *descendants(self.process.pid)]

    def kill(self):
        """Ends it and everything that it started."""
        send(self.tree(), signal.SIGKILL)
        self.process.wait()
        self.lines.close()

    def rss(self):
        """In MB, with a watchdog, without the command."""
        kilobytes = 0
        for pid in self.tree():
            try:
                if os.readlink(f"/proc/{pid}/exe") != str(COMMAND):
                    status = pathlib.Path(f"/proc/{pid}/status").read_text()
                    kilobytes += int(status.split("VmRSS:")[1].split()[0])
            except (OSError, IndexError):
                pass
        return kilobytes / 1024


class Group:
    """The candidates of one subject on one server."""

    def __init__(self, subject, server, roles=1):
        self.subject, self.server, self.roles = subject, server, roles
        self.candidates, self.spawned = {}, 0
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="rivals-"))

    def spawn(self):
        self.spawned += 1
        node = f"n{self.spawned}"
        argv = self.subject.argv(self.server, node, self.subject.role, self.roles)
        self.candidates[node] = Candidate(argv, node, self.directory, self.subject.is_silent)
        return self.candidates[node]

    def start(self):
        """A leader and two standbys."""
        first = self.spawn()
        if not self.elected(after=0, limit=60):
            raise RuntimeError(f"{self.subject.name}: no leader:\n{first.errors.read_text()[-2000:]}")
        self.spawn()
        self.spawn()
        return self

    def elected(self, after, limit, but=None):
        """When a candidate was elected after that time. None if none was within the limit, in seconds."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            times = [time_ for each in self.candidates.values() if each is not but for time_ in each.times("ELECTED") if time_ > after]
            if times:
                return min(times)
            time.sleep(0.005)
        return None

    def leader(self):
        """The one that was elected last: on a busy machine a leader may have lost its role since the last round."""
        return max(self.candidates.values(), key=lambda candidate: candidate.last("ELECTED"))

    def replace(self, candidate):
        """Whoever leaves is replaced, so that there are three."""
        candidate.kill()
        del self.candidates[candidate.node]
        self.spawn()

    def stop(self):
        for candidate in self.candidates.values():
            candidate.kill()
        self.candidates.clear()
        shutil.rmtree(self.directory, ignore_errors=True)
