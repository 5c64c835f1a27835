package transport

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(10, 3)
		for round := range 2 {
			for n, want := range []bool{true, true, true, false} {
				if got := l.allow(); got != want {
					t.Errorf("round %d: number %d of a burst of 3 may pass: %v", round, n, got)
				}
			}
			time.Sleep(300 * time.Millisecond) // of virtual time: as many as the burst
		}
		begun := time.Now()
		for range 3 + 20 {
			if err := l.wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took != 2*time.Second {
			t.Errorf("20 beyond the burst took %v at 10 a second", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := l.wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait beyond its ctx gives %v", err)
		}
		begun = time.Now()
		if err := l.wait(t.Context()); err != nil || time.Since(begun) > 100*time.Millisecond {
			t.Errorf("%v, after %v: who gave up is waited for", err, time.Since(begun))
		}
	})
}
