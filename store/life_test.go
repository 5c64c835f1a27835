package store_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// lifeOf takes a job through events that must be possible.
func lifeOf(t testing.TB, events ...store.Event) store.Life {
	t.Helper()
	l := store.Begin(begin, "")
	for i, e := range events {
		next, _, err := l.Next(about(l, e, i))
		if err != nil {
			t.Fatalf("event %d, %s in %s: %v", i, e.Kind, l.State, err)
		}
		l = next
	}
	return l
}

// about fills in what an event about a life has to name.
func about(l store.Life, e store.Event, second int) store.Event {
	e.At = begin.Add(time.Duration(second+1) * time.Second)
	e.Attempt, e.Fence = l.Attempt, l.Fence
	if e.Kind == store.Claimed {
		e.Fence++
	}
	return e
}

func ev(kinds ...store.Kind) []store.Event {
	var events []store.Event
	for _, k := range kinds {
		events = append(events, store.Event{Kind: k})
	}
	return events
}

func lose(reason string) store.Event { return store.Event{Kind: store.Lose, Reason: reason} }

func stopped(kind store.Kind, cause string) store.Event {
	return store.Event{Kind: kind, Stopping: &store.Stopping{Cause: cause, Limit: time.Minute}}
}

func failed(kind store.Kind, code string) store.Event {
	return store.Event{Kind: kind, Failure: harp.NewFailure(code, "message")}
}

func because(kind store.Kind, reason string) store.Event {
	return store.Event{Kind: kind, Reason: reason}
}

// A row of the table of a job's life.
type row struct {
	from    string
	past    []store.Event // what leads to it
	event   store.Event
	to      harp.State // "": refused
	reason  string
	started harp.Ran
	slot    string // takes, keeps, gives, -
	tell    bool
	code    string // of the failure
}

var (
	queued     = []store.Event{}
	sent       = ev(store.Claimed)
	running    = ev(store.Claimed, store.Started)
	cancelSent = ev(store.Claimed, store.CancelReq)
	cancelling = ev(store.Claimed, store.Started, store.CancelReq)
	limited    = append(ev(store.Claimed, store.Started), stopped(store.Stop, harp.LimitTimeout))
	unknown    = ev(store.Claimed, store.Started, store.Silent)
	unSent     = ev(store.Claimed, store.Silent)
	unCancel   = ev(store.Claimed, store.Silent, store.CancelReq)
	unStopping = ev(store.Claimed, store.Started, store.CancelReq, store.Silent)
	isLost     = append(ev(store.Claimed, store.Started), lose(harp.LostTooLong))
)

// table is the table of the life of a job, row by row.
var table = []row{
	{"queued", queued, ev(store.Claimed)[0], harp.StateSent, "", "", "takes", false, ""},
	{"queued", queued, ev(store.CancelReq)[0], harp.StateCancelled, "", harp.DidNotRun, "-", false, "cancelled"},
	{"queued", queued, because(store.Expire, "start_before"), harp.StateExpired, "start_before", harp.DidNotRun, "-", false, "expired"},
	{"queued", queued, because(store.Expire, harp.ReasonOffline), harp.StateExpired, harp.ReasonOffline, harp.DidNotRun, "-", false, "expired_offline"},
	{"queued", queued, lose(harp.LostHostRemoved), harp.StateCancelled, harp.LostHostRemoved, harp.DidNotRun, "-", false, "cancelled"},
	{"queued", queued, lose(harp.LostRestored), harp.StateLost, harp.LostRestored, harp.MayHaveRun, "-", false, "lost"},

	{"sent", sent, ev(store.Started)[0], harp.StateRunning, "", "", "keeps", false, ""},
	{"sent", sent, ev(store.NotNow)[0], harp.StateQueued, harp.ReasonAgentBusy, "", "gives", false, ""},
	{"sent", sent, because(store.NotNow, "start_before"), harp.StateExpired, "start_before", harp.DidNotRun, "gives", false, "expired"},
	{"sent", sent, failed(store.Refused, "rejected_denied"), harp.StateRejected, "rejected_denied", harp.DidNotRun, "gives", false, "rejected_denied"},
	{"sent", sent, ev(store.CancelReq)[0], harp.StateCancelling, "cancel", "", "keeps", true, ""},
	{"sent", sent, stopped(store.Stop, harp.LimitTimeout), harp.StateCancelling, harp.LimitTimeout, "", "keeps", false, ""},
	{"sent", sent, ev(store.End)[0], harp.StateSucceeded, "", harp.DidRun, "gives", false, ""},
	{"sent", sent, ev(store.Silent)[0], harp.StateUnknown, "", "", "keeps", false, ""},
	{"sent", sent, because(store.Withdrawn, harp.ReasonOffline), harp.StateQueued, harp.ReasonOffline, "", "gives", false, ""},
	{"sent", sent, because(store.Withdrawn, "start_before"), harp.StateExpired, "start_before", harp.DidNotRun, "gives", false, "expired"},
	{"sent", sent, ev(store.Alive)[0], harp.StateRunning, "", "", "keeps", false, ""},
	{"sent", sent, stopped(store.Alive, harp.LimitTimeout), harp.StateCancelling, harp.LimitTimeout, "", "keeps", false, ""},
	{"sent", sent, lose(harp.LostAgentRestarted), harp.StateLost, harp.LostAgentRestarted, harp.MayHaveRun, "gives", false, "lost"},

	{"running", running, ev(store.End)[0], harp.StateSucceeded, "", harp.DidRun, "gives", false, ""},
	{"running", running, failed(store.End, "remote"), harp.StateFailed, "", harp.DidRun, "gives", false, "remote"},
	{"running", running, ev(store.CancelReq)[0], harp.StateCancelling, "cancel", "", "keeps", true, ""},
	{"running", running, stopped(store.Stop, harp.LimitMaxExecTime), harp.StateCancelling, harp.LimitMaxExecTime, "", "keeps", false, ""},
	{"running", running, ev(store.Silent)[0], harp.StateUnknown, "", "", "keeps", false, ""},
	{"running", running, ev(store.Alive)[0], harp.StateRunning, "", "", "keeps", false, ""},
	{"running", running, lose(harp.LostJournalGone), harp.StateLost, harp.LostJournalGone, harp.MayHaveRun, "gives", false, "lost"},
	{"running", running, lose(harp.LostHostRemoved), harp.StateLost, harp.LostHostRemoved, harp.MayHaveRun, "gives", false, "lost"},

	{"cancelling, not started", cancelSent, ev(store.Started)[0], harp.StateCancelling, "cancel", "", "keeps", false, ""},
	{"cancelling, not started", cancelSent, ev(store.NotNow)[0], harp.StateCancelled, "", harp.DidNotRun, "gives", false, "cancelled"},
	{"cancelling, not started", cancelSent, ev(store.Withdrawn)[0], harp.StateCancelled, "", harp.DidNotRun, "gives", false, "cancelled"},
	{"cancelling, not started", cancelSent, failed(store.Refused, "rejected"), harp.StateRejected, "rejected", harp.DidNotRun, "gives", false, "rejected"},
	{"cancelling", cancelling, ev(store.CancelReq)[0], harp.StateCancelling, "cancel", "", "keeps", false, ""},
	{"cancelling", cancelling, stopped(store.Stop, harp.LimitTimeout), harp.StateCancelling, "cancel", "", "keeps", false, ""},
	{"cancelling", cancelling, stopped(store.End, "cancel"), harp.StateCancelled, "", harp.DidRun, "gives", false, "cancelled"},
	{"cancelling", cancelling, ev(store.End)[0], harp.StateSucceeded, "", harp.DidRun, "gives", false, ""},
	{"cancelling", cancelling, failed(store.End, "remote"), harp.StateFailed, "", harp.DidRun, "gives", false, "remote"},
	{"cancelling", cancelling, ev(store.Silent)[0], harp.StateUnknown, "", "", "keeps", false, ""},
	{"cancelling", cancelling, lose(harp.LostForced), harp.StateLost, harp.LostForced, harp.MayHaveRun, "gives", false, "lost"},
	{"cancelling, by a limit", limited, stopped(store.End, harp.LimitTimeout), harp.StateTimedOut, harp.LimitTimeout, harp.DidRun, "gives", false, "timeout"},
	{"cancelling, by a limit", limited, ev(store.CancelReq)[0], harp.StateCancelling, harp.LimitTimeout, "", "keeps", true, ""},
	{"cancelling, by a limit", limited, ev(store.Alive)[0], harp.StateCancelling, harp.LimitTimeout, "", "keeps", false, ""},

	{"unknown", unknown, ev(store.CancelReq)[0], harp.StateUnknown, "", "", "keeps", false, ""},
	{"unknown", unknown, ev(store.Alive)[0], harp.StateRunning, "", "", "keeps", false, ""},
	{"unknown", unknown, ev(store.End)[0], harp.StateSucceeded, "", harp.DidRun, "gives", false, ""},
	{"unknown", unknown, lose(harp.LostTooLong), harp.StateLost, harp.LostTooLong, harp.MayHaveRun, "gives", false, "lost"},
	{"unknown, was sent", unSent, ev(store.Alive)[0], harp.StateRunning, "", "", "keeps", false, ""},
	{"unknown, was sent", unSent, because(store.Withdrawn, harp.ReasonOffline), harp.StateQueued, harp.ReasonOffline, "", "gives", false, ""},
	{"unknown, was sent", unSent, because(store.Withdrawn, "start_before"), harp.StateExpired, "start_before", harp.DidNotRun, "gives", false, "expired"},
	{"unknown, was sent", unSent, failed(store.Refused, "rejected"), harp.StateRejected, "rejected", harp.DidNotRun, "gives", false, "rejected"},
	{"unknown, to be cancelled", unCancel, ev(store.Withdrawn)[0], harp.StateCancelled, "", harp.DidNotRun, "gives", false, "cancelled"},
	{"unknown, to be cancelled", unCancel, ev(store.Alive)[0], harp.StateCancelling, "cancel", "", "keeps", true, ""},
	{"unknown, was cancelling", unStopping, ev(store.Alive)[0], harp.StateCancelling, "cancel", "", "keeps", true, ""},
	{"unknown, was cancelling", unStopping, stopped(store.End, "cancel"), harp.StateCancelled, "", harp.DidRun, "gives", false, "cancelled"},

	// What would make a liar of somebody.
	{"running", running, ev(store.NotNow)[0], "", "", "", "", false, ""},
	{"running", running, ev(store.Withdrawn)[0], "", "", "", "", false, ""},
	{"running", running, failed(store.Refused, "rejected"), "", "", "", "", false, ""},
	{"cancelling", cancelling, ev(store.NotNow)[0], "", "", "", "", false, ""},
	{"cancelling", cancelling, failed(store.Refused, "rejected"), "", "", "", "", false, ""},
	{"unknown", unknown, ev(store.Withdrawn)[0], "", "", "", "", false, ""},
	{"unknown, was cancelling", unStopping, ev(store.Withdrawn)[0], "", "", "", "", false, ""},
	{"sent", sent, ev(store.Stop)[0], "", "", "", "", false, ""},

	{"queued", queued, ev(store.Started)[0], "", "", "", "", false, ""},
	{"queued", queued, ev(store.End)[0], "", "", "", "", false, ""},
	{"queued", queued, ev(store.Silent)[0], "", "", "", "", false, ""},
	{"queued", queued, lose(harp.LostTooLong), "", "", "", "", false, ""},
	{"sent", sent, ev(store.Claimed)[0], "", "", "", "", false, ""},
	{"sent", sent, because(store.Expire, "start_before"), "", "", "", "", false, ""},
	{"running", running, ev(store.Claimed)[0], "", "", "", "", false, ""},
	{"running", running, because(store.Expire, "start_before"), "", "", "", "", false, ""},
	{"running", running, ev(store.Started)[0], "", "", "", "", false, ""},
	{"unknown", unknown, ev(store.Silent)[0], "", "", "", "", false, ""},
	{"unknown", unknown, ev(store.Started)[0], "", "", "", "", false, ""},
	{"unknown", unknown, stopped(store.Stop, harp.LimitTimeout), "", "", "", "", false, ""},
}

func TestLifeTable(t *testing.T) {
	for _, r := range table {
		t.Run(fmt.Sprintf("%s/%s_%s", r.from, r.event.Kind, r.event.Reason), func(t *testing.T) {
			before := lifeOf(t, r.past...)
			e := about(before, r.event, 10)
			after, effect, err := before.Next(e)
			if r.to == "" {
				if !errors.Is(err, store.ErrIllegal) {
					t.Fatalf("the row: %s, %s is refused; it gives %s, %v", r.from, e.Kind, after.State, err)
				}
				return
			}
			want := store.Effect{Takes: r.slot == "takes", Gives: r.slot == "gives", Ends: r.to.Ended(), Tell: r.tell, Resume: e.Kind == store.Alive}
			if err != nil || after.State != r.to || after.Reason != r.reason || after.Started != r.started ||
				effect != want || after.Failure.Code != r.code {
				t.Errorf("the row: %s, %s -> %s(%s), started %q, slot %s, failure %q, tell %v\nit gives %s(%s), started %q, %+v, failure %q, %v",
					r.from, e.Kind, r.to, r.reason, r.started, r.slot, r.code, r.tell,
					after.State, after.Reason, after.Started, effect, after.Failure.Code, err)
			}
			if r.to.Ended() && !after.EndTime.Equal(e.At) {
				t.Errorf("it ended at %v, want %v", after.EndTime, e.At)
			}
		})
	}
}

// TestLifeEnded checks that nothing changes a job that has ended, but what an agent
// says of a lost one, once.
func TestLifeEnded(t *testing.T) {
	for _, r := range table {
		if !r.to.Ended() {
			continue
		}
		l := lifeOf(t, append(slices.Clone(r.past), r.event)...)
		for _, e := range alphabet {
			after, effect, err := l.Next(about(l, e, 20))
			if r.to == harp.StateLost && e.Kind == store.End && len(l.Attempts) > 0 {
				if err != nil || !effect.Late || after.Late == nil {
					t.Errorf("%s in %s(%s): %+v, %v", e.Kind, r.to, r.reason, effect, err)
				}
				after.Late = nil
			} else if !errors.Is(err, store.ErrIllegal) && !errors.Is(err, store.ErrFenced) {
				t.Errorf("%s in %s: %v, want it refused", e.Kind, r.to, err)
			}
			if !reflect.DeepEqual(after, l) {
				t.Errorf("%s in %s changed the job to %+v", e.Kind, r.to, after)
			}
		}
	}
}

func TestLifeLate(t *testing.T) {
	l := lifeOf(t, isLost...)
	e := about(l, stopped(store.End, harp.LimitTimeout), 20)
	e.Value = harp.Value{1}
	l, _, err := l.Next(e)
	if err != nil || l.Late.State != harp.StateTimedOut || !l.Late.HasValue || l.HasValue || l.Started != harp.MayHaveRun {
		t.Fatalf("late is %+v of %+v, %v", l.Late, l, err)
	}
	if _, _, err := l.Next(e); !errors.Is(err, store.ErrIllegal) {
		t.Fatalf("a second late outcome: %v", err)
	}
}

// TestLifeFenced checks that an event of another attempt or owner is refused.
func TestLifeFenced(t *testing.T) {
	for _, past := range [][]store.Event{queued, sent, running, cancelling, unknown, isLost} {
		l := lifeOf(t, past...)
		for _, e := range alphabet {
			if e.Kind == store.CancelReq || e.Kind == store.Expire || e.Kind == store.Lose {
				continue // about the job, not the attempt
			}
			old, other := about(l, e, 20), about(l, e, 20)
			old.Fence, other.Attempt = l.Fence-1, l.Attempt+1
			if l.Fence == 0 {
				old.Fence = 7
			}
			if e.Kind == store.Claimed {
				old.Fence, other.Fence = l.Fence, l.Fence
			}
			for _, e := range []store.Event{old, other} {
				if _, _, err := l.Next(e); !errors.Is(err, store.ErrFenced) {
					t.Errorf("%s of attempt %d fence %d in %s with %d and %d: %v", e.Kind, e.Attempt, e.Fence, l.State, l.Attempt, l.Fence, err)
				}
			}
		}
	}
}

// TestLifeAgain checks what a job keeps when it is sent again.
func TestLifeAgain(t *testing.T) {
	l := lifeOf(t, store.Event{Kind: store.Claimed}, store.Event{Kind: store.NotNow, Wake: begin.Add(time.Hour)})
	if l.Busy != 1 || !l.WakeAt.Equal(begin.Add(time.Hour)) || l.Attempts[0].Ended.IsZero() || l.Attempts[0].Outcome != "not_now" {
		t.Fatalf("after NOT_NOW: %+v", l)
	}
	l, _, err := l.Next(about(l, store.Event{Kind: store.Claimed}, 5))
	if err != nil {
		t.Fatal(err)
	}
	want := store.Attempt{Number: 1, Fence: 2, Sent: begin.Add(6 * time.Second)}
	if l.Attempt != 1 || len(l.Attempts) != 1 || l.Attempts[0] != want || !l.WakeAt.IsZero() {
		t.Fatalf("sent again: %+v", l)
	}
}

// TestLifeStart checks that a start which nobody reported is counted back from the
// end, and that the first cause of a stop stays.
func TestLifeStart(t *testing.T) {
	l := lifeOf(t, store.Event{Kind: store.Claimed}, store.Event{Kind: store.End, RanFor: 500 * time.Millisecond})
	if want := l.EndTime.Add(-500 * time.Millisecond); !l.StartTime.Equal(want) || !l.Attempts[0].Started.Equal(want) {
		t.Errorf("it started at %v, want %v", l.StartTime, want)
	}
	l = lifeOf(t, append(slices.Clone(limited), stopped(store.Stop, harp.LimitMaxExecTime), stopped(store.End, harp.LimitTimeout))...)
	if l.Stopping.Cause != harp.LimitTimeout || l.Failure.LimitOf != harp.LimitTimeout || l.Failure.Limit != time.Minute {
		t.Errorf("it was stopped by %+v, failure %+v", l.Stopping, l.Failure)
	}
}

// alphabet is every event, with what may stand in it.
var alphabet = []store.Event{
	{Kind: store.Claimed},
	{Kind: store.Started},
	{Kind: store.NotNow, Wake: begin.Add(time.Hour)},
	{Kind: store.NotNow, Reason: "start_before"},
	failed(store.Refused, "rejected"),
	{Kind: store.CancelReq},
	stopped(store.Stop, harp.LimitTimeout),
	{Kind: store.End, Value: harp.Value{1}},
	failed(store.End, "remote"),
	stopped(store.End, "cancel"),
	stopped(store.End, harp.LimitTimeout),
	{Kind: store.Expire, Reason: harp.ReasonOffline},
	{Kind: store.Silent},
	{Kind: store.Withdrawn},
	{Kind: store.Alive},
	stopped(store.Alive, "cancel"),
	lose(harp.LostAgentRestarted),
	lose(harp.LostRestored),
	lose(harp.LostHostRemoved),
}

// path is a life with what it has been through.
type path struct {
	life    store.Life
	started bool // a sign of the procedure having started was admitted
	slots   int
	events  []store.Kind
}

// step lets one event happen and checks what must hold whatever it was.
func (p path) step(t rapid.TB, e store.Event) (path, bool) {
	t.Helper()
	l := p.life
	frozen := fmt.Sprintf("%+v", l)
	e = about(l, e, len(p.events))
	next, effect, err := l.Next(e)
	if now := fmt.Sprintf("%+v", l); now != frozen {
		t.Fatalf("%v: %s changed the life it was asked about", p.events, e.Kind)
	}
	if err != nil {
		if !reflect.DeepEqual(next, l) || effect != (store.Effect{}) {
			t.Fatalf("%v: %s was refused and changed the life to %+v", p.events, e.Kind, next)
		}
		return p, false
	}
	q := path{life: next, started: p.started, slots: p.slots, events: append(slices.Clone(p.events), e.Kind)}
	if e.Kind == store.Started || e.Kind == store.Alive || e.Kind == store.End {
		q.started = true
	}
	if effect.Takes {
		q.slots++
	}
	if effect.Gives {
		q.slots--
	}
	q.check(t, l, effect)
	return q, true
}

func (p path) check(t rapid.TB, was store.Life, effect store.Effect) {
	t.Helper()
	l := p.life
	bad := func(rule string) { t.Fatalf("%v: %s: %+v, was %+v", p.events, rule, l, was) }
	holds := 0
	if store.HoldsSlot(l.State) {
		holds = 1
	}
	switch {
	case l.Started == harp.DidNotRun && p.started:
		bad("I0: it says that it did not run, and it has started")
	case (l.Started == "") == l.State.Ended():
		bad("started is said exactly of what has ended")
	case p.slots != holds:
		bad("slots taken and given back do not balance")
	case was.State.Ended() && !effect.Late:
		bad("it had ended and changed")
	case effect.Ends != (l.State.Ended() && !was.State.Ended()):
		bad("the effect does not say that it ended")
	case l.State == harp.StateUnknown && (l.UnknownOf == "" || l.UnknownOf == harp.StateUnknown):
		bad("unknown of nothing")
	case l.State != harp.StateUnknown && l.UnknownOf != "":
		bad("it is known and says of what it is unknown")
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

// order of the states within an attempt.
var order = []harp.State{harp.StateQueued, harp.StateSent, harp.StateRunning, harp.StateCancelling}

// backwards reports whether a state that was shown is taken back, other than by
// proof that nothing was started.
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
	fell := is.State == harp.StateQueued && is.Attempts[len(is.Attempts)-1].Started.IsZero()
	return place(is) < place(was) && !fell
}

// TestLifeExhaustive goes every way there is, six events far.
func TestLifeExhaustive(t *testing.T) {
	depth := 6
	if testing.Short() {
		depth = 4
	}
	ways := 0
	var walk func(p path)
	walk = func(p path) {
		ways++
		if len(p.events) == depth {
			return
		}
		for _, e := range alphabet {
			if next, ok := p.step(t, e); ok {
				walk(next)
			}
		}
	}
	walk(path{life: store.Begin(begin, "")})
	t.Logf("%d lives", ways)
}

// TestLifeSeeds goes far, at random.
func TestLifeSeeds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := path{life: store.Begin(begin, "")}
		for range rapid.IntRange(1, 60).Draw(rt, "events") {
			e := rapid.SampledFrom(alphabet).Draw(rt, "event")
			if rapid.IntRange(0, 9).Draw(rt, "records") == 0 && len(p.life.Attempts) > 0 && store.HoldsSlot(p.life.State) {
				p.life.Attempts = slices.Clone(p.life.Attempts)
				p.life.Attempts[len(p.life.Attempts)-1].Next++ // which a store notes
				p.started = true
			}
			p, _ = p.step(rt, e)
		}
	})
}
