#!/bin/sh
# Run by mmdebstrap when Debian's packages are installed: the desktop's own programs. $1 is the tree.
set -eu
umask 022
root=$1
files=$(dirname "$0")/../desktop

install -m 0755 -t "$root/usr/local/bin" \
	"$files/start-desktop" "$files/resize-desktop" "$files/view-desktop" "$files/Xvfb" "$files/startxfce4" \
	"$files/chromium-devtools" "$files/xdotool"
install -D -m 0644 -t "$root/etc/xdg/xfce4/xfconf/xfce-perchannel-xml" "$files/keyboards.xml" \
	"$files/xfwm4.xml"
install -m 0644 "$files/chromium-flags" "$root/etc/chromium.d/sandling"

# Where E2B's desktop client looks for noVNC and Chrome.
ln -s /usr/share/novnc "$root/opt/noVNC"
ln -s chromium.desktop "$root/usr/share/applications/google-chrome.desktop"
