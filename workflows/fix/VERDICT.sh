# The first line of the review decides.
if [ "$(head -n 1 "$ORCHESTRATOR_INPUT_FILE")" = APPROVED ]; then
    rm -f .attempts
    tail -n +2 "$ORCHESTRATOR_INPUT_FILE" > "$ORCHESTRATOR_OUTPUT_FILE"
    # The payload is the content of the file.
    echo '<result></result>'
else
    { echo 'The tests pass. A review says:'; cat "$ORCHESTRATOR_INPUT_FILE"; } > "$ORCHESTRATOR_OUTPUT_FILE"
    # Back in the session from before the review.
    echo '<goto>RETRY</goto>'
fi
