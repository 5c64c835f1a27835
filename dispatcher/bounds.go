package dispatcher

import (
	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/schema"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/transport"
)

// bounds are those on what peers can make the dispatcher hold, and how much of them is used: first what
// all callers and all agents have, then what the one has that asks, then what a session has.
func (d *Dispatcher) bounds(who harp.Principal) (all []harp.Bound) {
	used := map[string]int64{}
	for peers, b := range map[string]*transport.Budget{"callers: ": d.ofCallers, "agents: ": d.ofAgents} {
		for _, u := range b.Use() {
			used[peers+u.Name] = u.Bytes
		}
	}
	for _, peers := range []string{"callers: ", "agents: "} {
		for _, b := range transport.Bounds() {
			if u, counted := used[peers+b.Name]; counted {
				all = append(all, harp.Bound{Name: peers + b.Name, Used: u, Most: b.Value, Unit: b.Unit, Reason: b.Reason})
			}
		}
	}
	all = append(all, d.principals.boundsOfAll()...)
	all = append(all, d.principals.bounds(who, d.store.QuotaUsed(who))...)
	all = append(all, d.documentBounds()...)
	for _, b := range transport.Bounds() {
		if _, counted := used["callers: "+b.Name]; !counted {
			all = append(all, harp.Bound{Name: b.Name, Most: b.Value, Unit: b.Unit, Reason: b.Reason})
		}
	}
	return append(all, d.otherBounds()...)
}

// documentBounds are those on what stays until somebody deletes it. Retention rules, which the store reads, are not counted here.
func (d *Dispatcher) documentBounds() []harp.Bound {
	const reason = "of all principals, of which each may have half"
	groups, windows, schedules := d.groups.room(), d.windows.room(), d.schedules.room()
	return []harp.Bound{
		{Name: "groups", Used: int64(groups.count), Most: maxGroups, Unit: "groups", Reason: reason},
		{Name: "targets of groups", Used: int64(groups.bytes), Most: maxGroupBytes, Unit: "bytes", Reason: reason},
		{Name: "windows", Used: int64(windows.count), Most: maxWindows, Unit: "windows", Reason: reason},
		{Name: "documents of windows", Used: int64(windows.bytes), Most: maxWindowBytes, Unit: "bytes", Reason: reason},
		{Name: "schedules", Used: int64(schedules.count), Most: maxSchedules, Unit: "schedules", Reason: reason},
		{Name: "documents of schedules", Used: int64(schedules.bytes), Most: maxScheduleBytes, Unit: "bytes", Reason: reason},
		{Name: "notifications", Used: int64(d.notifications.count()), Most: maxNotifications, Unit: "notifications", Reason: reason},
		{Name: "retention rules", Most: harp.MaxRetentionRules, Unit: "rules", Reason: reason},
	}
}

// otherBounds are those that are not counted.
func (d *Dispatcher) otherBounds() []harp.Bound {
	const bytes, attempts, agents = "bytes", "attempts", "agents"
	greeted, long := d.greetings.used()
	return []harp.Bound{
		{Name: "limits.handshakes", Most: int64(d.cfg.Limits.Handshakes), Unit: "a second", Reason: "with addresses that have shown a good certificate, and as many with others"},
		{Name: "limits.attempts", Most: int64(d.cfg.Limits.Attempts), Unit: attempts, Reason: "sent to a host and not ended"},
		{Name: "sessions of an agent", Most: agentSessions, Unit: "sessions", Reason: "the one, and those of others with its name that are being refused"},
		{Name: "greeting of an agent", Most: maxGreeting, Unit: bytes, Reason: "facts, procedures and attempts that it holds, up to READY"},
		{Name: "greetings", Used: greeted, Most: greetingsAtOnce, Unit: agents, Reason: "greeted at a time; one that says nothing for 3 s gives way to others"},
		{Name: "long greetings", Used: long, Most: longGreetings, Unit: agents, Reason: "of these, that have said more than 64 KiB of themselves"},
		{Name: "records of all attempts", Most: receivedBytes, Unit: bytes, Reason: "received and not committed; the windows of agents are shares of it"},
		{Name: "calls on their way into the store", Most: aloneWeight, Unit: "calls", Reason: "of one principal at a time while no others call"},
		{Name: "calls beside those of others", Most: sharedWeight, Unit: "calls", Reason: "of one principal at a time while others call, so that these do not wait behind it"},
		{Name: "schemas", Used: int64(d.hosts.catalogues.schemas.Weight()), Most: schema.MaxCached, Unit: bytes, Reason: "of procedures, ready to check arguments by"},
		{Name: "request", Most: wire.MaxSubmission, Unit: bytes, Reason: "with its signature, so that it fits into CALL"},
		{Name: "page of an answer", Most: wire.MaxPage, Unit: bytes, Reason: "records or rows in one answer"},
	}
}

// boundsOfAll are those of all principals together.
func (ps *principals) boundsOfAll() []harp.Bound {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return []harp.Bound{
		{Name: ps.callers.limit, Used: int64(ps.callers.used), Most: int64(ps.callers.most), Unit: "sessions", Reason: "of all callers, at a time"},
		{Name: ps.agents.limit, Used: int64(ps.agents.used), Most: int64(ps.agents.most), Unit: "sessions", Reason: "of all agents that dial in, at a time"},
	}
}

// bounds are those of one principal. Its jobs and queues are the store's to count.
func (ps *principals) bounds(who harp.Principal, has store.Quota) []harp.Bound {
	if isUnlimited(who) {
		return nil
	}
	sessions, stored := ps.usedBy(who)
	return []harp.Bound{
		{Name: store.QuotaName + "sessions", Used: sessions, Most: int64(ps.most.Sessions), Unit: "sessions", Reason: "of the principal that asks, at a time"},
		{Name: store.QuotaName + "bytes_per_hour", Used: stored, Most: ps.most.BytesPerHour, Unit: "bytes", Reason: "stored for the calls of the principal that asks"},
		{Name: store.QuotaName + "waiting", Used: int64(has.Waiting), Most: int64(ps.most.Waiting), Unit: "jobs", Reason: "of the principal that asks, that wait to start"},
		{Name: store.QuotaName + "queues", Used: int64(has.Queues), Most: int64(ps.most.Queues), Unit: "queues", Reason: "with jobs of the principal that asks that have not ended, or changed by it"},
	}
}
