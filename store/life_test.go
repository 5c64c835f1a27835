package store_test

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// twice lets an attempt be followed by one more, whatever became of it.
var twice = harp.RetryPolicy{
	On:       []harp.State{harp.StateLost, harp.StateTimedOut, harp.StateFailed},
	Attempts: 2, Backoff: time.Minute, MaxBackoff: time.Hour,
}

// lifeOf takes a job through events that must be possible.
func lifeOf(t testing.TB, events ...store.Event) store.Life {
	t.Helper()
	return lived(t, harp.RetryPolicy{}, events)
}

// lived is lifeOf under a policy.
func lived(t testing.TB, retry harp.RetryPolicy, events []store.Event) store.Life {
	t.Helper()
	l := store.Begin(begin, "")
	l.Retry = retry
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
	return store.Event{Kind: kind, Failure: failures.New(code, "message")}
}

func because(kind store.Kind, reason string) store.Event {
	return store.Event{Kind: kind, Reason: reason}
}

// TestLifeEnded checks that nothing changes a job that has ended, but what an agent
// says of a lost one, once.
func TestLifeEnded(t *testing.T) {
	for _, r := range slices.Concat(table, again) {
		if !r.to.Ended() {
			continue
		}
		l := lived(t, r.retry, append(slices.Clone(r.past), r.event))
		for _, e := range alphabet {
			after, effect, err := l.Next(about(l, e, 20))
			if l.GivenUp() && (e.Kind == store.End || e.Kind == store.Refused && l.StartTime.IsZero()) {
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
	e := about(l, stopped(store.End, harp.LimitSilenceTimeout), 20)
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
			if e.Kind == store.CancelReq || e.Kind == store.Expire {
				continue // about the job, not the attempt
			}
			if e.Kind == store.Lose && l.Attempt == 0 {
				continue // about the job as well, unless it names an attempt
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
	l = lifeOf(t, append(slices.Clone(limited), stopped(store.Stop, harp.LimitMaxExecTime), stopped(store.End, harp.LimitSilenceTimeout))...)
	if l.Stopping.Cause != harp.LimitSilenceTimeout || l.Failure.LimitOf != harp.LimitSilenceTimeout || l.Failure.Limit != time.Minute {
		t.Errorf("it was stopped by %+v, failure %+v", l.Stopping, l.Failure)
	}
}

// TestLifeLeft checks that of processes that outlive KILL a job names those that its agent
// has named last, to a dispatcher that it talks to.
func TestLifeLeft(t *testing.T) {
	left := func(pids ...int) store.Event { return store.Event{Kind: store.Stop, Left: pids} }
	for name, c := range map[string]struct {
		events []store.Event
		want   []int
	}{
		"fewer":         {[]store.Event{left(11, 12), left(12)}, []int{12}},
		"none any more": {[]store.Event{left(11, 12), left()}, nil},
		"in the next session, before they are named again": {append([]store.Event{left(11)}, ev(store.Silent, store.Alive)...), nil},
	} {
		l := lifeOf(t, append(ev(store.Claimed, store.Started), c.events...)...)
		if !slices.Equal(l.Left, c.want) || l.State != harp.StateRunning {
			t.Errorf("%s: it is %s, and %v outlive KILL, want %v", name, l.State, l.Left, c.want)
		}
	}
	l := lifeOf(t, ev(store.Claimed, store.Started)...)
	if _, _, err := l.Next(about(l, left(), 5)); !errors.Is(err, store.ErrIllegal) {
		t.Errorf("a stop of nothing gives %v", err)
	}
	if l := lifeOf(t, append(slices.Clone(sent), stopped(store.Stop, harp.LimitSilenceTimeout))...); !l.StartTime.IsZero() {
		t.Errorf("of one that is stopped and names none it is said that it started at %v", l.StartTime)
	}
	for _, past := range [][]store.Event{running, cancelling, limited} {
		before, e := lifeOf(t, past...), left(7, 8)
		l, effect, err := before.Next(about(before, e, 10))
		if err != nil || effect != (store.Effect{}) || l.State != before.State || !slices.Equal(l.Left, e.Left) || &l.Left[0] == &e.Left[0] {
			t.Errorf("in %s it is %+v, effect %+v, %v", before.State, l, effect, err)
		}
	}
}

// TestLifeLastWords checks that what a procedure says when it is stopped is kept, and
// decides nothing.
func TestLifeLastWords(t *testing.T) {
	code := int64(143)
	words := harp.Failure{Code: "remote", Type: "exit", Message: "rolled back", Data: harp.Value{0xc3}, ExitCode: &code}
	for cause, state := range map[string]harp.State{"cancel": harp.StateCancelled, harp.LimitSilenceTimeout: harp.StateTimedOut} {
		e := stopped(store.End, cause)
		e.Failure = words
		o := lived(t, harp.RetryPolicy{}, append(ev(store.Claimed, store.Started), e))
		if o.State != state || o.Failure.Code == words.Code || o.Failure.Message != words.Message ||
			!bytes.Equal(o.Failure.Data, words.Data) || *o.Failure.ExitCode != code || o.Stopping == nil || o.Stopping.Cause != cause {
			t.Errorf("after %s it is %+v", cause, o)
		}
	}
}

// TestLifeCancelNow checks that a cancel without grace is told though one was told before,
// once, and that the first stays who asked and when.
func TestLifeCancelNow(t *testing.T) {
	first, second := harp.Principal{Name: "first"}, harp.Principal{Name: "second"}
	l := lifeOf(t, running...)
	for n, c := range []struct {
		by         harp.Principal
		now        bool
		tell, asks bool
	}{{first, false, true, false}, {second, false, false, false}, {second, true, true, true}, {second, true, false, true}, {second, false, false, true}} {
		e := about(l, store.Event{Kind: store.CancelReq, By: c.by, Now: c.now}, 10+n)
		after, effect, err := l.Next(e)
		want := harp.CancelRequest{By: first, Time: begin.Add(11 * time.Second), Now: c.asks}
		if err != nil || effect.Tell != c.tell || *after.Cancel != want {
			t.Errorf("cancel %d: %+v, told %v, %v", n, after.Cancel, effect.Tell, err)
		}
		if n > 1 && l.Cancel.Now != (n > 2) {
			t.Errorf("cancel %d has changed the life before it", n)
		}
		l = after
	}
}

// TestLifeDropped checks what a job says whose value had no room.
func TestLifeDropped(t *testing.T) {
	l := lifeOf(t, append(slices.Clone(running), store.Event{Kind: store.End, Dropped: true})...)
	if l.State != harp.StateSucceeded || l.Reason != harp.ReasonValueDropped || l.HasValue || l.Failure.Code != "no_space" || l.Failure.Ran != harp.DidRun {
		t.Errorf("it is %+v", l)
	}
}
