#!/usr/bin/env python3
"""Tenure beside the engines' own elections, on the same servers, in turns. First: benches/rivals/build.

    run.py [handover] [crash] [freeze] [cost]    all four unless you name some
    run.py table                                 only print what was measured before
"""

import argparse
import collections
import concurrent.futures
import contextlib
import datetime
import json
import os
import pathlib
import platform
import random
import signal
import subprocess
import sys
import time
import traceback

import measure
import servers
import table
from candidates import COMMAND, Group
from subjects import SUBJECTS, TENURE, versions

VERBS = ["handover", "crash", "freeze", "cost"]
# How often, by lease: a longer one takes longer to lose.
ROUNDS = {"handover": {5: 100, 60: 30}, "crash": {5: 20, 15: 10, 60: 6}, "freeze": {5: 10, 15: 6}}


class Run:
    """What is asked for, and what was measured, which is saved at once."""

    def __init__(self, options):
        self.options, self.file = options, pathlib.Path(options.out)
        self.saved = json.loads(self.file.read_text()) if self.file.exists() else {"results": {}}

    def subjects(self, verb):
        return [s for s in SUBJECTS if verb in s.verbs and self.options.only in f"{s.kind.title}: {s.name}"]

    def rounds(self, verb, lease):
        """None for a lease that this verb would take too long for."""
        often = next((often for longest, often in ROUNDS[verb].items() if lease <= longest), 0)
        return often and max(1, round(often * self.options.scale))

    def keep(self, what, subject, rows):
        """What was measured of a subject replaces what there was."""
        what += f", load {self.options.load}" if self.options.load else ""
        of_server = self.saved["results"].setdefault(what, {}).setdefault(subject.kind.title, {})
        of_server[subject.name] = {"lease": subject.lease, "rows": rows}
        self.save()

    def save(self):
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(self.saved, indent=1))

    def settle(self, seconds):
        """Waits until new candidates take part, which takes longer beside busy processes."""
        time.sleep(seconds * (1 + self.options.load / os.cpu_count()))

    def note_machine(self):
        settings = {kind.title: kind.settings for kind in servers.KINDS}
        machine = f"{os.cpu_count()} cores, loopback"
        self.saved |= {"versions": versions(), "settings": settings, "machine": machine}

    def note_time(self, verb, before):
        when = f"{datetime.date.today()}, Linux {platform.release()}, load average {before:.1f} before and {os.getloadavg()[0]:.1f} after"
        self.saved.setdefault("measured", {})[verb] = when
        self.save()


def in_turns(run, groups, rounds, measurement):
    """One after the other, in a new order each round; those with fewer rounds leave early."""
    rows = collections.defaultdict(list)
    for i in range(max(rounds.values())):
        for group in random.sample(groups, len(groups)):
            if i < rounds[group.subject]:
                tell(group.subject, measurement(group), rows)
                run.settle(group.subject.settle)
    return rows


def at_once(run, groups, rounds, measurement):
    """All wait for their leases together, and begin the next round together: a candidate that starts disturbs no measurement."""
    rows = collections.defaultdict(list)
    with concurrent.futures.ThreadPoolExecutor(len(groups)) as pool:
        for _ in range(max(rounds.values())):
            for group, row in zip(groups, pool.map(measurement, groups)):
                tell(group.subject, row, rows)
            run.settle(3)
    return rows


def tell(subject, row, rows):
    rows[subject].append(row)
    print(f"{subject.kind.title}: {subject.name}, {subject.lease} s: {row}", flush=True)


def on_one_server(run, verb, what, subjects, way, measurement):
    """Measures these subjects, all of one kind, beside each other on one server."""
    server, groups = servers.start(subjects[0].kind), []
    try:
        for subject in subjects:
            groups.append(Group(subject, server))
            groups[-1].start()
        run.settle(8)
        rounds = {subject: run.rounds(verb, subject.lease) for subject in subjects}
        for subject, rows in way(run, groups, rounds, measurement).items():
            run.keep(what, subject, rows)
    finally:
        for group in groups:
            group.stop()
        server.stop()


def of_one_kind(subjects, *more):
    """Lists of those that are measured together: on the same kind of server, and alike in what else is named."""
    lists = collections.defaultdict(list)
    for subject in subjects:
        lists[subject.kind, *(key(subject) for key in more)].append(subject)
    return lists.values()


def handover(run):
    for subjects in of_one_kind(run.subjects("handover")):
        on_one_server(run, "handover", "handover", subjects, in_turns, measure.hand_over)


def crash(run):
    for subjects in of_one_kind(run.subjects("crash"), lambda s: s.lease):
        on_one_server(run, "crash", "crash", subjects, at_once, measure.crash)


def freeze(run):
    short = [s for s in run.subjects("freeze") if run.rounds("freeze", s.lease)]
    for subjects in of_one_kind(short, lambda s: s.lease):
        on_one_server(run, "freeze", "freeze", subjects, at_once, measure.freeze)
    for subjects in of_one_kind([s for s in short if s.has_command]):
        on_one_server(run, "freeze", "freeze of the tool alone", subjects, at_once, measure.freeze_tool)


def cost(run):
    """Each on a server of its own, which counts nothing else. Many roles make servers busy: then few at once, API servers alone."""
    seconds = max(5, 60 * min(1, run.options.scale))
    for roles in run.options.roles:
        subjects = [s for s in run.subjects("cost") if s.most_roles >= roles]
        alone = [s for s in subjects if s.kind is servers.Kubernetes and roles > 1]
        several(run, [s for s in subjects if s not in alone], roles, seconds, 5 if roles == 1 else 2)
        several(run, alone, roles, seconds, 1)


def several(run, subjects, roles, seconds, at_a_time):
    with concurrent.futures.ThreadPoolExecutor(at_a_time) as pool:
        waiting = {pool.submit(measure.cost, subject, roles, seconds): subject for subject in subjects}
        try:
            for done in concurrent.futures.as_completed(waiting):
                rows = collections.defaultdict(list)
                tell(waiting[done], outcome(done), rows)
                run.keep(f"cost, {roles} roles", waiting[done], rows[waiting[done]])
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # when it is interrupted; those that run end by themselves


def outcome(done):
    return {"failed": repr(done.exception())} if done.exception() else done.result()


@contextlib.contextmanager
def load(count):
    """So many processes that keep a core busy each."""
    spinning = [subprocess.Popen([COMMAND, "spin"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verbs", nargs="*", choices=[*VERBS, "table", []], metavar="VERB")
    parser.add_argument("--only", default="", metavar="TEXT", help="only subjects with this in their name: 'etcd: ', 'tenure run', 'Redis: Redisson'")
    parser.add_argument("--scale", type=float, default=1, metavar="X", help="so many times the usual rounds (0.05: does it work at all?)")
    parser.add_argument("--load", type=int, default=0, metavar="N", help="beside N processes that keep a core busy each")
    parser.add_argument("--roles", type=lambda text: [int(n) for n in text.split(",")], default=[1, 100, 1000], help="for cost: 1,100,1000")
    parser.add_argument("--out", default=servers.RIVALS / "results.json", metavar="FILE", help="raw figures; what is measured replaces what is there")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/explanation/compare.md")
    return parser.parse_args()


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = arguments()
    run, failed = Run(options), []
    verbs = [verb for verb in options.verbs or VERBS if verb != "table"]
    if verbs:
        subprocess.run([pathlib.Path(__file__).with_name("build"), "--check"], check=True)
        run.note_machine()
    for verb in verbs:
        try:
            before = os.getloadavg()[0]
            with load(options.load):
                globals()[verb](run)
            if not options.load:
                run.note_time(verb, before)
        except Exception:
            traceback.print_exc()
            failed.append(verb)
    print(table.section(run.saved))
    if options.write:
        table.write(run.saved)
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
