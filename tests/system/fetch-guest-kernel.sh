#!/bin/sh
# Fetch Debian's cloud kernel and unpack what the tests in a guest need of it; this machine's own is left alone.
# Usage: fetch-guest-kernel.sh [DIRECTORY], by default build/guest-kernel. Needs apt-get and 100 MB for a moment.
set -eu
target=${1:-build/guest-kernel}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: \(linux-image-[0-9]\)/\1/p' | head -n 1)
[ -n "$package" ] || { echo "apt knows no linux-image-cloud-amd64; run apt-get update first" >&2; exit 1; }
(cd "$work" && apt-get download --quiet "$package")
dpkg-deb --fsys-tarfile "$work"/*.deb | tar -x -C "$work" --wildcards \
    '*/boot/vmlinuz-*' '*/kernel/fs/overlayfs/*'
rm -rf "$target"
mkdir -p "$target"
cp "$work"/boot/vmlinuz-* "$target/vmlinuz"
find "$work" -name '*.ko' -exec cp {} "$target" \;
echo "$package is in $target"
