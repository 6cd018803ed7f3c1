#!/bin/sh
# The job of a task on a node that shares no file system with the machine that submitted it. What the task needs is an
# archive at the end of this script, whose first lines set these: where tasks are on a node, which one this is, and how
# many seconds the job waits at the end until its results were collected.
umask 077
trap '' TERM # of a cancelled job: the guard notes how the task ended
[ -z "$SLURM_ARRAY_TASK_ID" ] || name="${name}_$SLURM_ARRAY_TASK_ID"
mkdir "$root" 2>/dev/null
{ [ -d "$root" ] && [ ! -L "$root" ] && [ -O "$root" ] && chmod 700 "$root"; } || exit 75 # it belongs to another user
task=$root/tasks/$name new=$root/new.$SLURM_JOB_ID
find "$root" -mindepth 1 -maxdepth 2 ! -name tasks -mtime +30 -prune -exec rm -rf {} + # what was never collected
mkdir -p "$root/tasks" "$new" && sed '1,/^# the archive$/d' "$0" | base64 -d | tar -xzf - -C "$new" bin "$name" || exit 75
mv "$new/$name" "$task" || exit 75
"$new/bin/job" "$task" "$new/bin/outlast-guard" whole
rm -rf "$new"
: >"$task/over"
until [ -e "$task/collected" ] || [ "$wait" -le 0 ]; do
    sleep 1
    wait=$((wait - 1))
done
[ ! -e "$task/collected" ] || rm -rf "$task"
exit 0
# the archive
