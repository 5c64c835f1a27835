package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// TestRetryOutcome checks what a job says while it waits for another attempt, and
// what it says when that one decides.
func TestRetryOutcome(t *testing.T) {
	l := lived(t, twice, running)
	e := about(l, failed(store.End, "remote"), 9)
	e.Value, e.Jitter = harp.Value{1}, 0.5
	l, _, err := l.Next(e)
	if err != nil {
		t.Fatal(err)
	}
	if want := e.At.Add(30 * time.Second); !l.WakeAt.Equal(want) {
		t.Errorf("it waits until %v, want half of the pause, %v", l.WakeAt, want)
	}
	if o := l.Outcome; o == nil || o.State != harp.StateFailed || o.Started != harp.DidRun || o.Failure.Code != "remote" || !o.HasValue {
		t.Errorf("its attempt ended as %+v", o)
	}
	if l.HasValue || l.Started != "" || !l.EndTime.IsZero() || l.Failure.Code != "" {
		t.Errorf("the job speaks as if it had ended: %+v", l)
	}
	first := l.StartTime
	for i, e := range []store.Event{{Kind: store.Claimed}, {Kind: store.NotNow}, {Kind: store.Claimed}, {Kind: store.Started}} {
		if l, _, err = l.Next(about(l, e, 20+i)); err != nil {
			t.Fatal(err)
		}
	}
	if l.Attempt != 2 || l.Outcome == nil || l.Attempts[0].Outcome != "failed" || !l.StartTime.Equal(first) {
		t.Errorf("in its second attempt it is %+v", l)
	}
	if l, _, err = l.Next(about(l, store.Event{Kind: store.End}, 30)); err != nil {
		t.Fatal(err)
	}
	if l.State != harp.StateSucceeded || l.Outcome != nil || l.HasValue || l.Failure.Code != "" || !l.StartTime.Equal(first) {
		t.Errorf("after its second attempt it is %+v", l)
	}
}

// TestRetryExpires checks that a job whose next attempt is not started in time ends
// as the one before, with all that it said.
func TestRetryExpires(t *testing.T) {
	l := lived(t, twice, running)
	e := about(l, failed(store.End, "remote"), 9)
	e.Value = harp.Value{1}
	l, _, err := l.Next(e)
	if err != nil {
		t.Fatal(err)
	}
	l, effect, err := l.Next(about(l, store.Event{Kind: store.Expire}, 50))
	if err != nil || !effect.Ends || l.State != harp.StateFailed || l.Started != harp.DidRun || l.Failure.Message != "message" || !l.HasValue {
		t.Errorf("it is %+v, effect %+v, %v", l, effect, err)
	}
	if want := begin.Add(51 * time.Second); !l.EndTime.Equal(want) || l.Attempts[0].Ended.Equal(want) {
		t.Errorf("the job ended at %v, its attempt at %v", l.EndTime, l.Attempts[0].Ended)
	}
}

// TestRetryOf checks that a policy is asked for the outcome and the number.
func TestRetryOf(t *testing.T) {
	for _, on := range twice.On {
		for _, e := range []store.Event{failed(store.End, "remote"), stopped(store.End, harp.LimitSilenceTimeout), lose(harp.LostAgentRestarted)} {
			policy := harp.RetryPolicy{On: []harp.State{on}, Attempts: 3, Backoff: time.Second, MaxBackoff: time.Second}
			l := lived(t, policy, running)
			outcome := lived(t, none, append(ev(store.Claimed, store.Started), e)).State
			tries := 1
			for l, _, _ = l.Next(about(l, e, 9)); l.State == harp.StateQueued; l, _, _ = l.Next(about(l, e, 9)) {
				tries++
				l, _, _ = l.Next(about(l, store.Event{Kind: store.Claimed}, 10))
				l, _, _ = l.Next(about(l, store.Event{Kind: store.Started}, 11))
			}
			want := 1
			if outcome == on {
				want = 3
			}
			if tries != want || l.State != outcome {
				t.Errorf("retry on %s: after %s there were %d attempts, want %d; it is %s", on, outcome, tries, want, l.State)
			}
		}
	}
}

// TestRetryLate checks that the end of a lost attempt, heard before the next was
// sent, is its outcome in place of lost: unless it only ended to make way.
func TestRetryLate(t *testing.T) {
	l := lived(t, twice, lostOnce)
	if l.Attempts[0].Outcome != "lost" || l.Attempts[0].Reason != harp.LostTooLong {
		t.Fatalf("its attempt is %+v", l.Attempts[0])
	}
	ended, effect, err := l.Next(about(l, failed(store.End, "remote"), 40))
	if err != nil || effect != (store.Effect{}) || ended.Outcome.State != harp.StateFailed || ended.Attempts[0].Outcome != "failed" ||
		ended.Attempts[0].Reason != "" || ended.GivenUp() {
		t.Errorf("after its own end it is %+v, effect %+v, %v", ended, effect, err)
	}
	l = lived(t, twice, survives)
	if !l.Survivor {
		t.Fatal("it does not say that its attempt lives")
	}
	gaveWay, _, err := l.Next(about(l, stopped(store.End, "cancel"), 40))
	if err != nil || gaveWay.Survivor || gaveWay.Outcome.State != harp.StateLost || gaveWay.Attempts[0].Outcome != "lost" || !gaveWay.WakeAt.Equal(l.WakeAt) {
		t.Errorf("after the end that it was asked for it is %+v, %v", gaveWay, err)
	}
	gone, _, err := l.Next(about(l, lose(harp.LostJournalGone), 40))
	if err != nil || gone.Outcome.Reason != harp.LostJournalGone || gone.Outcome.Started != harp.MayHaveRun || gone.Attempts[0].Reason != harp.LostJournalGone {
		t.Errorf("after its journal was lost it is %+v, %v", gone, err)
	}
	for _, e := range []store.Event{{Kind: store.Gone}, {Kind: store.Silent}, lose(harp.LostAgentRestarted)} {
		if free, _, err := l.Next(about(l, e, 40)); err != nil || free.Survivor || !free.WakeAt.Equal(l.WakeAt) {
			t.Errorf("after %s it is %+v, %v", e.Kind, free, err)
		}
	}
}

// TestLateAfterCancel checks that what a lost attempt came to is noted also of a job
// that was cancelled, or ran out of time, after it.
func TestLateAfterCancel(t *testing.T) {
	for _, e := range []store.Event{{Kind: store.CancelReq}, {Kind: store.Expire}} {
		l := lived(t, twice, append(lostOnce[:len(lostOnce):len(lostOnce)], e))
		late, effect, err := l.Next(about(l, store.Event{Kind: store.End, Value: harp.Value{1}}, 60))
		if err != nil || effect != (store.Effect{Late: true}) || late.Late.State != harp.StateSucceeded || !late.Late.HasValue || late.State != l.State {
			t.Errorf("after %s and the end it is %+v, effect %+v, %v", e.Kind, late, effect, err)
		}
	}
	l := lived(t, twice, append(failedOnce[:len(failedOnce):len(failedOnce)], store.Event{Kind: store.CancelReq}))
	if _, _, err := l.Next(about(l, store.Event{Kind: store.End}, 60)); !errors.Is(err, store.ErrIllegal) {
		t.Errorf("a second end of an attempt that has ended: %v", err)
	}
}

// TestLateRefusal checks that a refusal which arrives late is noted as one.
func TestLateRefusal(t *testing.T) {
	l := lifeOf(t, store.Event{Kind: store.Claimed}, lose(harp.LostJournalGone))
	l, _, err := l.Next(about(l, failed(store.Refused, "rejected_denied"), 60))
	if err != nil || l.Late.State != harp.StateRejected || l.Late.Failure.Ran != harp.DidNotRun || l.State != harp.StateLost {
		t.Errorf("late is %+v, %v", l.Late, err)
	}
	l = lived(t, twice, append(ev(store.Claimed), lose(harp.LostJournalGone)))
	l, effect, err := l.Next(about(l, failed(store.Refused, "rejected_denied"), 60))
	if err != nil || !effect.Ends || l.State != harp.StateRejected || l.Started != harp.DidNotRun {
		t.Errorf("refused before another attempt it is %+v, %v", l, err)
	}
}

// TestSilent checks that a job remembers until when it may stay unknown, while it
// is, and what an operator gave it up for.
func TestSilent(t *testing.T) {
	until := begin.Add(24 * time.Hour)
	l := lifeOf(t, store.Event{Kind: store.Claimed}, store.Event{Kind: store.Silent, Wake: until}, store.Event{Kind: store.CancelReq})
	if !l.WakeAt.Equal(until) || l.UnknownOf != harp.StateSent {
		t.Fatalf("it is %+v", l)
	}
	later, _, err := l.Next(about(l, store.Event{Kind: store.Silent, Wake: until.Add(time.Hour)}, 8))
	if err != nil || !later.WakeAt.Equal(until.Add(time.Hour)) || later.UnknownOf != harp.StateSent || !later.Since.Equal(l.Since) {
		t.Errorf("silent again it is %+v, %v", later, err)
	}
	back, _, err := l.Next(about(l, store.Event{Kind: store.Alive}, 9))
	if err != nil || !back.WakeAt.IsZero() || back.State != harp.StateCancelling {
		t.Errorf("back it is %+v, %v", back, err)
	}
	e := lose(harp.LostForced)
	e.Text, e.At = "the machine burned", begin.Add(time.Hour)
	gone, _, err := l.Next(e) // an operator knows no fence
	if err != nil || gone.Failure.Message != e.Text || gone.Failure.Type != harp.LostForced || gone.Attempts[0].Reason != harp.LostForced {
		t.Errorf("given up it is %+v, %v", gone, err)
	}
}

// What was asked for and what is granted share nothing.
func TestGrantRetryKeepsACopy(t *testing.T) {
	asked := harp.RetryPolicy{On: []harp.State{harp.StateLost}, Attempts: 2}
	granted := store.GrantRetry(asked, false)
	asked.On[0] = harp.StateFailed
	if granted.On[0] != harp.StateLost {
		t.Errorf("it is tried again after %s", granted.On[0])
	}
}
