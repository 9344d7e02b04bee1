# Pid 1 of a command's process namespace: supervisor.sh MOUNT COMMAND [ARG]...
# The command is not pid 1 itself, for which signals without a handler do
# nothing and whose end cuts off output that is still on its way.

# Standard input ends with the executor. It may have died before its death
# would send a signal.
read -t 0 && exit 1
# Both streams are one, and what this bash says about a killed child is noise.
exec 2>/dev/null
if [ -z "$1" ] || ! "$1" -n -t proc -o nosuid,nodev,noexec proc /proc </dev/null >&2 3>&-; then
	echo no proc >&3
fi
shift
unset SHLVL
"$@" </dev/null 2>&1 3>&-
code=$?
exec >/dev/null
echo "$code" >&3
# Now the executor takes what output is left and then ends the namespace.
read -r
exit "$code"
