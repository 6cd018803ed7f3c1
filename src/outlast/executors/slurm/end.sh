# Ends the processes of one task on the node where it runs: $1 is its directory, $2 the grace in tenths of a second.
# Prints the pids that were ended, and those that survived, on two lines.
cd "$1" && read -r root node <claimed/job || exit 1
[ "$(cat "/proc/$root/comm" 2>/dev/null)" = outlast-guard ] || { echo; echo; exit 0; }
list() {
    for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do
        [ "/proc/$child/exe" -ef "/proc/$root/exe" ] || case $(cat "/proc/$child/stat" 2>/dev/null) in
            '' | *') Z '*) ;;
            *) echo "$child" ;;
        esac
        list "$child"
    done
}
ended= tenths=0
while found=$(list "$root") && [ -n "$found" ] && [ "$tenths" -lt $(($2 + 50)) ]; do
    for pid in $found; do
        known=
        case " $ended " in *" $pid "*) known=1 ;; *) ended="$ended $pid" ;; esac
        if [ "$tenths" -ge "$2" ]; then
            kill -KILL "$pid"
        elif [ -z "$known" ]; then
            kill -TERM "$pid"
            kill -CONT "$pid"
        fi
    done 2>/dev/null
    sleep 0.1
    tenths=$((tenths + 1))
done
echo $ended
echo $found
