#!/busybox sh
# The first process of a guest, on the root file system that support/guest_image.py makes: mounts what a
# Linux machine has, runs /command with its output on the console for SECONDS_LEFT at most, and switches off.
if [ "${1:-}" != again ]; then
    # runc cannot leave the kernel's first root file system (pivot_root(2)), but a bind mount on top of it.
    /busybox mkdir -p /root-on-top
    /busybox mount --bind / /root-on-top
    cd /root-on-top
    /busybox mount --move . /
    exec /busybox chroot . /init again
fi
export PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root
/busybox mount -t proc proc /proc
/busybox mount -t sysfs sysfs /sys
/busybox mount -t devtmpfs devtmpfs /dev
for directory in /dev/shm /run /tmp /var/lib; do
    /busybox mkdir -p "$directory"
    # A checkout below /tmp is part of the image.
    [ "$directory" = /tmp ] && [ -n "$(/busybox ls -A /tmp)" ] && continue
    /busybox mount -t tmpfs tmpfs "$directory"
done
chmod 1777 /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
for module in /modules/*; do insmod "$module"; done
hostname guest
ifconfig lo 127.0.0.1 up
stty -F /dev/ttyS1 raw -echo
echo booted >/dev/ttyS1
timeout -s KILL "$SECONDS_LEFT" sh /command >/dev/console 2>&1 </dev/null
echo "ended $?" >/dev/ttyS1
poweroff -f
