#!/bin/sh
# Runs one task of Outlast as a job: $1 is the task's directory, $2 the guard. What runs is in files, never in an argument.
# In an array $1 and its index are the directory, unless there is a $3.
umask 077
element=
if [ -n "$SLURM_ARRAY_TASK_ID" ] && [ -z "$3" ]; then element=_$SLURM_ARRAY_TASK_ID; fi
cd "$1$element" 2>/dev/null || exit 75 # this node does not see the shared directory
# A task that was submitted twice, or was ended before it began: mkdir lets one of them through, on any file system.
mkdir claimed 2>/dev/null || exit 0
echo "$$ $SLURM_JOB_ID" >claimed/job
exec 3<launch
[ ! -f before ] || exec 4<before 5<>start # what its shell restores a session from
rm -f launch # it has the variables of the command

LC_ALL=C # lengths are bytes
describe() {
    cat <&3
    for name in $(env | sed -n 's/^\(SLURMD*_[A-Z0-9_]*\)=.*/\1/p; s/^\([A-Z]*_VISIBLE_DEVICES\)=.*/\1/p'); do
        [ "$name" != SLURM_JWT ] || continue
        eval "line=$name=\$$name"
        printf 'env %d\n%s\n' "${#line}" "$line"
    done
    printf 'end 0\n\n'
}
# It becomes the guard, which ignores the TERM that a cancelled job gets and stays until nothing of the task is left.
exec "$2" --stay 0 <<END
$(describe)

END
