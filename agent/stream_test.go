package agent_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/internal/wire"
)

func TestStream(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offerStream(a, "count", func(_ context.Context, emit func(int) error) error {
			for i := range 5000 {
				if err := emit(i); err != nil {
					return err
				}
			}
			return nil
		})
		d, _, _ := connect(t, p, a)
		x := d.call("count", nil, func(c *wire.Call, _ *harp.Request) { c.Window = wire.MinWindow })
		end, records := x.accepted().ended()
		if value[int](t, end) != 0 || end.Records != 5000 || len(records) != 5000 {
			t.Fatalf("END of %d records, got %d", end.Records, len(records))
		}
		last := int64(0)
		for i, r := range records {
			var n int
			if err := harp.Value(r.Value).Decode(&n); err != nil || n != i || r.Kind != "" {
				t.Fatalf("record %d: %s %v", i, harp.Value(r.Value), err)
			}
			if r.Time < last {
				t.Fatalf("record %d is older than the one before", i)
			}
			last = r.Time
		}
	})
}

// TestEmitConcurrently checks that records of several goroutines are all there.
func TestEmitConcurrently(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offerStream(a, "count", func(_ context.Context, emit func(int) error) error {
			var all sync.WaitGroup
			for g := range 8 {
				all.Go(func() {
					for i := range 200 {
						if err := emit(g*200 + i); err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			return nil
		})
		d, _, _ := connect(t, p, a)
		_, records := d.call("count", nil, func(c *wire.Call, _ *harp.Request) { c.Window = 1000 }).accepted().ended()
		seen := map[string]bool{}
		for _, r := range records {
			seen[harp.Value(r.Value).String()] = true
		}
		if len(records) != 1600 || len(seen) != 1600 {
			t.Errorf("%d records, %d different", len(records), len(seen))
		}
	})
}

// TestWindow checks that emit waits while the window is full, and that what one
// frame carries is what had gathered.
func TestWindow(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		var emitted int
		agent.HandleStream(a, harp.NewStreamProc[none, string, int]("fill"), func(_ context.Context, _ none, emit func(string) error) (int, error) {
			for ; emitted < 100; emitted++ {
				if err := emit(strings.Repeat("x", 965)); err != nil { // 968 bytes and 32 beside
					return 0, err
				}
			}
			return emitted, nil
		})
		d, _, _ := connect(t, p, a)
		x := d.call("fill", nil, func(c *wire.Call, _ *harp.Request) { c.Window = 10_000 }).accepted()
		synctest.Wait()
		if emitted != 10 {
			t.Errorf("%d records in a window for 10", emitted)
		}
		got := 0
		for got < 10 {
			got += len(expect[wire.Records](x, wire.TypeRecords).Records)
		}
		x.ack(4)
		synctest.Wait()
		if emitted != 14 {
			t.Errorf("%d records after 4 were acknowledged", emitted)
		}
		x.send(wire.TypeAck, wire.Ack{Next: 4, Window: 20_000})
		synctest.Wait()
		if emitted != 24 {
			t.Errorf("%d records after the window was doubled", emitted)
		}
		for got < 24 {
			m := expect[wire.Records](x, wire.TypeRecords)
			if m.First != int64(got) {
				t.Fatalf("records from %d, want %d", m.First, got)
			}
			got += len(m.Records)
		}
		x.ack(24)
		synctest.Wait()
		for got < 44 {
			got += len(expect[wire.Records](x, wire.TypeRecords).Records)
		}
		x.send(wire.TypeAck, wire.Ack{Next: 44, Window: wire.Window})
		synctest.Wait()
		if emitted != 100 {
			t.Errorf("%d records in a large window", emitted)
		}
		for got < 100 {
			got += len(expect[wire.Records](x, wire.TypeRecords).Records)
		}
		if n := value[int](t, x.end()); n != 100 {
			t.Errorf("got %d", n)
		}
	})
}

// TestLargeRecord checks that one record may always be sent, however small the
// window, and that one beyond the limit is an error the procedure may live with.
func TestLargeRecord(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		agent.HandleStream(a, harp.NewStreamProc[none, any, string]("large"), func(_ context.Context, _ none, emit func(any) error) (string, error) {
			var e *harp.FieldError
			err := emit(make([]byte, harp.MaxRecord))
			if !errors.Is(err, harp.ErrInvalid) || !errors.As(err, &e) || e.Field != "record" {
				t.Errorf("too large: %v", err)
			}
			if err := emit(make(chan int)); !errors.Is(err, harp.ErrInvalid) || !errors.As(err, &e) || e.Field != "record" {
				t.Errorf("a channel: %v", err)
			}
			return "went on", emit(make([]byte, harp.MaxRecord-3))
		})
		d, _, _ := connect(t, p, a)
		end, records := d.call("large", nil, func(c *wire.Call, _ *harp.Request) { c.Window = 1 }).accepted().ended()
		if value[string](t, end) != "went on" || len(records) != 1 {
			t.Errorf("%d records, %s", len(records), end.Value)
		}
	})
}

func TestEmitAfterReturn(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		var kept func(int) error
		offerStream(a, "keep", func(_ context.Context, emit func(int) error) error {
			kept = emit
			return emit(1)
		})
		d, _, _ := connect(t, p, a)
		end, _ := d.call("keep", nil).accepted().ended()
		if err := kept(2); !errors.Is(err, harp.ErrClosed) {
			t.Errorf("emit after the end: %v", err)
		}
		if end.Records != 1 {
			t.Errorf("%d records", end.Records)
		}
	})
}
