# Counts the attempts of this run, so that a model that gets nowhere ends before its budget does.
limit=5

# One line per attempt, in the folder: HOME and TMPDIR are new after a resume.
echo "$ORCHESTRATOR_RUN_ID" >> .attempts
attempt=$(grep -cx "$ORCHESTRATOR_RUN_ID" .attempts)
if [ "$attempt" -gt "$limit" ]; then
    echo "not accepted after $limit attempts" >&2
    exit 1
fi
echo "<print>attempt $attempt of $limit</print>"
cp "$ORCHESTRATOR_INPUT_FILE" "$ORCHESTRATOR_OUTPUT_FILE"
echo '<goto>FIX</goto>'
