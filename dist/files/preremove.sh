#!/bin/sh
# Before a removal, or an upgrade, in which nothing is stopped. dpkg says which, rpm how many versions stay.
set -e
case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
	systemctl disable --now harp-dispatcher.service harp-agent.service
fi
