package transport

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// What is not set is what the comments say.
func TestDefaults(t *testing.T) {
	if c := (ServeConfig{}).withDefaults(); c.HandshakeRate != 1000 || c.HandshakeLimit != 64 || c.Logger != slog.Default() {
		t.Errorf("of Serve: %+v", c)
	}
	if o := (Options{}).withDefaults(); o.MaxExchanges != 4096 || o.Logger != slog.Default() {
		t.Errorf("of a session: %+v", o)
	}
	if o := (Options{MaxExchanges: 1}).withDefaults(); o.MaxExchanges != 1 {
		t.Errorf("of a session: %+v", o)
	}
}

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
			if err := l.awaitToken(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took != 2*time.Second {
			t.Errorf("20 beyond the burst took %v at 10 a second", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := l.awaitToken(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait beyond its ctx gives %v", err)
		}
		begun = time.Now()
		if err := l.awaitToken(t.Context()); err != nil || time.Since(begun) > 100*time.Millisecond {
			t.Errorf("%v, after %v: who gave up is waited for", err, time.Since(begun))
		}
		time.Sleep(300 * time.Millisecond)
		for range 100 {
			if err := l.awaitToken(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("with a ctx that is over: %v", err)
			}
		}
		for n := range 3 {
			if !l.allow() {
				t.Errorf("number %d of a burst may not pass, of which nobody did", n)
			}
		}
	})
}
