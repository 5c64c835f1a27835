//go:build linux && !race

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/faults/actor"
	"github.com/harpcaller/harp/internal/faults/history"
	"github.com/harpcaller/harp/internal/faults/proxy"
	"github.com/harpcaller/harp/internal/faults/witness"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// suicide runs procedures that kill their agent, and returns what was broken: each
// may have begun once, and is lost.
func suicide(t *testing.T, f *Fleet) []string {
	t.Helper()
	must(t, f.StartDispatcher())
	all := callers(t, f, 1)
	const host = "host00"
	startAgents(t, f, all[0], host)
	c := history.Call{ID: harp.NewID(), Host: host, Acked: true}
	f.History.Invoke(c)
	job, err := all[0].Host(host).Call(t.Context(), actor.Work, actor.Args{Suicide: true}, harp.JobID(c.ID))
	must(t, err)
	for range 2 { // a second life shows whether it is run again
		if !diesOrEnds(t, f.AgentProcess(host), job) {
			break
		}
		f.KillAgentUnread(host)
		must(t, f.StartAgent(host))
	}
	if s, err := job.Status(t.Context()); err == nil && s.State.Ended() {
		return settled(t, f, all[0])
	}
	f.Kill()
	must(t, f.ReadWitness())
	broken := []string{"I1: job " + c.ID + " does not come to its end"}
	for _, v := range f.History.Check() {
		broken = append(broken, v.String())
	}
	return broken
}

// diesOrEnds waits until a process is dead, or a job has ended; true: it is dead.
func diesOrEnds(t *testing.T, p *Process, job *harp.Job) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), readyWithin)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = job.Wait(ctx)
	}()
	dead := false
	select {
	case <-p.Done():
		dead = true
	case <-ended:
	}
	cancel()
	<-ended
	return dead
}

// A procedure that kills its agent is not run again.
func TestSuicide(t *testing.T) {
	t.Parallel()
	complain(t, suicide(t, newFleet(t)))
}

// twice is a dispatcher that sends each call several times.
type twice struct {
	request []byte // of the call
	said    chan error
}

// listen serves agents where the dispatcher of the fleet would, until it is stopped.
func (d *twice) listen(t *testing.T, f *Fleet) (stop func()) {
	t.Helper()
	tc, err := f.TLS(transport.RoleDispatcher, "dispatcher")
	must(t, err)
	l, err := net.Listen("tcp", f.Addr)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	serving := make(chan error, 1)
	go func() {
		serving <- transport.Serve(ctx, l, transport.ServeConfig{
			TLS: tc, Protocols: map[string]transport.Role{transport.ProtocolAgent: transport.RoleAgent},
		}, d.serve)
	}()
	return func() {
		t.Helper()
		cancel()
		must(t, <-serving)
	}
}

// serve greets an agent and calls: twice at once, again in the same session, and,
// as it does all of this in each session, again after that.
func (d *twice) serve(ctx context.Context, conn *transport.Conn) {
	err := d.converse(ctx, conn)
	select {
	case d.said <- err:
	case <-ctx.Done():
	}
}

func (d *twice) converse(ctx context.Context, conn *transport.Conn) error {
	s, err := conn.Opener(ctx, transport.Options{MaxFrame: wire.MaxBody})
	if err != nil {
		return err
	}
	go s.Serve(nil) //nolint:errcheck // it ends with the session
	defer s.Close(nil)
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if err := d.greet(ctx, s); err != nil {
		return err
	}
	var calling sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		calling.Go(func() { errs[i] = d.call(ctx, s) })
	}
	calling.Wait()
	return errors.Join(errors.Join(errs...), d.call(ctx, s))
}

// greet is a session's beginning, as the dispatcher that the agent knows. It lets
// the agent keep what it has.
func (d *twice) greet(ctx context.Context, s *transport.Session) error {
	control := s.Control()
	for {
		f, err := control.Receive(ctx)
		if err != nil {
			return err
		}
		switch f.Type {
		case wire.TypeHello:
			err = control.Send(wire.TypeWelcome, false, wire.Encode(wire.Welcome{
				Version: wire.Version, Store: "twice", Epoch: 1, Heartbeat: int64(time.Second), Max: 100,
			}))
		case wire.TypeHeld:
			err = control.Send(wire.TypeForget, false, wire.Encode(wire.Forget{Last: true}))
		case wire.TypeReady:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// call calls, and does not mind how that is answered. It does not acknowledge the
// end: the agent has to keep it.
func (d *twice) call(ctx context.Context, s *transport.Session) error {
	x, err := s.Exchange()
	if err != nil {
		return err
	}
	defer x.Release()
	if err := x.Send(wire.TypeCall, false, wire.Encode(wire.Call{
		Submission: harp.Submission{Request: d.request}, Attempt: 1, Fence: 1, Epoch: 1, Window: wire.Window,
		SilenceTimeout: int64(time.Minute), MaxExecTime: int64(time.Minute),
	})); err != nil {
		return err
	}
	for {
		f, err := x.Receive(ctx)
		if err != nil {
			return nil // another exchange has taken over
		}
		switch f.Type {
		case wire.TypeRefused:
			return fmt.Errorf("the call is refused: %x", f.Body)
		case wire.TypeEnd, wire.TypeNotNow:
			return nil
		}
	}
}

// calledTwice lets an agent be called again and again for the same attempt, over two
// sessions and a restart, and returns what was broken. What the session says that was
// cut by the kill is not heard: each life of the agent has a dispatcher of its own.
func calledTwice(t *testing.T, f *Fleet) []string {
	t.Helper()
	args, err := harp.NewValue(map[string]any{"sleep": 200 * time.Millisecond})
	must(t, err)
	id := harp.NewID()
	f.History.Invoke(history.Call{ID: id, Host: "host00"})
	request := harp.Request{ID: id, Host: "host00", Procedure: actor.Work, Args: args}.Encode()
	for range 2 {
		d := &twice{request: request, said: make(chan error)}
		stop := d.listen(t, f)
		must(t, f.StartAgent("host00"))
		for range 2 {
			must(t, <-d.said)
		}
		f.KillAgentUnread("host00")
		stop()
	}
	must(t, f.ReadWitness())
	var broken []string
	begins := 0
	for _, w := range f.History.Witness {
		if w.What == witness.Begin {
			begins++
		}
	}
	if begins == 0 {
		t.Fatal("it did not run at all")
	}
	for _, v := range f.History.Check() {
		broken = append(broken, v.String())
	}
	return broken
}

// An agent that is called again for the same attempt does not run it again,
// whatever its dispatcher thinks.
func TestCalledTwice(t *testing.T) {
	t.Parallel()
	complain(t, calledTwice(t, newFleet(t)))
}

// cutStreams cuts the connections of agents while they have much to say, and returns
// what was broken.
func cutStreams(t *testing.T, tested string) []string {
	t.Helper()
	hosts := names(2)
	f := newFleet(t)
	f.Program = tested
	p, err := proxy.New(f.Addr, report.Seed)
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	f.Agent.Connect = p.Addr()
	must(t, f.StartDispatcher())
	all := callers(t, f, 2)
	startAgents(t, f, all[0], hosts...)
	l := &Load{
		Fleet: f, Callers: all, Hosts: hosts, Rate: 50, Workers: 16,
		Args: func(r *rand.Rand) actor.Args {
			return actor.Args{Records: 100 + r.IntN(200), Size: r.IntN(100), Pace: 3 * time.Millisecond}
		},
	}
	underLoad(t, l, func(r *rand.Rand) {
		for range pick(5, 200) {
			between(r, 300*time.Millisecond, time.Second)
			p.Cut()
		}
	})
	return settled(t, f, all[0])
}

// Streams go on over cut connections without gap or repeat.
func TestCutStreams(t *testing.T) {
	t.Parallel()
	complain(t, cutStreams(t, program))
}

// Long arguments, records and results go over cut connections, of callers and of agents, as
// short ones do.
func TestCutLongBodies(t *testing.T) {
	t.Parallel()
	hosts := names(3)
	f := newFleet(t)
	var lines []*proxy.Proxy // of callers, and of agents
	for i := range uint64(2) {
		p, err := proxy.New(f.Addr, report.Seed+i)
		must(t, err)
		t.Cleanup(func() { must(t, p.Close()) })
		lines = append(lines, p)
	}
	f.Via, f.Agent.Connect = lines[0].Addr(), lines[1].Addr()
	must(t, f.StartDispatcher())
	all := callers(t, f, 3)
	startAgents(t, f, all[0], hosts...)
	l := &Load{Fleet: f, Callers: all, Hosts: hosts, Rate: 60, Workers: 48, Args: longBodies}
	underLoad(t, l, func(r *rand.Rand) {
		for range pick(15, 400) {
			between(r, 50*time.Millisecond, 700*time.Millisecond)
			p := lines[r.IntN(len(lines))]
			switch r.IntN(3) {
			case 0: // while they are on their way for long
				p.Set(proxy.Faults{Rate: 2_000_000})
			case 1:
				p.Set(proxy.Faults{StallUp: r.IntN(2) == 0, StallDown: r.IntN(2) == 0})
			}
			between(r, 10*time.Millisecond, 300*time.Millisecond)
			p.Cut()
			p.Set(proxy.Faults{})
		}
	})
	holds(t, f, all[0])
}

// longBodies are arguments of jobs with long bodies, some of them about as long as those that
// are sent with their frames.
func longBodies(r *rand.Rand) actor.Args {
	size := func(most int) int {
		switch r.IntN(3) {
		case 0:
			return 0
		case 1:
			return 16<<10 - 300 + r.IntN(600)
		}
		return r.IntN(most)
	}
	return actor.Args{
		Records: r.IntN(12), Size: size(60 << 10), Returns: size(400 << 10), Fill: strings.Repeat("y", size(300<<10)),
		Sleep: max(0, time.Duration(r.IntN(900)-600)) * time.Millisecond,
	}
}
