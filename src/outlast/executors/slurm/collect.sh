# Sends what is new of tasks on this node: $1 is the directory of all. Each line of the input is a task, a file and how
# much of it is known, or only a task. Each answer is a line TASK FILE OFFSET BYTES and so many bytes; "." ends a task,
# with a 1 if there is more. The record is read first and sent last: what it says is true of the output before it.
cd "$1" 2>/dev/null || cd /
known=$(cat)
most=8388608
for task in $(printf '%s\n' "$known" | sed 's/ .*//' | sort -u); do
    cd "$1/$task" 2>/dev/null || {
        echo "$task gone 0 0"
        continue
    }
    more= over=
    [ ! -f over ] || over=over
    cat record >.record 2>/dev/null
    for file in output* stderr* order; do
        [ -f "$file" ] || continue
        at=$(printf '%s\n' "$known" | sed -n "s/^$task $file //p")
        size=$(wc -c <"$file")
        count=$((size - ${at:-0}))
        [ "$count" -gt 0 ] || [ -z "$at" ] || count=0
        [ "$count" -le "$most" ] || count=$most more=1
        echo "$task $file ${at:-0} $count"
        [ "$count" -le 0 ] || tail -c "+$((${at:-0} + 1))" "$file" | head -c "$count"
    done
    small="claimed/job refused .record $over"
    [ "$(head -c 1025 .record 2>/dev/null | tail -c 1)" = ' ' ] || small="pipes start state $small" # it has ended
    for file in $small; do
        [ -z "$more" ] && [ -f "$file" ] || continue
        cp "$file" .copy
        echo "$task ${file#.} 0 $(wc -c <.copy)"
        cat .copy
    done
    echo "$task . ${more:-0} 0"
done
