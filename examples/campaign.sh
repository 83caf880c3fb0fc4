#!/usr/bin/env bash
# Works only while it leads a role, through the agent of this host.
#
# Run with: examples/campaign.sh /run/tenure/agent.sock scheduler
socket=$1 role=$2 token=0 deadline=0

# The kernel rounds down to hundredths: later is safer.
uptime_ms() { local up rest; read -r up rest </proc/uptime; echo $((10#${up/./} * 10 + 10)); }
value() { local text=${line#*\"$1\":}; echo "${text%%[,\}]*}"; }

coproc agent { exec curl -sN --unix-socket "$socket" -H 'Tenure-Request: true' "http://localhost/v1/campaign/$role"; }
trap 'kill $agent_PID 2>/dev/null' EXIT
while true; do
  if IFS= read -r -t 0.02 line <&"${agent[0]}"; then
    case $line in
      *'"event":"elected"'* | *'"event":"renewed"'*)
        token=$(value token) up=$(value uptime)
        deadline=$(printf '%.0f' "$(echo "$up" | sed 's/\(\.[0-9]*\)$/\1000/; s/\.\([0-9]\{3\}\).*/\1/')") ;;
      *'"event":"draining"'*) # stop first, and then say so
        deadline=0
        curl -s --unix-socket "$socket" -H 'Content-Type: application/json' \
          -d "{\"token\":$token,\"campaign\":$(value campaign)}" \
          "http://localhost/v1/campaign/$role/ready" >/dev/null ;;
      *'"event":"lost"'*) deadline=0 ;;
    esac
  elif [ $? -le 128 ]; then
    exit 1 # the stream is closed: nothing more will be heard
  fi
  # Asked before every piece of work, which carries the token.
  if [ "$(uptime_ms)" -lt "$deadline" ]; then echo "working under token $token"; fi
done
