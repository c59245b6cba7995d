# Checks the list and asks. The person sees the list that is carried out, not what the model says about it.
problems() {
    [ -s moves.tsv ] || echo 'moves.tsv is missing or empty'
    cut -f 2 moves.tsv | sort | uniq -d | sed 's/^/two files would become /'
    while IFS=$'\t' read -r old new rest || [ -n "$old" ]; do
        case "/$old/$new/" in
        *//* | */../* | *[\<\>]*) echo "expected two plain paths below your directory: $old" ;;
        esac
        [ -z "$rest" ] || echo "expected two paths, found more: $old"
        [ -f "$old" ] || echo "there is no file $old"
        [ ! -e "$new" ] || echo "$new exists already"
    done < moves.tsv
}

touch moves.tsv
problems > "$TMPDIR/problems"
if [ ! -s "$TMPDIR/problems" ]; then
    echo '<ask next="DECIDE">'
    sed 's/\t/  ->  /' moves.tsv
    echo
    echo 'Move these files? Answer yes or no, or say what to change.'
    echo '</ask>'
    exit
fi

# A list that is never right must not cost the whole budget.
echo "$ORCHESTRATOR_RUN_ID" >> .faults
if [ "$(grep -cx "$ORCHESTRATOR_RUN_ID" .faults)" -gt 3 ]; then
    echo "the list cannot be carried out: $(head -n 1 "$TMPDIR/problems")" >&2
    exit 1
fi
{ echo 'It cannot be carried out:'; head -n 20 "$TMPDIR/problems"; } > "$ORCHESTRATOR_OUTPUT_FILE"
echo '<goto>REVISE</goto>'
