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
