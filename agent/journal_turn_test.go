package agent

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// TestJournalIsAwaitedInVirtualTime checks that time goes on while one waits for another that opens the
// journal: disks that are slow in virtual time would else be slow for ever.
func TestJournalIsAwaitedInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newJournalHandle(&Config{}, slog.New(slog.DiscardHandler))
		h.turn <- struct{}{} // as one that opens it
		go func() {
			time.Sleep(time.Minute)
			h.endTurn()
		}()
		began := time.Now()
		h.tryRepair() // does not wait
		if took := time.Since(began); took != 0 {
			t.Errorf("what need not be done waits %v", took)
		}
		if err := h.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("it is open after %v", took)
		}
		h.close()
	})
}
