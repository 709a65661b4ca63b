#!/bin/sh
# Fetch the containerd of another Debian release and unpack its programs; installed packages and apt's own
# configuration and lists are left alone. Usage: fetch-containerd.sh [RELEASE [DIRECTORY]], by default
# trixie (containerd 1.7, with NRI) and build/containerd-1.7. Needs apt-get and 200 MB for a moment.
set -eu
release=${1:-trixie}
target=${2:-build/containerd-1.7}
mirror=$(apt-get indextargets --format '$(CREATED_BY) $(ORIGIN)/$(LABEL) $(COMPONENT) $(REPO_URI)' |
    sed -n 's|^Packages Debian/Debian main ||p' | head -n 1)
[ -n "$mirror" ] || { echo "apt has no list of Debian's main archive; run apt-get update first" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/parts"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release main" >"$work/sources.list"
separate() {
    apt-get --quiet -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts="$work/parts" \
        -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts="$work/parts" \
        -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" -o Acquire::Languages=none -o APT::Sandbox::User=root "$@"
}
separate update
(cd "$work" && separate download containerd)
dpkg-deb --fsys-tarfile "$work"/containerd_*.deb | tar -x -C "$work" --wildcards './usr/bin/*'
rm -rf "$target"
mkdir -p "$target"
cp "$work"/usr/bin/* "$target"
"$target/containerd" --version
