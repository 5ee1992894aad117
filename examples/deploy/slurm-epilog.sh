#!/bin/bash
# Epilog of slurmd: ends the measurement that the prolog started. slurm.conf: Epilog=/etc/slurm/probe_sync-epilog.sh
set -u

file=/run/probe_sync.$SLURM_JOB_ID.pid
[ -e "$file" ] || exit 0
pid=$(cat "$file")
rm -f "$file"
# runuser passes SIGTERM on. The run ends after its current window and writes its result.
kill -TERM "$pid" 2> /dev/null
for _ in $(seq 100); do
    kill -0 "$pid" 2> /dev/null || exit 0
    sleep 0.2
done
kill -KILL "$pid" 2> /dev/null
exit 0
