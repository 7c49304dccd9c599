#!/bin/busybox sh
# Init of the outer machine: loads the disk and KVM modules, and continues from the disk.
set -e
b=/bin/busybox
$b mount -t devtmpfs dev /dev
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
for module in virtio_blk irqbypass kvm kvm-amd; do
  $b insmod /modules/$module.ko
done
$b mount -t ext4 /dev/vda /root
for place in dev proc sys; do
  $b mount --move /$place /root/$place
done
exec $b switch_root /root /drive
