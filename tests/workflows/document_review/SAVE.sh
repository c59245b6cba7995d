#!/bin/bash
# Written under another name first, so that no half of a review is read.
printf '%s: %s\n' "$RAYMOND_AGENT_ID" "$RAYMOND_RESULT" > "reviews/.$RAYMOND_AGENT_ID"
mv "reviews/.$RAYMOND_AGENT_ID" "reviews/$RAYMOND_AGENT_ID"
echo "<result>saved</result>"
