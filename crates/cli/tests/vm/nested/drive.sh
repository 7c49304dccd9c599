#!/bin/busybox sh
# Runs the steps inside the outer machine. Each step writes NAME.out, NAME.err, NAME.code and the time before and after.
# The files go to the second disk as a tar archive, and the machine powers off.
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin HOME=/root SANDLING_TEMPLATES=/templates
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
mount -t cgroup2 cgroup /sys/fs/cgroup
chmod 1777 /tmp

# Like systemd: enable controllers for the root's children, and move this process into a child.
mkdir /sys/fs/cgroup/session
echo 0 >/sys/fs/cgroup/session/cgroup.procs
echo +memory +cpu +pids +io >/sys/fs/cgroup/cgroup.subtree_control

# Like udev.
chgrp kvm /dev/kvm
chmod 660 /dev/kvm

results=/tmp/results
mkdir $results

step() {
  name=$1
  shift
  echo "$(cut -d' ' -f1 /proc/uptime) s: $name"
  date +%s >$results/$name.before
  "$@" >$results/$name.out 2>$results/$name.err
  echo $? >$results/$name.code
  date +%s >$results/$name.after
  cat $results/$name.err
}

export SANDLING_HOME=/home/root
step doctor sandling doctor --json
step bake sandling --accelerator kvm run --json --template nested --language bash -c 'echo baked'
step python sandling --accelerator kvm run --json --template nested -c 'print(6 * 7)'
step seen sandling run --template nested --language bash \
  -c 'dmesg | grep -o "Hypervisor detected: .*"; date +%s; exit 7'

# An unprivileged user with access to /dev/kvm, the same templates and a separate home.
mkdir /home/somebody
chown -R somebody:somebody /home/somebody /templates
step somebody su somebody -c 'SANDLING_HOME=/home/somebody sandling run --json --template nested -c "print(6 * 7)"'

find /templates -name 'kvm-*' >$results/bakes
tar -cf /dev/vdb -C $results .
sync
poweroff -f
