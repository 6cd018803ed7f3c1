# The functions of a session's bash: restore its state, notice the end of the command, dump the state.
# bash sources this file before the snapshot, so no alias of the user is expanded in here. What runs after the
# command calls builtins with `builtin`: the command may have defined functions with their names.
# Snapshots on disk use __outlast_mark, _shopts, _hot, _pseudo, _mentions, _dirs, _complete and _new: keep these names.
__outlast_mark= __outlast_hot= __outlast_trust=0 __outlast_complete=0 __outlast_mentions= __outlast_tail=
__outlast_closing=

# One more line after the command: it saves the status of each stage of the last pipeline.
__outlast_stages=$'\n{ __outlast_pipes=("$?" "${PIPESTATUS[@]}"); } >/dev/null 2>&1'

# The EXIT trap: the command left by `exit`, or because of `set -e`. bash runs it where the command left, perhaps inside
# a function.
# It is one line, because `trap -p` writes line by line.
__outlast_net='{ __outlast_pipes=("$?" "${PIPESTATUS[@]}"); __outlast_code=$__outlast_pipes; \unset -f builtin; '
__outlast_net+='__outlast_note; \builtin printf "\n#%s locals\n" "$__outlast_mark" >&"$__outlast_out"; '
__outlast_net+='\builtin local -p >&"$__outlast_out"; \builtin mapfile -d "" -u "$__outlast_in" __outlast_traps; '
__outlast_net+='\builtin trap -p >&"$__outlast_out"; \builtin trap - DEBUG ERR RETURN; '
__outlast_net+='__outlast_save exit "$@"; } >/dev/null 2>&1; '
__outlast_net+='\builtin test -z "${__outlast_action-}" || { __outlast_again; \builtin eval "$__outlast_action"; }'

__outlast_overlay() {
    # Set the variables that only this command gets. Keep their attributes and values to compare after the command.
    builtin local __outlast_name __outlast_from
    __outlast_dropped=${__outlast_drop-}
    for __outlast_name in ${__outlast_drop-}; do builtin unset -v "$__outlast_name"; done
    for __outlast_from in "${!__outlast_env_@}"; do
        __outlast_name=${__outlast_from#__outlast_env_}
        builtin export "$__outlast_name=${!__outlast_from}"
        builtin unset -v "$__outlast_from"
        __outlast_given[$__outlast_name]="${!__outlast_name@a} ${!__outlast_name-}"
    done
    builtin unset -v __outlast_drop
}
builtin declare -A __outlast_given
__outlast_dropped= __outlast_same=()

__outlast_compare() {
    # Find those that the command did not change.
    builtin local __outlast_name
    for __outlast_name in "${!__outlast_given[@]}"; do
        [[ "${!__outlast_name@a} ${!__outlast_name-}" != "${__outlast_given[$__outlast_name]}" ]] ||
            __outlast_same+=("$__outlast_name")
    done
}

__outlast_dump_given() {
    builtin printf "\n#$__outlast_mark dropped %s\n" "$__outlast_dropped"
    builtin printf "\n#$__outlast_mark given"
    builtin printf ' %s' "${!__outlast_given[@]}"
    builtin printf "\n\n#$__outlast_mark unchanged"
    builtin printf ' %s' "${__outlast_same[@]}"
    builtin printf "\n"
    builtin unset -v __outlast_given
}

__outlast_dirs() {
    # Restore the directory stack below the current directory, its lowest entry first. Directories may be gone.
    builtin local __outlast_at
    for ((__outlast_at = $#; __outlast_at > 0; __outlast_at--)); do builtin pushd -n "${!__outlast_at}"; done >/dev/null
}

__outlast_begin() {
    # Runs right before the command is evaluated.
    # With an alias of `{`, neither the line after the command nor the trap could be parsed. No session keeps such an
    # alias, so only the command that makes it can have it; its state is not kept if it leaves by `exit`.
    if [[ $__outlast_command == *alias*[{}]=* ]]; then __outlast_tail=; builtin return; fi
    builtin trap "$__outlast_net" EXIT
    # In posix mode no function can replace a special builtin.
    if [[ ! -o posix && (-n $__outlast_mentions || $__outlast_command == *trap*) ]] &&
        ! builtin declare -F trap >/dev/null &&
        [[ -n $__outlast_mentions || $__outlast_command =~ $__outlast_shows_exit ]]; then
        __outlast_catch_traps
    fi
}

# The command sets an EXIT trap, or lists traps: `trap`, `trap -p`.
__outlast_shows_exit='trap.*([Ee][Xx][Ii][Tt]|[[:space:]]0)|trap[[:space:]]*($|-p|[;&|)}])'
builtin declare -A __outlast_pseudo

__outlast_pseudo_traps() {
    # Print the traps that bash does not show inside a function.
    builtin local __outlast_sig
    for __outlast_sig in RETURN DEBUG ERR; do
        [[ -z ${__outlast_pseudo[$__outlast_sig]-} ]] || [[ $# -gt 0 && " ${*^^} " != *$__outlast_sig* ]] ||
            builtin printf "trap -- '%s' %s\n" \
                "${__outlast_pseudo[$__outlast_sig]//\'/$__outlast_quote}" "$__outlast_sig"
    done
}
__outlast_quote="'\\''"

__outlast_catch_traps() {
    # Replace `trap`, so that the EXIT trap of the user is kept in a variable and does not replace the one above.
    trap() {
        if [[ $BASHPID != "$$" ]]; then builtin trap "$@"; return; fi
        { builtin local -; builtin set +xeu; } 2>/dev/null
        builtin local __outlast_do=- __outlast_sig __outlast_rest __outlast_ok=0
        __outlast_rest=()
        if (($# == 0)) || [[ $1 == -[lp]* ]]; then
            builtin trap -- "${__outlast_action--}" EXIT
            builtin trap "$@" || __outlast_ok=$?
            builtin trap -- "$__outlast_net" EXIT
            [[ ${1-} == -l ]] || __outlast_pseudo_traps "${@:2}"
            return "$__outlast_ok"
        fi
        [[ $1 != -- ]] || builtin shift
        if (($# > 1)); then __outlast_do=$1; builtin shift; fi
        for __outlast_sig; do
            case ${__outlast_sig^^} in
                EXIT | SIGEXIT | 0)
                    __outlast_action=$__outlast_do
                    [[ $__outlast_do != - ]] || builtin unset -v __outlast_action
                    ;;
                # `-` would be undone when this function returns; an empty action is not.
                ERR | DEBUG | RETURN)
                    builtin trap -- "${__outlast_do#-}" "$__outlast_sig"
                    __outlast_pseudo[${__outlast_sig^^}]=${__outlast_do#-}
                    ;;
                *) __outlast_rest+=("$__outlast_sig") ;;
            esac
        done
        ((${#__outlast_rest[@]} == 0)) || builtin trap -- "$__outlast_do" "${__outlast_rest[@]}" || __outlast_ok=$?
        return "$__outlast_ok"
    }
}

__outlast_refresh() {
    # bash updates BASHOPTS only when `shopt` is called; this call changes nothing else.
    if builtin shopt -q cmdhist; then builtin shopt -s cmdhist; else builtin shopt -u cmdhist; fi
    __outlast_shown=$BASHOPTS$__outlast_closing
}

__outlast_open() {
    # Open the file `$1` for the dump. Output of builtins that is needed as a value is written to it and read back,
    # because a command substitution would fork. Only append: ext4 flushes a truncated file when it is closed.
    # With varredir_close (since bash 5.2) bash would close the descriptors at once.
    if builtin shopt -q varredir_close; then
        builtin shopt -u varredir_close
        __outlast_closing=:varredir_close
    fi 2>/dev/null
    builtin exec {__outlast_out}>>"$1" {__outlast_in}<"$1"
}

__outlast_note() {
    # Save what the rest of the dump has to change first.
    __outlast_opts=$SHELLOPTS __outlast_flags=$- __outlast_posix=
    [[ $- != *[aefkuvxCET]* ]] || builtin set +aefkuvxCET
    builtin trap '' XFSZ
    ((${#__outlast_given[@]} == 0)) || __outlast_compare
    __outlast_open "$__outlast_dir/state"
    if [[ -o posix ]]; then
        builtin declare -p POSIXLY_CORRECT >&"$__outlast_out"
        builtin mapfile -d '' -t -u "$__outlast_in" __outlast_posix
        builtin set +o posix
    fi
}

__outlast_save() {
    # Runs after the command. `$1` is how it left, the rest its parameters. The traps are in the file already.
    builtin unset -v __outlast_command
    __outlast_how=$1
    builtin shift
    if [[ -w $__outlast_dir/pipes && -n ${__outlast_pipes-} ]]; then
        builtin printf '%s ' "$__outlast_how" "${__outlast_pipes[@]}" >>"$__outlast_dir/pipes"
    fi
    builtin mapfile -d '' -t -u "$__outlast_in" __outlast_traps
    if [[ ${__outlast_traps-} == *"__outlast_save exit"* ]]; then
        if [[ $__outlast_how == end && -n ${__outlast_action-} ]]; then
            builtin trap -- "$__outlast_action" EXIT
        else
            builtin trap - EXIT
        fi
    fi
    __outlast_trust=1
    # A sandbox hides this file; there the go line says whether to dump.
    [[ ! -e $__outlast_dir/before && ${__outlast_go-} != *d* ]] || __outlast_dump "$@"
}

__outlast_dump() {
    __outlast_refresh
    {
        __outlast_functions
        builtin printf "\n#$__outlast_mark %s\n%s" "options $__outlast_opts" '' "shopts $__outlast_shown" '' \
            variable "$__outlast_posix"
        builtin printf "\n#$__outlast_mark stack"
        builtin printf ' %s' "${FUNCNAME[@]}"
        builtin printf "\n\n#$__outlast_mark traps\n%s\n#$__outlast_mark umask\n" "${__outlast_traps-}"
        builtin umask
        builtin printf "\n#$__outlast_mark directory\n"
        builtin pwd
        builtin printf "\n#$__outlast_mark positional\n"
        (($# == 0)) || builtin printf ' %q' "$@"
        builtin printf "\n#$__outlast_mark dirs\n"
        ((${#DIRSTACK[@]} < 2)) || builtin printf ' %q' "${DIRSTACK[@]:1}"
        builtin printf "\n#$__outlast_mark aliases\n"
        for __outlast_name in "${!BASH_ALIASES[@]}"; do
            builtin printf 'builtin alias -- %q\n' "$__outlast_name=${BASH_ALIASES[$__outlast_name]}"
        done
        [[ ${#__outlast_given[@]} == 0 && -z $__outlast_dropped ]] || __outlast_dump_given
        # Variables from the caller may be secret, and this file stays until the next use of the session: hide each
        # with an empty local variable. Not this one, which would turn posix mode on.
        for __outlast_name in "${__outlast_same[@]}"; do
            [[ $__outlast_name == POSIXLY_CORRECT ]] || builtin local "$__outlast_name="
        done
        __outlast_variables
        builtin printf "\n#$__outlast_mark end %s %s\n" "$__outlast_how" "$__outlast_complete"
    } >&"$__outlast_out"
    exec {__outlast_out}>&- {__outlast_in}<&- # `builtin exec` would open them again
}

__outlast_functions() {
    # Most sessions have none. This lists them and `__outlast_save`, so a shell whose compgen is disabled lists nothing.
    builtin printf "\n#$__outlast_mark functions\n"
    builtin compgen -A function -X '__outlast_[!s]*'
    builtin mapfile -s 2 -t -u "$__outlast_in" __outlast_names
    ((${#__outlast_names[@]} != 1)) || builtin return 0
    # Printing thousands of lines takes longer than the rest of the dump, so functions that still come from the
    # snapshot are only named. `declare -F` prints the source file of a function while extdebug is on; DEBUG and RETURN
    # traps, which extdebug affects, are gone by now.
    builtin declare -F
    builtin mapfile -t -u "$__outlast_in" __outlast_names
    __outlast_listed=("${__outlast_names[@]#declare -* }") __outlast_names=()
    for __outlast_name in "${__outlast_listed[@]}"; do
        [[ $__outlast_name == __outlast_* ]] || __outlast_names+=("$__outlast_name")
    done
    if ((__outlast_trust && ${#__outlast_names[@]})); then
        builtin shopt -s extdebug
        builtin printf "\n#$__outlast_mark sources\n"
        builtin declare -F -- "${__outlast_names[@]}"
        builtin shopt -u extdebug
        builtin mapfile -s 2 -t -u "$__outlast_in" __outlast_names
        __outlast_names=("${__outlast_names[@]##* "$__outlast_before"}")
    fi
    for __outlast_name in "${__outlast_names[@]}"; do
        [[ -n $__outlast_name ]] || continue
        builtin printf "\n#$__outlast_mark function %s\n" "${__outlast_name%% *}"
        builtin declare -f -- "${__outlast_name%% *}"
    done
}

if ((BASH_VERSINFO[0] > 5 || BASH_VERSINFO[0] == 5 && BASH_VERSINFO[1] >= 2)); then
    __outlast_variables() {
        builtin printf "\n#$__outlast_mark variables\n"
        builtin declare -p
    }
else
    __outlast_variables() {
        # bash before 5.2 prints a value with a newline on two lines.
        while builtin read -r __outlast_name; do
            builtin printf "\n#$__outlast_mark variable\n"
            builtin declare -p -- "$__outlast_name"
        done < <(builtin compgen -v)
    }
fi

__outlast_first() {
    # The first command of a session: dump what bash sets by itself, which is part of the state before the command.
    builtin local __outlast_how=end __outlast_traps= __outlast_posix= __outlast_opts=$SHELLOPTS
    # Hide the variables that only this command gets.
    for __outlast_name in "${!__outlast_env_@}"; do builtin local "$__outlast_name="; done
    __outlast_open "$__outlast_start"
    __outlast_dump "$@" 2>/dev/null
}

__outlast_again() {
    # Before the EXIT trap of the user runs: restore $? and the options, except those that would trace this file.
    __outlast_flags=${__outlast_flags//[cisexv]/}
    builtin set "-$__outlast_flags"
    builtin return "$__outlast_code"
}
