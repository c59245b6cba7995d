# The loop of the shell, run as its prompt command: there errors and interrupts end a command and not the shell, as at a
# prompt, but no job notices are printed. SIGINT returns to the prompt, where the loop is entered again.
#
# Output of the loop itself (a trap on DEBUG, tracing) goes to the channel, where text in front of a record is ignored.
# A timeout of `read` overrides TMOUT. Commands run outside of that redirection, so that `exec >file` in them lasts.
\builtin unset PROMPT_COMMAND
while {
__t=$?
# The last command did not report: it ended by `continue` or an error, or was not wrapped.
[[ -v __s ]] || { __s=$__t; REPORT; }
# W has a prologue of its own, B counts bytes. The last pattern is for every command.
\builtin read "-r${TMOUT+t999999999}" -N 20 -u 80 __n && case $__n in
"#"*) \builtin read "-r${TMOUT+t999999999}" -N "${__n:1:18}" -u 80 __c; \builtin printf "\0\1K\0\2" ;;
WB*) LC_ALL=C \builtin read "-r${TMOUT+t999999999}" -N "${__n:2:7}" -u 80 __p ;;&
WA*) \builtin read "-r${TMOUT+t999999999}" -N "${__n:2:7}" -u 80 __p ;;&
?B*) LC_ALL=C \builtin read "-r${TMOUT+t999999999}" -N "${__n:9:10}" -u 80 __c ;;&
?A*) \builtin read "-r${TMOUT+t999999999}" -N "${__n:9:10}" -u 80 __c ;;&
# Whether it can be parsed as a whole: defining a function parses it without running it.
W*) { \builtin eval "__c() { $__c"$'\n}' && \builtin unset -f __c; } || __n=F ;;&
# From here on SIGINT ends the command. One that was ignored before was announced by a line on the channel.
*) \builtin trap - INT
! \builtin read -t 0 -u 80 || { \builtin trap "" INT; \builtin printf "\0\1N\0\2"; __n=N; } ;;
esac
} >&80 2>&80
do
case $__n in
L*) \builtin eval "$__c" ;;
W*) \builtin eval "$__p"$'\n'"{ $__c"$'\n}; ''{ __s=$?; REPORT; } >&80 2>&80' ;;
F*) \builtin eval "$__p"$'\n'"$__c" ;;
esac
done <>/dev/null 2>&81
\builtin printf "\0\1T\0\2" >&80 || \builtin exit
