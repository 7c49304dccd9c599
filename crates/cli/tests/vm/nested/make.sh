#!/usr/bin/env bash
# Creates the outer machine: a disk with this host's QEMU, `sandling` and one template, and an initrd that loads KVM.
#
#   make.sh WORK SANDLING KERNEL TEMPLATES PATH…     each PATH is a part of the template, relative to TEMPLATES
set -euo pipefail
work=$1 sandling=$2 kernel=$3 templates=$4
shift 4
here=$(cd "$(dirname "$0")" && pwd)
busybox=$(command -v busybox)
tree=$work/tree initrd=$work/initrd

mkdir -p "$tree"/{bin,dev,etc,home,proc,root,run,sys,templates,tmp,usr/{bin,lib,lib64,share}} "$initrd"/{bin,dev,modules,proc,root,sys}
for link in /lib /lib64; do
  if [ -L "$link" ]; then cp -P "$link" "$tree"; fi
done

programs=(/usr/bin/qemu-system-x86_64 /usr/bin/qemu-img "$sandling")
# Copy each program and its shared libraries to the same paths.
libraries=$(ldd "${programs[@]}" | grep -o '/[^ ]* (0x' | cut -d' ' -f1 | sort -u)
cp -L --parents "${programs[@]:0:2}" $libraries "$tree"
cp "$sandling" "$tree/usr/bin/sandling"
cp -rL /usr/share/qemu /usr/share/seabios "$tree/usr/share"
cp "$busybox" "$tree/bin/busybox"
(cd "$templates" && cp -r --sparse=always --parents "$@" "$tree/templates")
printf 'root:x:0:0::/root:/bin/sh\nsomebody:x:1000:1000::/home:/bin/sh\n' >"$tree/etc/passwd"
printf 'root:x:0:\nsomebody:x:1000:\nkvm:x:104:somebody\n' >"$tree/etc/group"
cp "$here/drive.sh" "$tree/drive"

cp "$busybox" "$initrd/bin/busybox"
cp "$here/init.sh" "$initrd/init"
modules=$(echo "$kernel"/lib/modules/*/kernel)
for module in drivers/block/virtio_blk virt/lib/irqbypass arch/x86/kvm/kvm arch/x86/kvm/kvm-amd; do
  xz -dc "$modules/$module.ko.xz" >"$initrd/modules/$(basename "$module").ko"
done
chmod 755 "$tree/drive" "$initrd/init"

mke2fs -q -t ext4 -O ^has_journal -m 0 -E lazy_itable_init=0 -d "$tree" "$work/disk.img" 4G
rm -r "$tree"
(cd "$initrd" && find . | "$busybox" cpio -o -H newc 2>/dev/null) >"$work/initrd.cpio"
truncate -s 4M "$work/results.tar"
