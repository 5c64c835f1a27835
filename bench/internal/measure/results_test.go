package measure

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestResults hands on what comes before somebody waits for it, and after.
func TestResults(t *testing.T) {
	var r Results[int]
	r.Deliver(1, []byte("one"))
	if got, err := r.Wait(t.Context(), 1); err != nil || string(got) != "one" {
		t.Errorf("what had come: %q, %v", got, err)
	}
	to := r.await(2)
	r.Deliver(2, []byte("two"))
	if got := <-to; string(got) != "two" {
		t.Errorf("what came then: %q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Wait(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("what was taken can be had again, or does not end with ctx: %v", err)
	}
}

// TestEcho ends with the first result that is another one.
func TestEcho(t *testing.T) {
	rig := NewEcho(func(context.Context) ([]byte, error) { return Payload[1:], nil }, func() error { return nil })
	if _, err := rig.Round(t.Context(), Point{Work: 1, For: time.Hour}); err == nil {
		t.Error("another result than was asked for was counted")
	}
}
