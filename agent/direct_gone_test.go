package agent_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/internal/wire"
)

// TestDirectCallerGoesAmidRecords checks that a procedure whose caller goes while it is
// sent records is stopped, and nothing else is.
func TestDirectCallerGoesAmidRecords(t *testing.T) {
	a := newAgent(t, loopback{})
	stopped := make(chan struct{}, 1)
	agent.HandleStream(a, harp.NewStreamProc[struct{}, int, int]("endless"), func(ctx context.Context, _ struct{}, emit func(int) error) (int, error) {
		for {
			if err := emit(1); err != nil {
				stopped <- struct{}{}
				return 0, err
			}
		}
	})
	c, _ := serve(t, loopback{}, a)
	for range 100 {
		x := c.call("endless", nil)
		expect[wire.Started](x, wire.TypeStarted)
		expect[wire.Records](x, wire.TypeRecords)
		x.x.Release()
		<-stopped
	}
}

// TestDirectCallerSaysNoMore checks that a caller that has said with its CALL that nothing
// follows is missed all the same when it goes.
func TestDirectCallerSaysNoMore(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		began, stopped := make(chan struct{}), make(chan struct{})
		offer(a, "wait", func(ctx context.Context) (int, error) {
			close(began)
			<-ctx.Done()
			close(stopped)
			return 0, ctx.Err()
		})
		c, _ := serve(t, p, a)
		x, err := c.session.Exchange()
		if err != nil {
			t.Fatal(err)
		}
		req := harp.Request{ID: harp.NewID(), Host: agentID.Name, Procedure: "wait"}
		call := wire.Call{Attempt: 1, Window: wire.Window, Submission: harp.Submission{Request: req.Encode()}}
		if err := x.Send(wire.TypeCall, true, wire.Encode(call)); err != nil {
			t.Fatal(err)
		}
		<-began
		x.Release()
		<-stopped
	})
}

// TestDirectThreadIsNotKept checks that a function which binds its goroutine to a thread,
// and is declared to, does not leave that to the next.
func TestDirectThreadIsNotKept(t *testing.T) {
	a := newAgent(t, loopback{})
	names := make(chan string, 1)
	offer(a, "bind", func(context.Context) (int, error) {
		runtime.LockOSThread() // and not unlocked: the thread ends with the goroutine
		names <- goroutine()
		return 0, nil
	}, agent.OwnThread())
	offer(a, "next", func(context.Context) (int, error) {
		names <- goroutine()
		return 0, nil
	})
	c, _ := serve(t, loopback{}, a)
	for range 20 {
		c.call("bind", nil).ended()
		bound := <-names
		c.call("next", nil).ended()
		if next := <-names; next == bound {
			t.Fatalf("%s has bound its thread and runs the next", bound)
		}
	}
}

// goroutine is which one this is.
func goroutine() string {
	var b [32]byte
	return string(b[:runtime.Stack(b[:], false)])
}

// TestDirectCallerGoesAndItsProcedureRunsOn checks that what a procedure emits is not kept when its caller, to whom
// alone it would be told, has gone.
func TestDirectCallerGoesAndItsProcedureRunsOn(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a, gone, release := newAgent(t, p), make(chan struct{}), make(chan struct{})
		offer(a, "deaf", func(ctx context.Context) (int, error) {
			<-ctx.Done()
			for range 10 {
				agent.Log(ctx).Info(strings.Repeat("x", 10_000))
			}
			close(gone)
			<-release
			return 0, nil
		})
		s, _ := serve(t, p, a)
		s.call("deaf", nil)
		synctest.Wait()
		s.session.Close(nil)
		<-gone
		if n := a.HeldBytes(); n != 0 {
			t.Errorf("%d bytes are held for nobody", n)
		}
		close(release)
		synctest.Wait()
		if n := a.Counted(); n != 0 {
			t.Errorf("%d bytes are counted", n)
		}
	})
}
