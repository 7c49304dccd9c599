#!/bin/busybox sh
# What is done inside the outer machine. Each step leaves NAME.out, NAME.err, NAME.code and the time before and after;
# all of them go to the second disk as a tar archive, and the machine goes off.
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin HOME=/root SANDLING_TEMPLATES=/templates
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
mount -t cgroup2 cgroup /sys/fs/cgroup
chmod 1777 /tmp

# As systemd leaves it: controllers for the children of the root, and we are in one of them.
mkdir /sys/fs/cgroup/session
echo 0 >/sys/fs/cgroup/session/cgroup.procs
echo +memory +cpu +pids >/sys/fs/cgroup/cgroup.subtree_control

# As udev leaves it.
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

# An ordinary user who may open /dev/kvm: of the same templates, in a home of his own.
mkdir /home/somebody
chown -R somebody:somebody /home/somebody /templates
step somebody su somebody -c 'SANDLING_HOME=/home/somebody sandling run --json --template nested -c "print(6 * 7)"'

find /templates -name 'kvm-*' >$results/bakes
tar -cf /dev/vdb -C $results .
sync
poweroff -f
