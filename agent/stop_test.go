package agent_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/internal/wire"
)

// limits grants a call limits.
func limits(timeout, maxExec time.Duration) func(*wire.Call, *harp.Request) {
	return func(c *wire.Call, _ *harp.Request) { c.SilenceTimeout, c.MaxExecTime = int64(timeout), int64(maxExec) }
}

// stopping takes records, and acknowledges them, until STOPPING.
func (x *exchange) stopping() wire.Stopping { x.t.Helper(); return x.untilStopping(x.ack) }

// untilStopping takes records until STOPPING.
func (x *exchange) untilStopping(ack func(next int64)) wire.Stopping {
	x.t.Helper()
	for {
		f := x.receive()
		switch f.Type {
		case wire.TypeRecords:
			var m wire.Records
			if err := wire.Decode(f.Body, &m); err != nil {
				x.t.Fatal(err)
			}
			ack(m.First + int64(len(m.Records)))
		case wire.TypeStopping:
			var m wire.Stopping
			if err := wire.Decode(f.Body, &m); err != nil {
				x.t.Fatal(err)
			}
			return m
		default:
			x.t.Fatalf("frame of type %d before STOPPING", f.Type)
		}
	}
}

// restOf takes what is left after STOPPING.
func (x *exchange) restOf() wire.End {
	x.t.Helper()
	for {
		f := x.receive()
		if f.Type == wire.TypeRecords {
			continue
		}
		if f.Type != wire.TypeEnd {
			x.t.Fatalf("frame of type %d after STOPPING", f.Type)
		}
		var m wire.End
		if err := wire.Decode(f.Body, &m); err != nil {
			x.t.Fatal(err)
		}
		x.ackEnd(m)
		return m
	}
}

func TestCancel(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		causes := offerHang(a)
		d, _, _ := connect(t, p, a)
		x := d.call("hang", nil).accepted()
		x.cancel()
		if s := x.stopping(); s.Cause != wire.CauseCancel || s.Since == 0 {
			t.Errorf("STOPPING %+v", s)
		}
		end := x.end()
		if end.Stopped == nil || end.Stopped.Cause != wire.CauseCancel {
			t.Errorf("END %+v", end)
		}
		if end.Failure != nil || len(end.Value) > 0 {
			t.Errorf("the procedure said no more than why it stopped: %+v", end)
		}
		if cause := <-causes; !errors.Is(cause, harp.ErrCancelled) {
			t.Errorf("cause %v", cause)
		}
	})
}

// TestCancelBehindCall checks a CANCEL that comes right behind its CALL.
func TestCancelBehindCall(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offerHang(a)
		d, _, _ := connect(t, p, a)
		x := d.call("hang", nil)
		x.cancel()
		x.cancel()
		if end, _ := x.ended(); end.Stopped == nil || end.Stopped.Cause != wire.CauseCancel {
			t.Errorf("END %+v", end)
		}
	})
}

// TestOwnEndFirst checks that a cancel after the function has returned decides
// nothing.
func TestOwnEndFirst(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offerGreet(a)
		d, _, _ := connect(t, p, a)
		x := d.call("greet", harp.Pos("Ada"))
		synctest.Wait()
		x.cancel()
		synctest.Wait()
		if end := x.accepted().end(); end.Stopped != nil || value[greeting](t, end).Text != "hello Ada" {
			t.Errorf("END %+v", end)
		}
	})
}

// TestValueInSpiteOfCancel checks that what a cancelled procedure returns is kept.
func TestValueInSpiteOfCancel(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offer(a, "tidy", func(ctx context.Context) (string, error) { <-ctx.Done(); return "tidied up", nil })
		d, _, _ := connect(t, p, a)
		x := d.call("tidy", nil).accepted()
		x.cancel()
		x.stopping()
		if end := x.end(); end.Stopped == nil || value[string](t, end) != "tidied up" {
			t.Errorf("END %+v", end)
		}
	})
}

// TestDeaf checks that a function that ignores its context keeps the attempt open.
func TestDeaf(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		release := make(chan struct{})
		offer(a, "deaf", func(context.Context) (int, error) { <-release; return 7, nil })
		d, _, _ := connect(t, p, a)
		x := d.call("deaf", nil, limits(harp.NoLimit, time.Minute)).accepted()
		if s := x.stopping(); s.Cause != wire.CauseMaxExecTime || s.Limit != int64(time.Minute) {
			t.Errorf("STOPPING %+v", s)
		}
		time.Sleep(48 * time.Hour) // virtual: nothing more is heard
		x.cancel()
		synctest.Wait()
		close(release)
		end := x.end()
		if end.Stopped == nil || end.Stopped.Cause != wire.CauseMaxExecTime || value[int](t, end) != 7 {
			t.Errorf("END %+v", end)
		}
		if ran := time.Duration(end.RanFor); ran != 48*time.Hour+time.Minute {
			t.Errorf("ran for %v", ran)
		}
	})
}

func TestTimeout(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		causes := offerHang(a, agent.SilenceTimeout(3*time.Hour))
		d, _, _ := connect(t, p, a)
		for _, c := range []struct {
			name          string
			granted, want time.Duration
		}{
			{"granted", time.Minute, time.Minute},
			{"the procedure's own", 0, 3 * time.Hour},
			{"capped by its own", 5 * time.Hour, 3 * time.Hour},
			{"no limit, capped by its own", harp.NoLimit, 3 * time.Hour},
		} {
			began := time.Now()
			x := d.call("hang", nil, limits(c.granted, harp.NoLimit)).accepted()
			s, end := x.stopping(), x.end()
			if s.Cause != wire.CauseTimeout || time.Duration(s.Limit) != c.want || end.Stopped == nil || !reflect.DeepEqual(*end.Stopped, s) {
				t.Errorf("%s: STOPPING %+v, END %+v", c.name, s, end)
			}
			if ran := time.Since(began); ran != c.want || time.Duration(end.RanFor) != c.want {
				t.Errorf("%s: ran for %v", c.name, ran)
			}
			var limit *harp.TimeoutError
			if cause := <-causes; !errors.As(cause, &limit) || !errors.Is(cause, harp.ErrTimeout) ||
				limit.Of != harp.LimitSilenceTimeout || limit.Limit != c.want {
				t.Errorf("%s: cause %v", c.name, cause)
			}
		}
	})
}

// TestDefaultLimits checks the limits of a call for which nobody named any: a procedure that has
// records may be silent for ten minutes, one that has none as long as it may run.
func TestDefaultLimits(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offerHang(a)
		offerStream(a, "quiet", func(ctx context.Context, _ func(int) error) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		d, _, _ := connect(t, p, a)
		for _, c := range []struct {
			procedure, cause string
			limit            time.Duration
		}{
			{"quiet", wire.CauseTimeout, 10 * time.Minute},
			{"hang", wire.CauseMaxExecTime, 24 * time.Hour},
		} {
			s := d.call(c.procedure, nil).accepted().stopping()
			if s.Cause != c.cause || time.Duration(s.Limit) != c.limit {
				t.Errorf("%s: STOPPING %+v, want %s after %v", c.procedure, s, c.cause, c.limit)
			}
		}
	})
}

// TestBusyStream checks the two limits on a stream that never pauses: records keep
// the one on silence away, and nothing keeps away the one on the whole run.
func TestBusyStream(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offerStream(a, "tick", func(ctx context.Context, emit func(int) error) error {
			for i := 0; ; i++ {
				if err := emit(i); err != nil {
					return err
				}
				select {
				case <-time.After(59 * time.Second):
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
		})
		d, _, _ := connect(t, p, a)
		began := time.Now()
		x := d.call("tick", nil, limits(time.Minute, time.Hour)).accepted()
		s := x.stopping()
		if s.Cause != wire.CauseMaxExecTime || time.Since(began) != time.Hour {
			t.Errorf("STOPPING %+v after %v", s, time.Since(began))
		}
		if end := x.restOf(); end.Records != 62 {
			t.Errorf("%d records", end.Records)
		}
	})
}

// TestSilenceAfterRecords checks that the limit on silence counts from the last
// record, and is not a limit in all.
func TestSilenceAfterRecords(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offerStream(a, "fade", func(ctx context.Context, emit func(int) error) error {
			for i := range 10 {
				if err := emit(i); err != nil {
					return err
				}
				time.Sleep(40 * time.Second)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		d, _, _ := connect(t, p, a)
		began := time.Now()
		x := d.call("fade", nil, limits(time.Minute, time.Hour)).accepted()
		if s := x.stopping(); s.Cause != wire.CauseTimeout || time.Since(began) != 9*40*time.Second+time.Minute {
			t.Errorf("STOPPING %+v after %v", s, time.Since(began))
		}
		x.restOf()
	})
}

// TestHeldBackIsNotSilent checks that a procedure harp itself holds back is not
// silent, and that the limit on the whole run holds all the same.
func TestHeldBackIsNotSilent(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offerStream(a, "count", func(_ context.Context, emit func(int) error) error {
			for i := 0; ; i++ {
				if err := emit(i); err != nil {
					return err
				}
			}
		})
		d, _, _ := connect(t, p, a)
		window := func(c *wire.Call, r *harp.Request) {
			limits(time.Minute, 2*time.Hour)(c, r)
			c.Window = 330 // ten records
		}
		began := time.Now()
		x := d.call("count", nil, window).accepted()
		time.Sleep(time.Hour) // virtual: an hour in which nothing is acknowledged
		if m := expect[wire.Records](x, wire.TypeRecords); len(m.Records) == 0 {
			t.Error("no records")
		}
		x.ack(1) // lets one more in; then the procedure waits again
		s := x.untilStopping(func(int64) {})
		if s.Cause != wire.CauseMaxExecTime || time.Since(began) != 2*time.Hour {
			t.Errorf("STOPPING %+v after %v", s, time.Since(began))
		}
		if end := x.restOf(); len(end.Value) > 0 {
			t.Errorf("emit returned no error: %+v", end)
		}
	})
}

// TestSilentAfterHeldBack checks that silence is measured again once the procedure
// is no longer held back.
func TestSilentAfterHeldBack(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offerStream(a, "stall", func(ctx context.Context, emit func(int) error) error {
			for i := range 11 {
				if err := emit(i); err != nil {
					return err
				}
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		d, _, _ := connect(t, p, a)
		x := d.call("stall", nil, func(c *wire.Call, r *harp.Request) {
			limits(time.Minute, harp.NoLimit)(c, r)
			c.Window = 330
		}).accepted()
		time.Sleep(time.Hour)
		released := time.Now()
		s := x.stopping() // acknowledges
		if s.Cause != wire.CauseTimeout || time.Since(released) != time.Minute {
			t.Errorf("STOPPING %+v after %v", s, time.Since(released))
		}
		x.restOf()
	})
}

// TestEmitWhileStopping checks that emit, also one that waits, returns the cause.
func TestEmitWhileStopping(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		errs := make(chan error, 2)
		offerStream(a, "count", func(_ context.Context, emit func(int) error) error {
			err := emit(0)
			for err == nil { // it may be stopped between two
				err = emit(0)
			}
			errs <- err
			errs <- emit(1)
			return nil
		})
		d, _, _ := connect(t, p, a)
		x := d.call("count", nil, func(c *wire.Call, _ *harp.Request) { c.Window = 330 }).accepted()
		synctest.Wait()
		x.cancel()
		end, _ := x.ended()
		for range 2 {
			if err := <-errs; !errors.Is(err, harp.ErrCancelled) {
				t.Errorf("emit returned %v", err)
			}
		}
		if end.Stopped == nil || end.Records == 0 {
			t.Errorf("END %+v", end)
		}
	})
}
