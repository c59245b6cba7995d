#!/bin/bash
# Runs the test of the issue, five times at most.
count_file=".attempts-$RAYMOND_AGENT_ID"
count=$(( $(cat "$count_file" 2>/dev/null || echo 0) + 1 ))
echo "$count" > "$count_file"

if bash test_issue.sh > output.txt 2>&1; then
    echo "<goto>REPORT.md</goto>"
elif [ "$count" -ge 5 ]; then
    echo "<goto>GIVE_UP.md</goto>"
else
    output=$(tr -d '"<>' < output.txt)
    echo "<goto input=\"attempt $count: $output\">FIX.md</goto>"
fi
