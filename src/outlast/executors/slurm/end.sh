# Ends the processes of one task on the node where it runs: $1 is its directory, $2 the grace in tenths of a second. With
# "list" for it the processes are only listed.
# It prints "begun", then each pid before it gets a signal, and "left" before each one that survives. The job ends with
# the last of them, and Slurm ends this step with the job.
cd "$1" && read -r root job <claimed/job || exit 1
echo begun
[ "$(cat "/proc/$root/comm" 2>/dev/null)" = outlast-guard ] || exit 0
list() {
    for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do
        [ "/proc/$child/exe" -ef "/proc/$root/exe" ] || case $(cat "/proc/$child/stat" 2>/dev/null) in
            '' | *') Z '*) ;;
            *) echo "$child" ;;
        esac
        list "$child"
    done
}
[ "$2" != list ] || { list "$root"; exit 0; }
ended= tenths=0
while found=$(list "$root") && [ -n "$found" ] && [ "$tenths" -lt $(($2 + 50)) ]; do
    for pid in $found; do
        case " $ended " in *" $pid "*) ;; *) echo "$pid" ;; esac
        if [ "$tenths" -ge "$2" ]; then
            kill -KILL "$pid"
        else
            case " $ended " in *" $pid "*) ;; *) kill -TERM "$pid" && kill -CONT "$pid" ;; esac
        fi
        ended="$ended $pid"
    done 2>/dev/null
    sleep 0.1
    tenths=$((tenths + 1))
done
for pid in $found; do echo "left $pid"; done
