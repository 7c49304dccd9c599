#!/usr/bin/env bash
# A clean Debian or Ubuntu without a compiler, in which packages are tried. Sourced by the other scripts, which set `scratch`
# to a directory and `dist` to the packages. SANDLING_DIST_SUITE names the release, such as trixie or noble; by default it is
# this host's. Needs root.

certificates=/etc/ssl/certs/ca-certificates.crt
suite=$(. /etc/os-release && echo "${SANDLING_DIST_SUITE:-$VERSION_CODENAME}")

make_clean_root() {
  local archive=()
  rm -rf "$scratch/root"
  case $suite in
  jammy | noble | plucky | questing)
    # Debian's apt knows neither Ubuntu's archive nor its keys.
    curl --fail --silent --show-error --location --output "$scratch/ubuntu.gpg" \
      https://archive.ubuntu.com/ubuntu/project/ubuntu-archive-keyring.gpg
    archive=(--keyring="$scratch/ubuntu.gpg" --components=main,universe)
    set -- http://archive.ubuntu.com/ubuntu
    ;;
  esac
  mmdebstrap --quiet --variant=minbase --include=apt,ca-certificates "${archive[@]}" "$suite" "$scratch/root" "$@"
  for file in /etc/resolv.conf /etc/pip.conf /etc/npmrc ~/.npmrc; do
    [ ! -e "$file" ] || install -D -m 644 "$file" "$scratch/root${file/#$HOME//root}"
  done
}

# Runs a shell line in the clean root. It has this host's network, certificates and settings for package registries, no
# more. Further arguments are options of bubblewrap, which covers parts of /proc; builds of templates need all of it.
clean() { # LINE [OPTION…]
  local line=$1
  shift
  bwrap --clearenv --bind "$scratch/root" / --dev-bind /dev /dev --proc /proc --bind /sys /sys --perms 1777 --tmpfs /tmp \
    --ro-bind "$dist" /dist --ro-bind "$certificates" "$certificates" --setenv PIP_CERT "$certificates" \
    --setenv SSL_CERT_FILE "$certificates" --setenv NODE_EXTRA_CA_CERTS "$certificates" --cap-add ALL --unshare-pid \
    --die-with-parent --setenv HOME /root --setenv PATH /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    --setenv LANG C.UTF-8 --setenv DEBIAN_FRONTEND noninteractive --chdir /root "$@" sh -euc "mount -t proc proc /proc; $line"
}
