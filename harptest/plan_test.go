package harptest_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/harpcaller/harp"
)

// plan is what happens in one run of chaos, made from its seed and nothing else.
type plan struct {
	Seed      uint64
	Hosts     []string
	Heartbeat time.Duration
	DiskTime  time.Duration // that a sync takes at most
	LostAfter time.Duration
	Busy      int // attempts that an agent takes on at a time; 0: many
	Calls     []*callPlan
	Faults    []faultPlan   // in the order of their times
	Span      time.Duration // when all is healed
}

// callPlan is a call that somebody makes.
type callPlan struct {
	No          int
	At          time.Duration
	Host        string
	Work        work
	Idempotent  bool // the procedure is declared so
	Queue       string
	Concurrency int
	Priority    int
	Key         string // of idempotency
	Retry       harp.RetryPolicy
	StartAfter  time.Duration // from the beginning, as StartBefore
	StartBefore time.Duration
	OfflineWait time.Duration
	Timeout     time.Duration
	MaxExec     time.Duration
	FailFast    bool
	Again       []time.Duration // after the call: it is made again under its id
	Cancel      time.Duration   // after it was acknowledged; 0: never
	Follow      bool            // its records are followed from the beginning
	Look        time.Duration   // its state is looked at so often; 0: never
}

// work is what a procedure is asked to do: its arguments.
type work struct {
	Time time.Duration `json:"time"` // how long it takes
	Emit int           `json:"emit"` // how many records it yields meanwhile
	Fail bool          `json:"fail"`
	Deaf bool          `json:"deaf"` // it does not look at its context
}

// faultPlan is a fault, or the end of one.
type faultPlan struct {
	At   time.Duration
	Kind fault
	Host string // or harptest.CallerName; "": the dispatcher
	By   time.Duration
}

type fault string

const (
	faultCut    fault = "cut"
	faultMute   fault = "mute"
	faultDeafen fault = "deafen"
	faultDelay  fault = "delay"
	faultHeal   fault = "heal"
	faultReset  fault = "reset"
	faultCrash  fault = "crash"
	faultWipe   fault = "wipe"
	faultStop   fault = "stop" // in order
	faultStart  fault = "start"
	faultCancel fault = "cancel queue" // Host is its name
	faultPause  fault = "pause queue"  // so long as By
	faultForce  fault = "force lost"   // what is unknown

	faultLow      fault = "little space"   // on the dispatcher's disk
	faultCritical fault = "critical space" // there
	faultFull     fault = "full disk"      // of a host
	faultBroken   fault = "broken disk"    // of a host
	faultMend     fault = "mend disk"      // ends these four

	faultBackup  fault = "backup"  // of the dispatcher's store
	faultRestore fault = "restore" // of that, where the dispatcher was

	faultPrune  fault = "prune"  // what ended so long ago as By
	faultPoison fault = "poison" // the dispatcher's commits fail until it is started anew
)

// newPlan makes the plan of a seed.
func newPlan(seed uint64) *plan {
	r := rand.New(rand.NewPCG(seed, 0x68617270))
	p := &plan{Seed: seed, Heartbeat: pick(r, time.Second, 2*time.Second, 10*time.Second)}
	p.LostAfter = pick(r, 10*time.Minute, 10*time.Minute, seconds(r, 0.1, 20))
	if oneIn(r, 4) {
		p.Busy = 1 + r.IntN(3)
	}
	for i := range 1 + r.IntN(3) {
		p.Hosts = append(p.Hosts, fmt.Sprintf("h%d", i+1))
	}
	if oneIn(r, 2) {
		p.DiskTime = pick(r, time.Millisecond, 20*time.Millisecond, seconds(r, 0, 1))
	}
	queues := make([]int, 1+r.IntN(2)) // by number, how many may run
	for i := range queues {
		queues[i] = 1 + r.IntN(3)
	}
	p.Span = seconds(r, 20, 90)
	for range 3 + r.IntN(9) {
		p.addCall(r, queues)
	}
	for range pick(r, r.IntN(10), r.IntN(10), 10+r.IntN(20)) {
		p.addFault(r)
	}
	if oneIn(r, 3) {
		for range 1 + r.IntN(3) {
			p.addDisk(r)
		}
	}
	if oneIn(r, 4) {
		p.Faults = append(p.Faults, faultPlan{At: seconds(r, 0, p.Span.Seconds()), Kind: faultPrune, By: pick(r, 0, seconds(r, 0, 20))})
	}
	if oneIn(r, 4) {
		at, until := p.moment(r)
		p.Faults = append(p.Faults, faultPlan{At: at, Kind: faultPoison}, faultPlan{At: min(at+seconds(r, 0, 5), until), Kind: faultCrash},
			faultPlan{At: until, Kind: faultStart})
	}
	for _, kind := range []fault{faultCancel, faultPause, faultForce} {
		if oneIn(r, 4) {
			p.Faults = append(p.Faults, faultPlan{
				At: seconds(r, 0, p.Span.Seconds()), Kind: kind, Host: fmt.Sprintf("q%d", r.IntN(len(queues))), By: seconds(r, 0, 30),
			})
		}
	}
	slices.SortStableFunc(p.Faults, func(a, b faultPlan) int { return cmp.Compare(a.At, b.At) })
	return p
}

func (p *plan) addCall(r *rand.Rand, queues []int) {
	c := &callPlan{
		No: len(p.Calls), At: seconds(r, 0, p.Span.Seconds()*0.7), Host: pick(r, p.Hosts...),
		Work:       work{Time: pick(r, 0, 0, seconds(r, 0, 1), seconds(r, 1, 20)), Fail: oneIn(r, 6), Deaf: oneIn(r, 6)},
		Idempotent: oneIn(r, 4), Follow: oneIn(r, 2),
	}
	p.Calls = append(p.Calls, c)
	if oneIn(r, 2) {
		c.Work.Emit = 1 + r.IntN(20)
	}
	if oneIn(r, 2) {
		n := r.IntN(len(queues))
		c.Queue, c.Concurrency, c.Priority = fmt.Sprintf("q%d", n), queues[n], r.IntN(3)
	}
	if oneIn(r, 3) {
		c.Look = seconds(r, 0.2, 5)
	}
	if oneIn(r, 4) {
		c.Cancel = pick(r, time.Nanosecond, seconds(r, 0, 10))
	}
	p.addTimes(r, c)
	p.addRepeats(r, c)
}

// addTimes bounds when and how long the call may run.
func (p *plan) addTimes(r *rand.Rand, c *callPlan) {
	if oneIn(r, 6) {
		c.StartAfter = c.At + seconds(r, 0, 20)
	}
	if oneIn(r, 5) {
		c.StartBefore = max(c.At, c.StartAfter) + seconds(r, 0.001, 30)
	}
	if oneIn(r, 3) {
		c.OfflineWait = seconds(r, 0.5, 60)
	}
	if oneIn(r, 8) {
		c.Timeout = seconds(r, 0.5, 10)
	}
	if oneIn(r, 8) {
		c.MaxExec = seconds(r, 0.5, 15)
	}
	c.FailFast = oneIn(r, 12)
}

// addRepeats makes the call again, in one of the three ways.
func (p *plan) addRepeats(r *rand.Rand, c *callPlan) {
	if oneIn(r, 4) {
		c.Retry = harp.RetryPolicy{
			On:       pick(r, []harp.State{harp.StateLost}, []harp.State{harp.StateFailed, harp.StateTimedOut}, []harp.State{harp.StateLost, harp.StateFailed}),
			Attempts: 1 + r.IntN(4), Backoff: seconds(r, 0.1, 3),
		}
	}
	for range r.IntN(3) {
		if oneIn(r, 3) {
			c.Again = append(c.Again, seconds(r, 0, 20))
		}
	}
	if oneIn(r, 6) {
		c.Key = fmt.Sprintf("k%d", c.No)
		twin := *c
		twin.No, twin.At, twin.Again = len(p.Calls), c.At+pick(r, 0, seconds(r, 0, 10)), nil
		p.Calls = append(p.Calls, &twin)
	}
}

// addFault adds a fault, which ends before the span does.
func (p *plan) addFault(r *rand.Rand) {
	at, until := p.moment(r)
	host := pick(r, p.Hosts...)
	kind := pick(r, faultCut, faultMute, faultDeafen, faultDelay, faultReset, faultCrash, faultCrash, faultCrash, faultWipe, faultStop)
	switch r.IntN(8) {
	case 0:
		host, kind = "caller", pick(r, faultCut, faultReset, faultDelay)
	case 1:
		host, kind = "", pick(r, faultCrash, faultStop)
	}
	end := faultHeal
	switch kind {
	case faultCrash, faultWipe, faultStop:
		end = faultStart
	default:
	}
	p.Faults = append(p.Faults, faultPlan{At: at, Kind: kind, Host: host, By: seconds(r, 0, 4)})
	if kind != faultReset {
		p.Faults = append(p.Faults, faultPlan{At: until, Kind: end, Host: host})
	}
}

// addDisk adds a disk in trouble.
func (p *plan) addDisk(r *rand.Rand) {
	at, until := p.moment(r)
	host, kind := pick(r, p.Hosts...), pick(r, faultFull, faultFull, faultBroken)
	if oneIn(r, 2) {
		host, kind = "", pick(r, faultLow, faultCritical)
	}
	p.Faults = append(p.Faults, faultPlan{At: at, Kind: kind, Host: host}, faultPlan{At: until, Kind: faultMend, Host: host})
}

// moment is when a fault begins and ends.
func (p *plan) moment(r *rand.Rand) (at, until time.Duration) {
	at = seconds(r, 0, p.Span.Seconds())
	if oneIn(r, 2) { // while something happens
		c := pick(r, p.Calls...)
		at = min(c.At+pick(r, 0, c.Work.Time)+pick(r, seconds(r, 0, 0.1), seconds(r, 0, 2)), p.Span)
	}
	return at, min(at+pick(r, seconds(r, 0, 3), seconds(r, 0, 40)), p.Span)
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func oneIn(r *rand.Rand, n int) bool { return r.IntN(n) == 0 }

func seconds(r *rand.Rand, from, to float64) time.Duration {
	return time.Duration((from + r.Float64()*(to-from)) * float64(time.Second)).Round(time.Millisecond)
}

// String is the plan as its reader wants it: in the order of time.
func (p *plan) String() string {
	type line struct {
		at   time.Duration
		text string
	}
	var lines []line
	for _, c := range p.Calls {
		lines = append(lines, line{c.At, fmt.Sprintf("call %+v", *c)})
	}
	for _, f := range p.Faults {
		lines = append(lines, line{f.At, fmt.Sprintf("%s %s by %v", f.Kind, cmp.Or(f.Host, "dispatcher"), f.By)})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	var text strings.Builder
	fmt.Fprintf(&text, "seed %d, hosts %v, heartbeat %v, lost after %v, disks take %v, busy at %d, healed at %v\n",
		p.Seed, p.Hosts, p.Heartbeat, p.LostAfter, p.DiskTime, p.Busy, p.Span)
	for _, l := range lines {
		fmt.Fprintf(&text, "%10v %s\n", l.at, l.text)
	}
	return text.String()
}
