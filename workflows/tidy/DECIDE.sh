# Carries out the list after a yes. The input is what the person answered.
case $(tr -d ' .!\n' < "$ORCHESTRATOR_INPUT_FILE" | tr 'A-Z' 'a-z') in
yes | y)
    while IFS=$'\t' read -r old new || [ -n "$old" ]; do
        mkdir -p "$(dirname "$new")"
        # A step that was interrupted runs again: what is moved already stays.
        if [ -e "$old" ]; then mv -n -- "$old" "$new" || exit 1; fi
    done < moves.tsv
    rm -f .faults
    echo "<result>moved $(grep -c . moves.tsv) files; moves.tsv has the list</result>"
    ;;
no | n)
    echo '<result>nothing was moved</result>'
    ;;
*)
    { echo 'The person who decides says:'; cat "$ORCHESTRATOR_INPUT_FILE"; } > "$ORCHESTRATOR_OUTPUT_FILE"
    echo '<goto>REVISE</goto>'
    ;;
esac
