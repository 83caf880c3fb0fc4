#!/usr/bin/env python3
"""Starts the agent as systemd would by the installed unit: user, environment, directories, umask, and a socket for its
signs of life, which are printed. It leaves out the confinement, which needs systemd itself."""

import os
import pwd
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading

UNIT = "/usr/lib/systemd/system/tenure-agent.service"


def values(key):
    with open(UNIT, encoding="utf-8") as unit:
        return [line.split("=", 1)[1].strip() for line in unit if line.startswith(key + "=")]


def directory(parent, key):
    path = os.path.join(parent, values(key)[0])
    os.makedirs(path, exist_ok=True)
    os.chmod(path, int(values(key + "Mode")[0], 8))
    os.chown(path, user.pw_uid, user.pw_gid)
    return path


user = pwd.getpwnam(values("User")[0])
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.bind("/run/notify")
os.chmod("/run/notify", 0o666)

environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "USER": user.pw_name, "HOME": user.pw_dir}
environment.update(value.split("=", 1) for value in values("Environment"))
environment["NOTIFY_SOCKET"] = "/run/notify"
environment["RUNTIME_DIRECTORY"] = directory("/run", "RuntimeDirectory")
environment["STATE_DIRECTORY"] = directory("/var/lib", "StateDirectory")
environment["WATCHDOG_USEC"] = str(int(values("WatchdogSec")[0]) * 1_000_000)

agent = subprocess.Popen(
    shlex.split(values("ExecStart")[0]),
    env=environment,
    user=user.pw_uid,
    group=user.pw_gid,
    extra_groups=[],
    umask=int(values("UMask")[0], 8),
)


def listen():
    while True:
        print(re.sub(r"\s+", " ", notify.recv(4096).decode()), flush=True)


print(f"PID={agent.pid}", flush=True)
signal.signal(signal.SIGTERM, lambda *_: agent.terminate())
threading.Thread(target=listen, daemon=True).start()
code = agent.wait()
os.unlink("/run/notify")
sys.exit(code)
