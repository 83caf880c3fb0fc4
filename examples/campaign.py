#!/usr/bin/env python3
"""Works only while it leads a role, through the agent of this host. No library is needed.

Run with: python3 examples/campaign.py /run/tenure/agent.sock scheduler
"""
import http.client, json, socket, sys, threading, time

path, role = sys.argv[1:3]
token, deadline = 0, 0.0  # the deadline is on the boot clock, which this host's agent reads too


class Agent(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)


def uptime():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def work():
    while True:
        now = uptime()
        if now < deadline:  # asked before every piece of work, which carries the token
            print(f"{now:.9f} {token}", flush=True)
        time.sleep(0.005)


def campaign():
    global token, deadline
    agent = Agent("localhost")
    agent.request("GET", f"/v1/campaign/{role}", headers={"Tenure-Request": "true"})
    answer = agent.getresponse()
    if answer.status != 200:
        return print(json.load(answer).get("detail"), file=sys.stderr)
    for line in answer:
        if not line.startswith(b"data:"):
            continue
        event = json.loads(line[5:])
        if event["event"] in ("elected", "renewed"):
            token, deadline = event["token"], event["deadline"]["uptime"]
        else:  # draining or lost: stop first, and then say so
            deadline = 0.0
            if event["event"] == "draining":
                ready = Agent("localhost")
                body = json.dumps({"token": event["token"], "campaign": event["campaign"]})
                ready.request("POST", f"/v1/campaign/{role}/ready", body, {"Content-Type": "application/json"})
                ready.getresponse()


threading.Thread(target=work, daemon=True).start()
while True:
    try:
        campaign()
    except OSError as error:
        print(f"{path}: {error}", file=sys.stderr)
    deadline = 0.0  # the stream is closed: nothing more will be heard
    time.sleep(0.1 if token else 1)
