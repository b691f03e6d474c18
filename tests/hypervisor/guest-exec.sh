#!/bin/bash
# Runs a shell command in a guest through its agent: prints its output and exits with its status.
# usage: guest-exec.sh NAME DOMAIN 'command'
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
use "${1:?name}"; domain=${2:?domain} shell=${3:?command}

agent() { virsh qemu-agent-command --timeout 30 "$domain" "$1"; }
request=$(/usr/bin/python3 -c 'import json, sys
print(json.dumps({"execute": "guest-exec", "arguments": {"path": "/bin/sh", "arg": ["-c", sys.argv[1]], "capture-output": True}}))' "$shell")
pid=$(agent "$request" | sed -nE 's/.*"pid": *([0-9]+).*/\1/p')
# The agent has no event for it.
until reply=$(agent '{"execute": "guest-exec-status", "arguments": {"pid": '"$pid"'}}') && [[ $reply =~ \"exited\":\ *true ]]; do
  sleep 0.3
done
/usr/bin/python3 -c 'import base64, json, sys
reply = json.load(sys.stdin)["return"]
sys.stdout.write(base64.b64decode(reply.get("out-data", "")).decode(errors="replace"))
sys.stderr.write(base64.b64decode(reply.get("err-data", "")).decode(errors="replace"))
sys.exit(reply.get("exitcode", 128 + reply.get("signal", 0)))' <<< "$reply"
