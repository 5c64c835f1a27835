#!/bin/sh
# After an installation, or an upgrade. dpkg says "configure" and the version before, rpm how
# many versions there are.
set -e
upgrade=no
case "$1" in
configure) [ -z "$2" ] || upgrade=yes ;;
[2-9]*) upgrade=yes ;;
esac

if ! getent passwd harp >/dev/null; then
	useradd --system --user-group --home-dir /var/lib/harp --no-create-home --shell /usr/sbin/nologin --comment "harp dispatcher" harp
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	if [ "$upgrade" = yes ]; then
		# What runs goes on: at the agents for a dispatcher, commands under their supervisors for an agent.
		systemctl try-restart harp-dispatcher.service harp-agent.service
	fi
fi
