#!/bin/sh
# After a removal. What a dispatcher and an agent keep is not deleted, not by a purge either: there are
# results in it that somebody may come back for.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
if [ "$1" = purge ]; then
	for dir in /var/lib/harp /var/lib/harp-agent; do
		[ ! -e "$dir" ] || echo "harp: $dir stays; delete it if nobody needs what it has"
	done
fi
