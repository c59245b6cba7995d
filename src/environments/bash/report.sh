# Prints the traps, saves the options, and resets both, so that the loop is invisible to them and unaffected; prints the
# jobs; sends the rest in a record. From here on SIGINT is ignored until the next command begins.
\builtin trap -p DEBUG ERR INT; __t=$-; \builtin trap "" INT; \builtin trap - DEBUG; \builtin set +vx; \builtin jobs -l; \builtin printf "\0\1%s\0%s\0%s\0%s\0\2" KIND "$__s" "$__t" "${PWD-}"
