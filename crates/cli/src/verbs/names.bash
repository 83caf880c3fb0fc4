
# Names of roles, nodes and tasks, asked of the agent or the store that the environment names.
_tenure_names() {
    _tenure "$@"
    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" kind="" word
    [[ "$cur" == -* ]] && return
    case "$prev" in
        # Without this names of files are offered too.
        --to) kind=nodes COMPREPLY=() ;;
        --role|-r) kind=roles COMPREPLY=() ;;
        -*) return ;;
        *)
            for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
                case "$word" in
                    status|history|watch|transfer|step-down|pause|resume|forget|pin|eligible) kind=roles; break ;;
                    # `probe` is followed by what is asked, and `leader` by a role.
                    leader) [[ " ${COMP_WORDS[*]} " == *" probe leader "* ]] && kind=roles; break ;;
                    drain) kind=nodes; break ;;
                    task) kind=tasks; break ;;
                esac
            done ;;
    esac
    [[ -n "$kind" ]] && COMPREPLY+=($(compgen -W "$("${COMP_WORDS[0]}" names "$kind" 2>/dev/null)" -- "$cur"))
}
complete -F _tenure_names -o nosort -o bashdefault -o default tenure
