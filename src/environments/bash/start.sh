# The first line of the shell: the channel becomes descriptor 80 and the output 81, closed for whatever is started, for
# a copy of a saved descriptor inherits that. What an interactive shell says at its own level is for nobody. A shell
# that is not at a prompt dies of SIGTERM.
PS1=; \unset MAILCHECK HISTFILE; { \exec 80<&10; } </dev/null; { \exec 81>&10; } 2>/dev/null; \exec 2>/dev/null; PROMPT_COMMAND='trap : TERM; trap - TERM'
