#!/bin/bash
# Run by mmdebstrap in the jail: tries what a hostile package would try, and prints what worked.
# $WORKSPACE, $SECRET, $MIRROR and $OTHER are replaced by the test.

worked() { echo "worked: $*"; }

# The first line that the proxy answers to a request line.
ask() {
	exec 3<>/dev/tcp/127.0.0.1/3128 || return
	printf '%s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n' "$1" >&3
	head -n 1 <&3
	exec 3>&-
}

# The one thing that must work.
ask "GET http://127.0.0.1:$MIRROR/" | grep -q ' 200 ' && worked 'the mirror'

(exec 3<>"/dev/tcp/127.0.0.1/$OTHER") 2>/dev/null && worked 'a direct connection'
ask "GET http://127.0.0.1:$OTHER/" | grep -q ' 403 ' || worked 'another server with GET'
ask "CONNECT 127.0.0.1:$OTHER" | grep -q ' 403 ' || worked 'another server with CONNECT'
ask "CONNECT 127.0.0.1:$MIRROR" | grep -q ' 403 ' || worked 'CONNECT to a mirror of http'
ask "POST http://127.0.0.1:$MIRROR/" | grep -q ' 405 ' || worked 'an upload'

cat "$SECRET" 2>/dev/null && worked 'a file of the operator'
for directory in /home /root /run /var/lib /opt /srv /sys; do
	ls -A "$directory" >/dev/null 2>&1 && worked "a look at $directory"
done
ls /var/tmp | grep -v -x "$(basename "$WORKSPACE")" && worked 'a look at the files of other programs'
cat /proc/*/environ 2>/dev/null | grep -a -q 'secret' && worked 'a variable of the operator'
env | cut -d= -f1 | grep -x -e 'OPERATOR_TOKEN' -e 'USER' -e 'SSH_AUTH_SOCK' && worked 'a variable of this process'
[ "$(ls -d /proc/[0-9]* | wc -l)" -lt 20 ] || worked 'a look at processes of the host'
ls /proc/1/fd/ 2>/dev/null && worked 'the descriptors of process 1'

(: </dev/tty) 2>/dev/null && worked 'the terminal of the operator'
touch /usr/x /etc/x 2>/dev/null && worked 'a change of the host'
mknod "$WORKSPACE/target/disk" b 259 0 2>/dev/null && worked 'a device'
mkdir -p /tmp/mounted
for kind in devtmpfs debugfs ext4; do
	mount -t "$kind" none /tmp/mounted 2>/dev/null && worked "a mount of $kind"
done
echo x 2>/dev/null >/proc/sys/kernel/core_pattern && worked 'a setting of the kernel'
perl -e 'socket(my $s, 40, 1, 0) or exit 1' 2>/dev/null && worked 'a socket to the hypervisor'
perl -e 'syscall(321, 0, 0, 0) >= 0 or $!{EPERM} and exit 1' 2>/dev/null && worked 'bpf'
grep -q 'NoNewPrivs:.1' /proc/self/status || worked 'new privileges'
grep -q '^ *0 *0 ' /proc/self/uid_map && worked 'user id 0 of the host'

echo 'the attack is over'
# It needs no finished system.
exit 1
