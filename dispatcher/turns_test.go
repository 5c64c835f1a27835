package dispatcher

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
)

// TestAFloodOfOneLeavesTurnsToOthers: alone a principal has many calls on their way into the store;
// while another comes, few, and the other never waits for them.
func TestAFloodOfOneLeavesTurnsToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := newTurns(aloneWeight, sharedWeight)
		ada, bob := harp.Principal{Name: "ada"}, harp.Principal{Name: "bob"}
		var done atomic.Int64 // of ada
		for range 2 * aloneWeight {
			go func() {
				if err := ts.awaitTurn(t.Context(), ada, 1); err != nil {
					t.Error(err)
				}
				done.Add(1)
			}()
			synctest.Wait()
		}
		in := func() int { return int(done.Load()) }
		if in() != aloneWeight {
			t.Errorf("alone %d calls have their turn, want %d", in(), aloneWeight)
		}
		if err := ts.awaitTurn(t.Context(), bob, sharedWeight+1); err != nil { // at once, or the test hangs
			t.Fatal(err)
		}
		for range aloneWeight - sharedWeight {
			ts.leaveTurn(ada, 1)
		}
		if synctest.Wait(); in() != aloneWeight {
			t.Errorf("beside another %d more have their turn", in()-aloneWeight)
		}
		ts.leaveTurn(ada, 1)
		if synctest.Wait(); in() != aloneWeight+1 {
			t.Errorf("as one leaves %d have their turn", in()-aloneWeight)
		}
		ts.leaveTurn(bob, sharedWeight+1)
		time.Sleep(sharedTime)
		ts.leaveTurn(ada, 1)
		synctest.Wait()
		if want := 2*aloneWeight - sharedWeight + 2; in() != want { // all for which there is room, at once
			t.Errorf("alone again %d have their turn, want %d", in(), want)
		}
		for range aloneWeight + sharedWeight - 2 {
			ts.leaveTurn(ada, 1)
		}
		if len(ts.lines) != 0 {
			t.Errorf("left are %d lines: %+v", len(ts.lines), ts.lines[ada])
		}
	})
}

// TestATurnThatIsGivenUp: a call whose caller leaves while it waits keeps nobody waiting.
func TestATurnThatIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := newTurns(aloneWeight, sharedWeight)
		ada, left := harp.Principal{Name: "ada"}, errors.New("left")
		if err := ts.awaitTurn(t.Context(), ada, aloneWeight-1); err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancelCause(t.Context())
		heavy, light := make(chan error, 1), make(chan error, 1)
		go func() { heavy <- ts.awaitTurn(ctx, ada, 2) }()
		synctest.Wait()
		go func() { light <- ts.awaitTurn(t.Context(), ada, 1) }()
		if synctest.Wait(); len(light) != 0 {
			t.Fatal("the second has passed the first")
		}
		leave(left)
		if err := <-heavy; !errors.Is(err, left) {
			t.Errorf("error is %v", err)
		}
		if err := <-light; err != nil {
			t.Error(err)
		}
		ts.leaveTurn(ada, 1)
		ts.leaveTurn(ada, aloneWeight-1)
		if len(ts.lines) != 0 {
			t.Errorf("left are %d lines", len(ts.lines))
		}
	})
}

// TestATurnThatComesAsItIsGivenUp: a turn that comes while its caller leaves is left, too.
func TestATurnThatComesAsItIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := newTurns(aloneWeight, sharedWeight)
		ada := harp.Principal{Name: "ada"}
		for range 20 {
			if err := ts.awaitTurn(t.Context(), ada, aloneWeight); err != nil {
				t.Fatal(err)
			}
			ctx, leave := context.WithCancel(t.Context())
			waits := make(chan error, 1)
			go func() { waits <- ts.awaitTurn(ctx, ada, 3) }()
			synctest.Wait()
			ts.mu.Lock()
			leave()
			ts.leaveLocked(ada, aloneWeight)
			ts.mu.Unlock()
			if err := <-waits; err == nil { // it may have seen its turn first
				ts.leaveTurn(ada, 3)
			}
			if len(ts.lines) != 0 {
				t.Fatalf("left are %d lines: %+v", len(ts.lines), ts.lines[ada])
			}
		}
	})
}

// TestTurnsWeighWhatTheyWaitedFor: a heavy call that has waited takes as much room as one that has not, and one that gives up behind it
// gives up its own place.
func TestTurnsWeighWhatTheyWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := newTurns(aloneWeight, sharedWeight)
		ada := harp.Principal{Name: "ada"}
		wait := func(ctx context.Context, weight int) <-chan error {
			got := make(chan error, 1)
			go func() { got <- ts.awaitTurn(ctx, ada, weight) }()
			synctest.Wait()
			return got
		}
		if err := <-wait(t.Context(), aloneWeight); err != nil {
			t.Fatal(err)
		}
		heavy := wait(t.Context(), aloneWeight-1)
		ctx, leave := context.WithCancel(t.Context())
		given := wait(ctx, 1)
		light := [2]<-chan error{wait(t.Context(), 1), wait(t.Context(), 1)}
		leave()
		if err := <-given; err == nil {
			t.Error("one that gives up has its turn")
		}
		ts.leaveTurn(ada, aloneWeight)
		if synctest.Wait(); len(heavy) != 1 || len(light[0]) != 1 || len(light[1]) != 0 {
			t.Errorf("%d heavy, %d and %d light ones have their turn, want 1, 1 and 0", len(heavy), len(light[0]), len(light[1]))
		}
		ts.leaveTurn(ada, aloneWeight-1)
		if synctest.Wait(); len(light[1]) != 1 {
			t.Error("the last one does not have its turn")
		}
		ts.leaveTurn(ada, 1)
		ts.leaveTurn(ada, 1)
		if len(ts.lines) != 0 {
			t.Errorf("left are %d lines", len(ts.lines))
		}
	})
}
