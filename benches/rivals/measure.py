"""The four measurements. Three candidates each; whoever leaves is replaced. Times are told by the candidates themselves."""

import json
import random
import signal
import subprocess
import time

import servers
from candidates import Group, descendants, send
from subjects import TENURE

now = time.monotonic_ns
WATCHED = 12.0  # how long one that was frozen is watched after it goes on, in seconds
LED_FOR = 12.0  # a leader that crashes has led for so long, in seconds: what the election before it began is over
LED_WITHIN = 120.0  # how long a first candidate may take until it leads all roles, in seconds


def milliseconds(since, until):
    return (until - since) / 1e6


def next_leader(group, since, old):
    """When the next one was elected; a group that stays without a leader begins anew."""
    elected = group.elected(since, 3 * group.subject.lease + 20, but=old)
    if elected is None:
        group.replace(old)
        group.elected(0, 60)
    return elected


def hand_over(group):
    """From the end of the old leader's work, when its library is told, to the next one's election."""
    time.sleep(random.uniform(0.2, 0.5))
    old, asked = group.leader(), now()
    send(descendants(old.process.pid) if group.subject.ends_with_command else [old.process.pid], signal.SIGTERM)
    elected = next_leader(group, asked, old)
    if elected is None:
        return {"failed": "no leader"}
    try:
        old.process.wait(5)
    except subprocess.TimeoutExpired:
        pass
    resigned = asked if group.subject.is_silent else old.last("RESIGNED")
    group.replace(old)
    return {"ms": milliseconds(resigned, elected)} if resigned else {"failed": "it did not say that it resigned"}


def crash(group):
    """From `kill -9` of the leader, not of its command, to the next election."""
    time.sleep(LED_FOR + random.uniform(0, group.subject.lease / 3))  # anywhere between two renewals
    old = group.leader()
    tree, killed = old.tree(), now()
    old.process.kill()
    elected = next_leader(group, killed, old)
    if elected is None:
        return {"failed": "no leader"}
    row = {"ms": milliseconds(killed, elected)}
    if group.subject.has_command:
        time.sleep(3)
        row["command outlived, ms"] = max(0.0, milliseconds(elected, old.last("W")))
        send(tree, signal.SIGKILL)
    group.replace(old)
    return row


def freeze(group, with_command=True):
    """SIGSTOP of the leader, SIGCONT a second after the next election: how long does the old one still believe that it leads?"""
    time.sleep(random.uniform(0.5, 1.5))
    old = group.leader()
    tree = old.tree()
    frozen, stopped = (tree if with_command else tree[:1]), now()
    send(frozen, signal.SIGSTOP)
    elected = next_leader(group, stopped, old)
    if elected is None:
        return {"failed": "no leader"}
    time.sleep(1)
    continued = now()
    send(reversed(frozen), signal.SIGCONT)
    watch(old, continued)
    began = continued if with_command else elected
    row = {"ms": milliseconds(stopped, elected), **overlap(old, "W", began, "overlap")}
    if old.times("I"):
        row |= overlap(old, "I", began, "overlap by IsLeader()")
    send(tree, signal.SIGKILL)
    group.replace(old)
    return row


def freeze_tool(group):
    return freeze(group, with_command=False)


def watch(old, continued):
    """Until it has found out, and for 300 ms after the last line of its work."""
    end = time.monotonic() + WATCHED
    while time.monotonic() < end:
        quiet = now() - max(old.last("W"), old.last("I"), continued) > 3e8
        if quiet and (old.last("LOST") > continued or old.process.poll() is not None or now() - continued > 2e9):
            return
        time.sleep(0.02)


def overlap(old, word, began, name):
    late = [time_ for time_ in old.times(word) if time_ > began]
    never = bool(late) and milliseconds(late[-1], now()) < 100
    return {name: milliseconds(began, late[-1]) if late else 0.0, **({f"{name} never ended": True} if never else {})}


def cost(subject, roles, seconds):
    """What the server counts in a minute of a leader and two standbys at rest, and how much memory each has."""
    server = servers.start(subject.kind)
    group = Group(subject, server, roles)
    try:
        first = group.spawn()
        led = await_roles(group)
        group.spawn(), group.spawn()
        time.sleep(15 + roles / 25)  # until what standbys do when they start is over
        before, began = server.count(), now()
        time.sleep(seconds)
        after, minutes = server.count(), (now() - began) / 6e10
        rates = {name: (after[name] - before.get(name, 0)) / minutes for name in after}
        moved = sum(time_ > began for each in group.candidates.values() for time_ in each.times("ELECTED"))
        rss = [candidate.rss() for candidate in group.candidates.values()]
        return {"led": led, "moved": moved, "RSS": max(rss), "a minute": by_duty(rates, first.node)}
    finally:
        group.stop()
        server.stop()


def by_duty(rates, leader):
    """Counts of nodes become those of the leader and of a standby."""
    total = {name: rate for name, rate in rates.items() if " of n" not in name}
    nodes = {name.rsplit(" ", 1)[1]: rate for name, rate in rates.items() if " of n" in name}
    if not nodes:
        return total
    standbys = {f"standby {node}": rate for node, rate in nodes.items() if node not in (leader, "n0")}  # n0 only asks who leads
    return {**total, "leader": nodes.get(leader, 0), "standby": sum(standbys.values()) / max(1, len(standbys)), **standbys}


def await_roles(group):
    """How many roles the first candidate leads, when it leads all or time is up: an API server that is overrun never has them all."""
    end = time.monotonic() + LED_WITHIN
    while (led := roles_led(group)) < group.roles and time.monotonic() < end:
        time.sleep(1)
    return led


def roles_led(group):
    elections = sum(len(candidate.times("ELECTED")) for candidate in group.candidates.values())
    return elections if group.subject.name != "tenure agent" else roles_of_agents(group)


def roles_of_agents(group):
    status = subprocess.run([TENURE, "status", "--store", group.server.url("n0"), "--format", "json"], capture_output=True, text=True)
    return sum(role["leader"] is not None for role in json.loads(status.stdout)["roles"]) if status.returncode == 0 else 0
