#!/bin/bash
# One worker for each section; the parent goes on at once.
mkdir -p sections reviews
csplit -s -z -f sections/part- document.md '/^## /' '{*}'
for part in sections/part-*; do
    echo "<fork next=\"WAIT.sh\" section=\"$part\" reviewer=\"$RAYMOND_AGENT_ID\">REVIEW_SECTION.md</fork>"
done
