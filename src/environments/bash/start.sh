# The first line of the shell: the channel becomes descriptor 80 and the output 81, both close-on-exec, because copies
# of a saved descriptor (10) inherit that flag. Messages of the interactive shell itself are discarded. The trap makes a
# shell that is not at a prompt die of SIGTERM.
PS1=; \unset MAILCHECK HISTFILE; { \exec 80<&10; } </dev/null; { \exec 81>&10; } 2>/dev/null; \exec 2>/dev/null; PROMPT_COMMAND='trap : TERM; trap - TERM'
