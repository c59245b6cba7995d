# Runs the tests. Only they lead to the review, whatever the model says.
report=$TMPDIR/report
if python3 -m unittest discover -s tests > "$report" 2>&1 && ! grep -q '^Ran 0 tests' "$report"; then
    # A function has a session of its own: the reviewer does not know how the code came about.
    echo '<function return="VERDICT">REVIEW</function>'
else
    # What is written to this file is the input of the next state as it is; a tag in it is text.
    { echo 'The tests fail:'; tail -c 6000 "$report"; } > "$ORCHESTRATOR_OUTPUT_FILE"
    echo '<goto>RETRY</goto>'
fi
