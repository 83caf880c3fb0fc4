"""What was measured, as a section of docs/explanation/compare.md."""

import itertools
import math
import re
import statistics
import textwrap

from servers import ROOT
from subjects import SUBJECTS

PAGE = ROOT / "docs/explanation/compare.md"
HEADING = "## Measured side by side"
BEFORE = "## When to take something else"

TITLES = {"handover": "hand-over", "crash": "`kill -9`", "freeze": "overlap", "cost": "operations"}
MAIN = ["server", "elected by", "lease", "hand-over, ms: p50 / p99 / max (n)", "`kill -9`, s: p50 / max (n)",
        "overlap, ms: p50 / max (n)", "operations a minute, 3 nodes: 1 → 100 → 1000 roles", "RSS, MB"]
LOADED = ["beside so many busy processes", "server", "elected by", "lease", "hand-over, ms: p50 / p99 / max (n)", "`kill -9`, s: p50 / max (n)"]
NODE = ["requests a minute of one node", "lease", "roles", "leader", "standby", "writes of all three"]

NOT_COMPARABLE = """\
- `tenure run` and `etcdctl lock` hand over from command to command, with a fork and an exec; the others lead within a process.
- etcd renews every third of a lease, so that on average more of it has passed when a leader dies: its median is lower.
- River's lease is fixed and its statements are those of its job queue too. ZooKeeper grants what its ticks allow (40 s of 60 s).
- A statement, a packet, a message and a request are not the same work: compare operations on one server only.
- One server each, on loopback: no network, and no group of servers."""


def section(saved, there=""):
    """Headed as in the page, up to the comment that ends each section there. What was not measured stays as the page has it."""
    results = saved["results"]
    parts = [HEADING, "<!-- written by: benches/rivals/run.py table --write -->", introduction(saved, there),
             main_table(results, rows_there(there, 3, MAIN)), loaded_table(results, rows_there(there, 4, LOADED)),
             node_table(results, rows_there(there, 3, NODE)), "What is not comparable:", wrapped(NOT_COMPARABLE),
             "<!-- shown by: benches/rivals/run.py -->"]
    return "\n\n".join(part for part in parts if part) + "\n"


def write(saved):
    """Replaces the section in the page, or adds it."""
    page = PAGE.read_text()
    before, found, rest = page.partition(HEADING + "\n")
    there, _, after = (rest if found else page).partition(BEFORE)
    before = before if found else page.partition(BEFORE)[0]
    PAGE.write_text(before + section(saved, there if found else "") + "\n" + BEFORE + after)


def rows_there(text, keys, head):
    """The rows of the table with this head, by their first columns."""
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in text.splitlines() if line.startswith("| ")]
    begin = next((i for i, row in enumerate(rows) if row == head), len(rows))
    rows = itertools.takewhile(lambda row: len(row) == len(head), rows[begin + 2:])
    return {tuple(row[:keys]): row for row in rows}


def merged(keys, rows, there):
    """Measured rows, and those that are there; of a row that is both, what was not measured."""
    both = {tuple(row[:keys]): row for row in rows}
    for key, old in there.items():
        both[key] = [new or old for new, old in zip(both.get(key, old), old)]
    order = {(subject.kind.title, subject.name): i for i, subject in enumerate(SUBJECTS)}
    return sorted(both.values(), key=lambda row: min(order.get(pair, len(order)) for pair in zip(row, row[1:])))


def wrapped(text):
    """Items of lists are indented, and code stays on one line."""
    text = re.sub("`[^`]*`", lambda code: code[0].replace(" ", "\0"), text)
    fill = lambda line: textwrap.fill(line, 100, subsequent_indent="  " * line.startswith("- "), break_long_words=False, break_on_hyphens=False)
    return "\n".join(fill(line) for line in text.splitlines()).replace("\0", " ")


def introduction(saved, there):
    tested = [f"{title} {saved['versions'][title]} ({setting})" for title, setting in saved.get("settings", {}).items()]
    rivals = [f"{title} {version}" for title, version in saved.get("versions", {}).items() if title not in saved["settings"]]
    # One line for each measurement, so that those of another day stay.
    lines = {m[1]: m[0] for m in re.finditer(r"^- (.+): .+, load average .+$", there, re.MULTILINE)}
    for verb, when in saved.get("measured", {}).items():
        lines[TITLES[verb]] = f"- {TITLES[verb]}: {when}"
    return "\n\n".join([
        wrapped("[benches/rivals](../../benches/rivals/README.md) runs three candidates of each on the same server and measures them in "
                "turns. Hand-over: from the end of the leader's work to the next election. `kill -9`: from the signal to the next "
                "election. Overlap: how long a leader that was frozen and replaced works on after it wakes up."),
        wrapped("\n".join(lines[title] for title in TITLES.values() if title in lines) + f"\n- {saved.get('machine', '')}\n"
                f"- servers: {', '.join(tested)}\n- {', '.join(rivals)}"),
    ])


def main_table(results, there):
    rows = [[server, name, f"{lease} s", hand_over(results, server, name), crash(results, server, name),
             freeze(results, server, name), *cost(results, server, name)]
            for server, name, lease in everyone(results)]
    return markdown(MAIN, merged(3, [row for row in rows if any(row[3:])], there))


def loaded_table(results, there):
    loads = sorted({int(m[1]) for what in results if (m := re.search(r", load (\d+)$", what))})
    rows = [[str(n), server, name, f"{lease} s", hand_over(results, server, name, f", load {n}"), crash(results, server, name, f", load {n}")]
            for n in loads for server, name, lease in everyone(results)]
    return markdown(LOADED, merged(4, [row for row in rows if any(row[4:])], there))


def node_table(results, there):
    """Servers that tell their clients apart; where roles moved, no node was leader or standby all the time."""
    rows = []
    for what, servers in results.items():
        for server, subjects in servers.items() if what.startswith("cost, ") else ():
            for name, subject in subjects.items():
                row = subject["rows"][0]
                rate = row.get("a minute", {})
                if "leader" in rate and not row["moved"]:
                    figures = [f"{rate[each]:.0f}" for each in ("leader", "standby", "writes")]
                    rows.append([f"{server}: {name}", f"{subject['lease']} s", what.split()[1], *figures])
    return markdown(NODE, merged(3, rows, there))


def everyone(results):
    """(server, name, lease) of each that was measured."""
    everyone = [(subject.kind.title, subject.name, subject.lease) for subject in SUBJECTS]
    return [each for each in everyone if any(each[1] in servers.get(each[0], {}) for servers in results.values())]


def rows_of(results, what, server, name):
    return results.get(what, {}).get(server, {}).get(name, {}).get("rows", [])


def values(rows, key):
    return sorted(row[key] for row in rows if key in row)


def p99(ordered):
    return ordered[math.ceil(0.99 * len(ordered)) - 1]


def cell(rows, *parts):
    """The parts that there are, and how many rounds failed."""
    count = sum("failed" in row for row in rows)
    return "; ".join(part for part in (*parts, f"{count} failed" if count else "") if part)


def hand_over(results, server, name, suffix=""):
    rows = rows_of(results, "handover" + suffix, server, name)
    times = values(rows, "ms")
    shown = " / ".join(f"{time:.1f}" for time in (statistics.median(times), p99(times), times[-1])) if times else ""
    return cell(rows, shown and f"{shown} ({len(times)})")


def crash(results, server, name, suffix=""):
    rows = rows_of(results, "crash" + suffix, server, name)
    times = values(rows, "ms")
    shown = f"{statistics.median(times) / 1e3:.2f} / {times[-1] / 1e3:.2f} ({len(times)})" if times else ""
    return cell(rows, shown, outlived(values(rows, "command outlived, ms")))


def outlived(times):
    """Of commands whose leader was killed."""
    if not times or times[-1] == 0:
        return ""
    lives_on = sum(time > 2_900 for time in times)
    return f"the command lives on, {lives_on} of {len(times)}" if lives_on else f"the command outlived it by {times[-1]:.1f} ms"


def freeze(results, server, name):
    whole, tool = (rows_of(results, what, server, name) for what in ("freeze", "freeze of the tool alone"))
    return "; ".join(part for part in (overlap(whole, "overlap", ""), overlap(whole, "overlap by IsLeader()", "`IsLeader()` "),
                                       overlap(tool, "overlap", "tool alone ")) if part)


def overlap(rows, key, title):
    times, never = values(rows, key), len(values(rows, f"{key} never ended"))
    shown = f"{statistics.median(times):.1f} / {times[-1]:.1f} ({len(times)})" if times else ""
    return cell(rows if times else [], shown and title + (f"never found out ({never} of {len(times)})" if never else shown))


def cost(results, server, name):
    """Operations, and memory, for each number of roles."""
    rates, memory = [], []
    for what in sorted((what for what in results if re.fullmatch(r"cost, \d+ roles", what)), key=lambda what: int(what.split()[1])):
        for row in rows_of(results, what, server, name):
            rates.append(rate(row, int(what.split()[1])))
            memory += [f"{row['RSS']:.0f}"] if "RSS" in row else []
    unit = next((key for what in results for row in rows_of(results, what, server, name) for key in row.get("a minute", {})), "")
    return [" → ".join(rates) + (f" {unit}" if rates else ""), " → ".join(memory)]


def rate(row, roles):
    """A server that is overrun does not have all roles led, or has leaders that lose them."""
    if "failed" in row:
        return "failed"
    shown = f"{next(iter(row['a minute'].values())):.0f}"
    if row["led"] < roles:
        return f"{shown} ({row['led']} of {roles} led)"
    return f"{shown} ({row['moved']} moved)" if row["moved"] else shown


def markdown(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) if rows else ""
