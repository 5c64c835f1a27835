package agent

import (
	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// What dispatchers and direct callers can make an agent hold, and do at a time, beside what stands in transport and in [Limits]. [Bounds] says
// what each is for.
const (
	// The defaults of Limits: of MaxAttempts, of MaxJournal, for a journal in memory too, and of MaxJobSpool.
	manyAttempts    = 1024
	durableJournal  = 1 << 30
	volatileJournal = 64 << 20
	jobSpool        = 64 << 20

	// maxHeld is how many attempts the journal has at a time, of all dispatchers. All of them are listed in each greeting, of which a
	// dispatcher takes 8 MiB: they are half of that.
	maxHeld = 30_000

	// maxCallBytes is how many bytes the requests of attempts may have that are there at a time; one that has
	// more may be there alone.
	maxCallBytes = 32 << 20

	// maxHeldBytes is about how many bytes of records the attempts of an agent have in memory together, whatever
	// windows their dispatcher and callers state: beyond, each of them may have wire.MinWindow.
	maxHeldBytes = 64 << 20

	// maxResultBytes is how many bytes of results may be in memory that the journal does not have on its disk,
	// with those that functions are expected to return. Beyond, functions do not begin, and what they have
	// returned is not encoded. maxHanding is how many results that are long are encoded and handed to the journal at a time.
	maxResultBytes = 32 << 20
	maxHanding     = 4

	// maxDirectBytes is how many bytes of records and results may be in memory for all direct callers, whose
	// journal has none of them. Of a caller that has more than is left no result is kept.
	maxDirectBytes = 128 << 20

	// maxDispatcherSessions is how many sessions an agent has with dispatchers: the current one, those that
	// it takes the place of, and those that are being refused. maxCallerSessions is how many it has with direct callers, and
	// politeRefusals how many callers beyond that are told why they are refused at a time. Others are closed.
	maxDispatcherSessions = 64
	maxCallerSessions     = 1024
	politeRefusals        = 64

	// maxStores is of how many stores the agent knows the epoch, and maxStoreID how long the id of
	// one may be.
	maxStores  = 64
	maxStoreID = 128
)

// Bounds returns the bounds on what dispatchers and direct callers can make an agent of this version hold. Those that [Limits] change have
// their defaults; what is used of them is not known.
func Bounds() []harp.Bound {
	const bytes, attempts, sessions = "bytes", "attempts", "sessions"
	all := []harp.Bound{
		{Name: "limits.max_attempts", Most: manyAttempts, Unit: attempts, Reason: "that run or whose end is being reported; a sixteenth is reserved for callers that have none"},
		{Name: "requests of attempts", Most: maxCallBytes, Unit: bytes, Reason: "of all that run or whose end is being reported"},
		{Name: "records of attempts", Most: maxHeldBytes, Unit: bytes, Reason: "not yet acknowledged; beyond that, each attempt has the least window"},
		{Name: "least window", Most: wire.MinWindow, Unit: bytes, Reason: "of records of an attempt, however many attempts there are"},
		{Name: "results", Most: maxResultBytes, Unit: bytes, Reason: "that are expected or not yet on the journal's disk; beyond that, no function begins"},
		{Name: "results handed over", Most: maxHanding, Unit: "results", Reason: "long ones being encoded at a time"},
		{Name: "waiting for the disk", Most: journal.MaxWaiting, Unit: bytes, Reason: "records and results; beyond that, procedures wait"},
		{Name: "for direct callers", Most: maxDirectBytes, Unit: bytes, Reason: "records and results, which are in no journal; one caller may have half of it"},
		{Name: "limits.max_journal", Most: durableJournal, Unit: bytes, Reason: "held for dispatchers, on disk"},
		{Name: "journal in memory", Most: volatileJournal, Unit: bytes, Reason: "held for dispatchers by an agent without dir"},
		{Name: "attempts held", Most: maxHeld, Unit: attempts, Reason: "for dispatchers, which are told of all of them whenever they connect; of each dispatcher that is away the last 4096 stay"},
		{Name: "limits.max_job_spool", Most: jobSpool, Unit: bytes, Reason: "of that, for one job"},
		{Name: "sessions of dispatchers", Most: maxDispatcherSessions, Unit: sessions, Reason: "at a time, including those being refused"},
		{Name: "sessions of direct callers", Most: maxCallerSessions, Unit: sessions, Reason: "at a time; a 16th of them for one while more than half are in use"},
		{Name: "refusals", Most: politeRefusals, Unit: "callers", Reason: "that are being told why they are refused; further ones are just disconnected"},
		{Name: "stores", Most: maxStores, Unit: "stores", Reason: "of dispatchers, whose epochs are remembered"},
		{Name: "id of a store", Most: maxStoreID, Unit: bytes, Reason: "which is remembered with each store"},
	}
	for _, b := range transport.Bounds() {
		all = append(all, harp.Bound{Name: b.Name, Most: b.Value, Unit: b.Unit, Reason: b.Reason})
	}
	return all
}
