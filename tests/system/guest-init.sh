#!/busybox sh
# The first process of a guest: mounts the host's files read-only with a fresh kernel's own file systems
# on top, runs /command there with its output on the second serial port,
# for SECONDS_LEFT at most, and switches off.
/busybox mkdir -p /proc /host
/busybox mount -t proc proc /proc
for module in /modules/*; do
    /busybox insmod "$module"
done
/busybox mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=512000 host /host
/busybox mount -t proc proc /host/proc
/busybox mount -t sysfs sysfs /host/sys
/busybox mount -t devtmpfs devtmpfs /host/dev
/busybox mount -t tmpfs tmpfs /host/run
/busybox mount -t cgroup2 cgroup2 /host/sys/fs/cgroup
/busybox hostname guest
/busybox ifconfig lo 127.0.0.1 up
/busybox cp /command /host/run/command
/busybox stty -F /host/dev/ttyS1 raw -echo
echo booted >/host/dev/ttyS1
/busybox timeout -s KILL "$SECONDS_LEFT" /busybox chroot /host /bin/sh /run/command >/host/dev/ttyS1 2>/host/dev/console </host/dev/null
/busybox poweroff -f
