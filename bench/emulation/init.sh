#!/bin/busybox sh
# First program of a measured machine: from the template's disk, with the work to do beside it.
b=/bin/busybox
$b mount -t devtmpfs dev /dev
$b insmod /virtio_blk.ko
$b mount -t ext4 /dev/vda /root
$b mount -t tmpfs run /root/run
$b mount -t tmpfs tmp /root/tmp
$b mount -t proc proc /root/proc
$b mount -t sysfs sys /root/sys
$b mount --move /dev /root/dev
$b cp /guest.py /setup.sh /root/run/
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
# A raw line: no echo, no editing.
$b stty -F /root/dev/ttyS0 raw -echo
exec $b chroot /root /usr/bin/python3 -u /run/guest.py </root/dev/ttyS0 >/root/dev/ttyS0 2>/root/dev/ttyS1
