#!/bin/bash
# <goto>NOPE</goto>
set -e
if [ -e "$1" ]; then
  echo "<call return=\"B\">START</call>" # again
else
  cat <<'TAG'
<result># done</result>
TAG
fi
