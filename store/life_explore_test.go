package store_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// records is not an event of a life: a store notes them by itself.
const records store.Kind = "records"

// alphabet is every event, with what may stand in it.
var alphabet = []store.Event{
	{Kind: store.Claimed},
	{Kind: store.Started},
	{Kind: store.NotNow, Wake: begin.Add(time.Hour)},
	{Kind: store.NotNow, Reason: "start_before"},
	failed(store.Refused, "rejected"),
	{Kind: store.CancelReq},
	stopped(store.Stop, harp.LimitSilenceTimeout),
	{Kind: store.Stop, Left: []int{7}},
	{Kind: store.Stop},
	{Kind: store.End, Dropped: true},
	{Kind: store.End, Value: harp.Value{1}},
	failed(store.End, "remote"),
	stopped(store.End, "cancel"),
	stopped(store.End, harp.LimitSilenceTimeout),
	{Kind: store.Expire, Reason: harp.ReasonOffline},
	{Kind: store.Silent, Wake: begin.Add(time.Hour)},
	{Kind: store.Withdrawn},
	{Kind: store.Alive},
	stopped(store.Alive, "cancel"),
	{Kind: store.Gone},
	lose(harp.LostAgentRestarted),
	lose(harp.LostTooLong),
	lose(harp.LostForced),
	lose(harp.LostJournalGone),
	lose(harp.LostRestored),
	lose(harp.LostHostRemoved),
}

// path is a life with what it has been through.
type path struct {
	life    store.Life
	started bool // a sign of a procedure having started was admitted
	slots   int
	events  []store.Kind
}

// step lets one event happen and checks what must hold whatever it was.
func (p path) step(t testing.TB, e store.Event) (path, bool) {
	t.Helper()
	if e.Kind == records {
		return p.noted()
	}
	l := p.life
	attempts := slices.Clone(l.Attempts)
	e = about(l, e, len(p.events))
	next, effect, err := l.Next(e)
	if !slices.Equal(attempts, l.Attempts) {
		t.Fatalf("%v: %s changed the life it was asked about", p.events, e.Kind)
	}
	if err != nil {
		if !reflect.DeepEqual(next, l) || effect != (store.Effect{}) {
			t.Fatalf("%v: %s was refused and changed the life to %+v", p.events, e.Kind, next)
		}
		return p, false
	}
	q := path{life: next, started: p.started, slots: p.slots, events: append(slices.Clip(p.events), e.Kind)}
	if e.Kind == store.Started || e.Kind == store.Alive || e.Kind == store.End || len(e.Left) > 0 {
		q.started = true
	}
	if effect.Takes {
		q.slots++
	}
	if effect.Gives {
		q.slots--
	}
	q.check(t, l, effect)
	q.checkRetry(t, l, effect)
	return q, true
}

// noted is the path after records of the last attempt have come.
func (p path) noted() (path, bool) {
	if len(p.life.Attempts) == 0 || !store.HoldsSlot(p.life.State) && !p.life.GivenUp() {
		return p, false
	}
	p.life.Attempts = slices.Clone(p.life.Attempts)
	p.life.Attempts[len(p.life.Attempts)-1].Next++
	p.events = append(slices.Clip(p.events), records)
	if !p.life.State.Ended() {
		p.started = true
	}
	return p, true
}

func (p path) check(t testing.TB, was store.Life, effect store.Effect) {
	t.Helper()
	l := p.life
	bad := func(rule string) { t.Fatalf("%v: %s: %+v, was %+v", p.events, rule, l, was) }
	holds := 0
	if store.HoldsSlot(l.State) {
		holds = 1
	}
	switch {
	case l.Started == harp.DidNotRun && p.started && !was.State.Ended():
		bad("I0: it says that it did not run, and it has started")
	case (l.Started == "") == l.State.Ended():
		bad("started is said exactly of what has ended")
	case p.slots != holds:
		bad("slots taken and given back do not balance")
	case was.State.Ended() && (effect != store.Effect{Late: true} || !onlyLate(was, l)):
		bad("it had ended and changed")
	case effect.Ends != (l.State.Ended() && !was.State.Ended()):
		bad("the effect does not say that it ended")
	case l.State == harp.StateUnknown && (l.UnknownOf == "" || l.UnknownOf == harp.StateUnknown):
		bad("unknown of nothing")
	case l.State != harp.StateUnknown && (l.UnknownOf != "" || l.Held != ""):
		bad("it is known and says of what it is unknown")
	case !l.WakeAt.IsZero() && l.State != harp.StateQueued && l.State != harp.StateUnknown:
		bad("it waits for a time and does not wait")
	case l.State.Ended() && l.Failure.Code != "" && l.Failure.Ran != l.Started:
		bad("its failure says other than itself whether it started")
	case (l.State == harp.StateLost || l.State == harp.StateExpired) && l.Failure.Type != l.Reason:
		bad("its failure says other than itself why")
	case len(l.Left) > 0 && !store.HoldsSlot(l.State):
		bad("processes are left of it and nothing of it runs")
	case l.Busy > 0 && (l.Reason == harp.ReasonBackoff || l.State == harp.StateRunning):
		bad("its agent was too busy and took it")
	case l.Fence < was.Fence || l.Attempt < was.Attempt:
		bad("its fence or attempt went back")
	case len(l.Attempts) != l.Attempt:
		bad("it does not have as many attempts as it says")
	case l.Attempt == was.Attempt && backwards(was, l):
		bad("its state went backwards")
	case was.Cancel != nil && l.Cancel != was.Cancel:
		bad("its cancel request was replaced")
	case l.State != was.State && l.Since.Equal(was.Since):
		bad("it does not say since when")
	}
}

// checkRetry checks what must hold of a job that may have several attempts.
func (p path) checkRetry(t testing.TB, was store.Life, effect store.Effect) {
	t.Helper()
	l := p.life
	bad := func(rule string) { t.Fatalf("%v: %s: %+v, was %+v", p.events, rule, l, was) }
	var last store.Attempt
	if len(l.Attempts) > 0 {
		last = l.Attempts[len(l.Attempts)-1]
	}
	isOver := last.Outcome != "" && last.Outcome != string(store.NotNow)
	switch {
	case l.Attempt > max(1, l.Retry.Attempts):
		bad("it has more attempts than were allowed")
	case effect.Takes && was.Survivor:
		bad("another attempt is sent while the last one lives")
	case store.HoldsSlot(was.State) && was.State != harp.StateUnknown && l.State == harp.StateQueued && last.Reason == harp.LostTooLong && !l.Survivor:
		bad("an attempt was given up beside its agent, and another may follow at once")
	case l.Survivor && (l.State != harp.StateQueued || !l.GivenUp()):
		bad("an attempt survives that nobody waits for")
	case l.Outcome != nil && l.State.Ended():
		bad("it has ended and keeps the outcome of an attempt")
	case l.State == harp.StateQueued && isOver && (l.Outcome == nil || string(l.Outcome.State) != last.Outcome):
		bad("it waits after an attempt and does not say how that ended")
	case l.State == harp.StateQueued && isOver && (l.Attempt >= l.Retry.Attempts || !slices.Contains(l.Retry.On, l.Outcome.State)):
		bad("it waits for an attempt that was not allowed")
	case l.State == harp.StateQueued && l.Cancel != nil:
		bad("a cancel was asked for and it waits to start")
	case l.State == harp.StateQueued && l.Stopping != nil:
		bad("it waits to start and is being stopped")
	case store.HoldsSlot(l.State) && last.Outcome != "":
		bad("it has an attempt, which is over")
	case l.Started == harp.MayHaveRun && l.State != harp.StateLost && !isAnyLost(l):
		bad("it may have run and nothing was lost")
	case !was.StartTime.IsZero() && !l.StartTime.Equal(was.StartTime):
		bad("it started at another time")
	}
}

func isAnyLost(l store.Life) bool {
	return slices.ContainsFunc(l.Attempts, func(a store.Attempt) bool { return a.Outcome == string(harp.StateLost) })
}

// onlyLate reports whether an ended job is as it was, but for what was noted late.
func onlyLate(was, is store.Life) bool {
	had := was.Late
	was.Late = is.Late
	return had == nil && is.Late != nil && reflect.DeepEqual(was, is)
}

// order of the states within an attempt.
var order = []harp.State{harp.StateQueued, harp.StateSent, harp.StateRunning, harp.StateCancelling}

// backwards reports whether a state that was shown is taken back, other than by
// proof that nothing was started, or by the end of the attempt.
func backwards(was, is store.Life) bool {
	place := func(l store.Life) int {
		s := l.State
		if s == harp.StateUnknown {
			s = l.UnknownOf
		}
		if i := slices.Index(order, s); i >= 0 {
			return i
		}
		return len(order)
	}
	if place(is) >= place(was) {
		return false
	}
	last := is.Attempts[len(is.Attempts)-1]
	if last.Outcome == string(store.NotNow) {
		return is.State != harp.StateQueued || place(was) != 1 || !last.Started.IsZero()
	}
	return is.State != harp.StateQueued || last.Ended.IsZero()
}

// likeness is all of a path that what follows depends on: the times do not count,
// but for whether there is one.
func (p path) likeness() string {
	l := p.life
	is := func(t time.Time) int { return min(1, int(max(0, t.Sub(time.Time{})))) }
	var attempts, outcome, late string
	for _, a := range l.Attempts {
		attempts += fmt.Sprint(is(a.Started), is(a.Ended), a.Outcome, a.Reason, a.Next > 0, ";")
	}
	if o := l.Outcome; o != nil {
		outcome = fmt.Sprint(o.State, o.Reason, o.Started, o.Failure.Code, o.HasValue)
	}
	if len(l.Left) > 0 {
		outcome += "left"
	}
	if l.Late != nil {
		late = fmt.Sprint(l.Late.State, l.Late.HasValue)
	}
	stopping := ""
	if l.Stopping != nil {
		stopping = l.Stopping.Cause
	}
	return fmt.Sprint(l.State, l.Reason, l.UnknownOf, l.Held, l.Started, l.Attempt, attempts, is(l.WakeAt), l.Busy > 0,
		outcome, l.Survivor, l.Cancel != nil, stopping, is(l.StartTime), is(l.EndTime), l.Failure.Code, l.HasValue, late, p.started, p.slots)
}

// TestLifeExhaustive goes every way there is, until none leads to anything new.
func TestLifeExhaustive(t *testing.T) {
	for name, retry := range map[string]harp.RetryPolicy{"once": none, "twice": twice} {
		t.Run(name, func(t *testing.T) {
			seen := map[string]bool{}
			ways := 0
			l := store.Begin(begin, "")
			l.Retry = retry
			for next := []path{{life: l}}; len(next) > 0; {
				p := next[0]
				next = next[1:]
				for _, e := range append([]store.Event{{Kind: records}}, alphabet...) {
					q, ok := p.step(t, e)
					if !ok {
						continue
					}
					ways++
					if like := q.likeness(); !seen[like] {
						seen[like] = true
						next = append(next, q)
					}
				}
			}
			t.Logf("%d lives, %d ways between them", len(seen), ways)
		})
	}
}

// TestLifeSeeds goes far, at random: HARP_SEEDS lives, or the one of HARP_SEED.
func TestLifeSeeds(t *testing.T) {
	from, to := uint64(0), number(t, "HARP_SEEDS", 20_000)
	if one := number(t, "HARP_SEED", 0); one != 0 {
		from, to = one-1, one
	}
	for seed := from + 1; seed <= to; seed++ {
		wander(t, seed)
	}
}

func number(t *testing.T, variable string, otherwise uint64) uint64 {
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// wander is one life under a policy of up to five attempts.
func wander(t *testing.T, seed uint64) {
	defer func() {
		if t.Failed() {
			t.Logf("again with HARP_SEED=%d", seed)
		}
	}()
	random := rand.New(rand.NewPCG(seed, 0))
	l := store.Begin(begin, "")
	if n := random.IntN(6); n > 1 {
		l.Retry = harp.RetryPolicy{On: twice.On[:1+random.IntN(3)], Attempts: n, Backoff: time.Second, MaxBackoff: time.Minute}
	}
	p := path{life: l}
	for tries := 1 + random.IntN(120); tries > 0; tries-- {
		e := store.Event{Kind: records}
		if n := random.IntN(2*len(alphabet) + 1); n > 0 {
			e = alphabet[(n-1)%len(alphabet)]
		}
		e.Jitter = random.Float64()
		var ok bool
		if p, ok = p.step(t, e); ok && p.life.State.Ended() {
			tries = min(tries, 10)
		}
	}
}
