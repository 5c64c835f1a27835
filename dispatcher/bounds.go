package dispatcher

import (
	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher/internal/inventory"
	"github.com/harpcaller/harp/internal/schema"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/transport"
)

// What peers can make a dispatcher hold, and do at a time, beside what stands in transport and what is configured. The methods below, which
// harp doctor shows, say what each is for.
const (
	// agentSessions is how many sessions of one agent there are at most: one, the one in whose place it
	// comes, and those of machines with its name that are being refused.
	agentSessions = 16

	// politeRefusals is how many callers, and how many agents, are told at a time why they are refused.
	// Others are closed.
	politeRefusals = 64

	// operationsPart is the part of BytesPerHour that operations have, for themselves: so whoever has used up its bytes by calls can
	// still pause, end and delete, and whoever does that without end does not fill the disk.
	operationsPart = 16

	// maxGreeting is how many bytes an agent may say in its greeting, or in a later list of its procedures: 60,000 attempts that are
	// held, or 1,000 procedures of 8 KiB. With more than shortGreeting it is a long one. There are greetingsAtOnce at a time, and
	// longGreetings of the long ones: each kind has 64 MiB in all.
	maxGreeting     = 8 << 20
	shortGreeting   = 64 << 10
	greetingsAtOnce = 1024
	longGreetings   = 8

	// maxForgotten is how many attempts that a host's agent is told to forget the feed names in an hour: as many as an agent that means well may hold.
	maxForgotten = 30_000

	// receivedBytes is about how many bytes of records may have been received and not committed.
	receivedBytes = 16 << 20

	// watcherBytes is how much of the last committed records is kept for followers that are up to date, for each job that
	// somebody follows; of many jobs less, so that all stay within allWatchersBytes. answerBytes is about how much all answers to
	// followers that are being made have, and unreadBytes how much is on its way to those of one session.
	watcherBytes     = 256 << 10
	allWatchersBytes = 32 << 20
	answerBytes      = 4 << 20
	unreadBytes      = 8 << 20

	// maxKeptRequests is how many requests of batches are kept in memory, and maxKeptRequestBytes how many bytes of them.
	maxKeptRequests     = 64
	maxKeptRequestBytes = 8 << 20

	// aloneWeight is how much of one principal's calls may be on their way into the store at a time while
	// no others come: as many as two commits take. sharedWeight is how much of it may be while others come: as many as make
	// the commits that those wait for hardly longer.
	aloneWeight  = 256
	sharedWeight = 8

	// aloneChanges is how many changes of documents, schedules and hosts, most of which are made one at a time, one principal may have under way while no
	// others come, and sharedChanges how many while they do: so many of each other flood a change waits for.
	aloneChanges  = 16
	sharedChanges = 4

	// How many documents there may be, and how many bytes of each kind.
	maxGroups        = 1000
	maxGroupBytes    = 8 << 20
	maxWindows       = 1000
	maxWindowBytes   = 32 << 20
	maxWindowWeight  = 1_000_000 // names of all their targets together; another item weighs more
	maxSchedules     = 10_000
	maxScheduleBytes = 64 << 20
	maxNotifications = 200

	// maxDependents is how many schedules may come after one: that a run of it has ended is noted with all of them in one commit.
	// maxRuns is how many runs of a schedule it waits for, and maxBackfillWalk how many of its times a backfill looks at.
	maxDependents   = 32
	maxRuns         = 100
	maxBackfillWalk = 100_000

	// maxPending is how many messages of a notification wait, beyond which the notification does; maxGivenUp is how many are kept for a
	// retry. maxTests is how many notifications are tested at a time.
	maxPending      = 1000
	maxPendingBytes = 16 << 20
	maxGivenUp      = 1000
	maxGivenUpBytes = 16 << 20
	maxTests        = 8

	// maxShared is how many sets of windows and pauses are kept for hosts to share.
	maxShared = 1000

	// maxRegistry is how many bytes a hosts script may print.
	maxRegistry = 64 << 20
)

const inBytes = "bytes"

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
	all = append(all, d.agentBounds()...)
	return append(all, d.callBounds()...)
}

// documentBounds are those on what stays until somebody deletes it. Retention rules, which the store reads, and marks of drift are not counted here.
func (d *Dispatcher) documentBounds() []harp.Bound {
	const reason = "of all callers together; one may have half of them"
	groups, windows, schedules := d.groups.room(), d.windows.room(), d.schedules.room()
	return []harp.Bound{
		{Name: "groups", Used: int64(groups.count), Most: maxGroups, Unit: "groups", Reason: reason},
		{Name: "targets of groups", Used: int64(groups.bytes), Most: maxGroupBytes, Unit: inBytes, Reason: reason},
		{Name: "windows", Used: int64(windows.count), Most: maxWindows, Unit: "windows", Reason: reason},
		{Name: "documents of windows", Used: int64(windows.bytes), Most: maxWindowBytes, Unit: inBytes, Reason: reason},
		{Name: "targets of windows", Most: maxWindowWeight, Unit: "names", Reason: "of all windows together, matched with each host that connects; other terms than names count for more"},
		{Name: "sets of windows", Most: maxShared, Unit: "sets", Reason: "kept, each for the hosts that are in the same windows and paused alike"},
		{Name: "schedules", Used: int64(schedules.count), Most: maxSchedules, Unit: "schedules", Reason: reason},
		{Name: "documents of schedules", Used: int64(schedules.bytes), Most: maxScheduleBytes, Unit: inBytes, Reason: reason},
		{Name: "schedules after one", Most: maxDependents, Unit: "schedules", Reason: "that come after one, which the commit that ends its run notes"},
		{Name: "runs of a schedule", Most: maxRuns, Unit: "runs", Reason: "whose ends it still waits for"},
		{Name: "times of a backfill", Most: maxBackfillWalk, Unit: "times", Reason: "that are looked at"},
		{Name: "notifications", Used: int64(d.notifications.count()), Most: maxNotifications, Unit: "notifications", Reason: reason},
		{Name: "messages that wait", Most: maxPending, Unit: "messages", Reason: "of a notification; with that many it reads no further events"},
		{Name: "bytes of messages that wait", Most: maxPendingBytes, Unit: inBytes, Reason: "of a notification; with that many it reads no further events"},
		{Name: "messages given up", Most: maxGivenUp, Unit: "messages", Reason: "of a notification, kept for a retry"},
		{Name: "bytes of messages given up", Most: maxGivenUpBytes, Unit: inBytes, Reason: "of a notification, kept for a retry"},
		{Name: "tests of notifications", Most: maxTests, Unit: "tests", Reason: "at a time, because each waits for a receiver"},
		{Name: "retention rules", Most: harp.MaxRetentionRules, Unit: "rules", Reason: reason},
		{Name: "drifts", Most: harp.MaxDrifts, Unit: "names", Reason: "under which checks mark hosts"},
	}
}

// agentBounds are those on what agents, and what lists hosts, can make the dispatcher hold.
func (d *Dispatcher) agentBounds() []harp.Bound {
	const agents = "agents"
	greeted, long := d.greetings.used()
	return []harp.Bound{
		{Name: "limits.handshakes", Most: int64(d.cfg.Limits.Handshakes), Unit: "a second", Reason: "from addresses that have shown a good certificate, and as many from others"},
		{Name: "limits.attempts", Most: int64(d.cfg.Limits.Attempts), Unit: "attempts", Reason: "sent to a host that have not ended"},
		{Name: "sessions of an agent", Most: agentSessions, Unit: "sessions", Reason: "its own, and those of others with its name while they are refused"},
		{Name: "refusals", Most: politeRefusals, Unit: "peers", Reason: "callers, and as many agents, that are being told why they are refused; further ones are just disconnected"},
		{Name: "greeting of an agent", Most: maxGreeting, Unit: inBytes, Reason: "its facts, procedures and attempts, up to READY"},
		{Name: "greetings", Used: greeted, Most: greetingsAtOnce, Unit: agents, Reason: "greeted at a time; one that is silent for 3 s gives way to others"},
		{Name: "long greetings", Used: long, Most: longGreetings, Unit: agents, Reason: "of these, whose greeting is longer than a short one"},
		{Name: "short greeting", Most: shortGreeting, Unit: inBytes, Reason: "from an agent while there are no more long greetings to be had"},
		{Name: "forgotten attempts of a host", Most: maxForgotten, Unit: "an hour", Reason: "named in the feed, because its agent held them and nobody knows them"},
		{Name: "records of all attempts", Most: receivedBytes, Unit: inBytes, Reason: "received and not yet committed; agents' windows are shares of it"},
		{Name: "facts of a host", Most: inventory.MaxFacts, Unit: "paths", Reason: "kept to match targets"},
		{Name: "schemas", Used: int64(d.hosts.catalogues.schemas.Weight()), Most: schema.MaxCached, Unit: inBytes, Reason: "of procedures, compiled to check arguments"},
		{Name: "hosts script", Most: maxRegistry, Unit: inBytes, Reason: "of its output"},
	}
}

// callBounds are those on what calls and their followers can make the dispatcher hold.
func (d *Dispatcher) callBounds() []harp.Bound {
	return []harp.Bound{
		{Name: "calls on their way into the store", Most: aloneWeight, Unit: "calls", Reason: "of one principal at a time while no others call"},
		{Name: "calls beside those of others", Most: sharedWeight, Unit: "calls", Reason: "of one principal at a time while others call, so that they need not wait behind it"},
		{Name: "changes under way", Most: aloneChanges, Unit: "changes", Reason: "of documents and hosts, of one principal at a time while no others come"},
		{Name: "changes beside those of others", Most: sharedChanges, Unit: "changes", Reason: "of one principal at a time while others come, so that they need not wait behind it"},
		{Name: "request", Most: wire.MaxSubmission, Unit: inBytes, Reason: "with its signature, so that it fits into CALL"},
		{Name: "page of an answer", Most: wire.MaxPage, Unit: inBytes, Reason: "records or rows in one answer"},
		{Name: "requests of batches", Most: maxKeptRequests, Unit: "requests", Reason: "kept in memory, because all members of a batch are sent the same"},
		{Name: "bytes of requests of batches", Most: maxKeptRequestBytes, Unit: inBytes, Reason: "of these together"},
		{Name: "records for the followers of a job", Most: watcherBytes, Unit: inBytes, Reason: "the latest, for followers that are up to date"},
		{Name: "records for all followers", Most: allWatchersBytes, Unit: inBytes, Reason: "shared by all followed jobs"},
		{Name: "pages for followers", Most: answerBytes, Unit: inBytes, Reason: "being made, shared by all that ask"},
		{Name: "pages for the followers of a session", Most: unreadBytes, Unit: inBytes, Reason: "on their way to the session"},
	}
}

// boundsOfAll are those of all principals together.
func (ps *principals) boundsOfAll() []harp.Bound {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return []harp.Bound{
		{Name: ps.callers.limit, Used: int64(ps.callers.used), Most: int64(ps.callers.most), Unit: "sessions", Reason: "of all callers together"},
		{Name: ps.agents.limit, Used: int64(ps.agents.used), Most: int64(ps.agents.most), Unit: "sessions", Reason: "of all agents that dial in"},
	}
}

// bounds are those of one principal. Its jobs and queues are the store's to count.
func (ps *principals) bounds(who harp.Principal, has store.Quota) []harp.Bound {
	if isUnlimited(who) {
		return nil
	}
	sessions, stored, changed := ps.usedBy(who)
	return []harp.Bound{
		{Name: store.QuotaName + "sessions", Used: sessions, Most: int64(ps.most.Sessions), Unit: "sessions", Reason: "of the caller that asks"},
		{Name: store.QuotaName + "bytes_per_hour", Used: stored, Most: ps.most.BytesPerHour, Unit: inBytes, Reason: "stored for calls of the caller that asks"},
		{Name: "operations of a principal", Used: changed, Most: ps.most.BytesPerHour / operationsPart, Unit: inBytes, Reason: "stored in an hour for what the caller that asks pauses, cancels, deletes and changes"},
		{Name: store.QuotaName + "waiting", Used: int64(has.Waiting), Most: int64(ps.most.Waiting), Unit: "jobs", Reason: "of the caller that asks, waiting to start"},
		{Name: store.QuotaName + "queues", Used: int64(has.Queues), Most: int64(ps.most.Queues), Unit: "queues", Reason: "with jobs that have not ended of the caller that asks, or changed by it"},
	}
}
