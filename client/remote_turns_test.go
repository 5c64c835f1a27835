package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
)

// submitAll submits so many calls, one behind the other, and returns their ids and where
// their outcomes come. The others wait when so many are with the dispatcher.
func submitAll(ctx context.Context, caller *harp.Caller, n int) (ids []string, outcomes chan error) {
	outcomes = make(chan error, n)
	for range n {
		id := harp.NewID()
		ids = append(ids, id)
		go func() {
			_, err := caller.Host("web01").Call(ctx, "p", nil, harp.JobID(id))
			outcomes <- err
		}()
		synctest.Wait()
	}
	return ids, outcomes
}

// TestTurns: of calls made together so many are sent at a time, in their order. What else
// is asked does not wait for them.
func TestTurns(t *testing.T) {
	inMemory(t, func(t *testing.T, f *front) {
		const more = 50
		caller := f.dial()
		defer caller.Close()
		ended := f.desk.add()
		f.desk.end(ended, succeeded)
		release := f.desk.holding("Submit")
		ids, outcomes := submitAll(t.Context(), caller, maxSubmitting+more)
		if n := f.desk.count("Submit"); n != maxSubmitting {
			t.Errorf("%d submissions were sent, not %d", n, maxSubmitting)
		}
		start := time.Now()
		if _, err := caller.Job(ended).Get(t.Context()); err != nil || time.Since(start) != 0 {
			t.Error("asked meanwhile:", err, time.Since(start))
		}
		release()
		for range ids {
			if err := <-outcomes; err != nil {
				t.Fatal(err)
			}
		}
		if n := f.desk.count("Submit"); n != len(ids) {
			t.Errorf("%d submissions were sent, not %d", n, len(ids))
		}
	})
}

// TestTurnsInOrder: when one is stored the one goes that has waited for the longest time.
func TestTurnsInOrder(t *testing.T) {
	inMemory(t, func(t *testing.T, f *front) {
		caller := f.dial()
		defer caller.Close()
		one := make(chan struct{})
		f.desk.holds["Submit"] = one
		ids, outcomes := submitAll(t.Context(), caller, maxSubmitting+50)
		for range ids {
			one <- struct{}{}
			synctest.Wait()
			if err := <-outcomes; err != nil {
				t.Fatal(err)
			}
		}
		got := slices.Clone(f.desk.order) // newest first
		slices.Reverse(got)
		if !slices.Equal(got, ids) {
			t.Error("those that waited were not sent in their order")
		}
	})
}

// TestTurnGivenUp: a call that is given up, or whose Caller is closed, before its turn has
// not run.
func TestTurnGivenUp(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(cancel context.CancelFunc, caller *harp.Caller)
		want error
	}{
		"cancelled": {func(cancel context.CancelFunc, _ *harp.Caller) { cancel() }, context.Canceled},
		"closed":    {func(_ context.CancelFunc, caller *harp.Caller) { _ = caller.Close() }, harp.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, f *front) {
				caller := f.dial()
				defer caller.Close()
				release := f.desk.holding("Submit")
				defer release()
				_, _ = submitAll(t.Context(), caller, maxSubmitting)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				_, outcomes := submitAll(ctx, caller, 1)
				c.end(cancel, caller)
				if err := <-outcomes; !errors.Is(err, c.want) || harp.RanOf(err) != harp.DidNotRun {
					t.Error(err, harp.RanOf(err))
				}
			})
		})
	}
}

// TestTurnsOfNextSession: when the connection is lost those that waited for their turn
// are sent over the next one.
func TestTurnsOfNextSession(t *testing.T) {
	inMemory(t, func(t *testing.T, f *front) {
		caller := f.dial()
		defer caller.Close()
		release := f.desk.holding("Submit")
		ids, outcomes := submitAll(t.Context(), caller, 2*maxSubmitting)
		release()
		f.cut()
		for range ids {
			if err := <-outcomes; err != nil {
				t.Fatal(err)
			}
		}
		f.desk.mu.Lock()
		defer f.desk.mu.Unlock()
		if n := len(f.desk.jobs); n != len(ids) {
			t.Errorf("%d jobs of %d calls", n, len(ids))
		}
	})
}
