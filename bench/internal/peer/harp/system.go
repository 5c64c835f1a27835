package harp

import (
	"context"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
	"github.com/harpcaller/harp/internal/tune"
)

// The names of harp where it can be in one process: peers whose server is a process of its
// own are compared with Apart.
const (
	Apart    = "harp apart"
	Together = "harp in one process"
)

// apartNote says what Apart is.
const apartNote = "dispatcher, agent and caller in three processes, the first two set up as the program harp does"

// system is a dispatcher with one agent, and a caller.
type system struct {
	caller *harp.Caller
	parts  lab.Closers
}

func (s *system) Close() error { return s.parts.Close() }

// together makes a system in this process. Dispatcher and agent speak over TLS on
// loopback all the same.
func together(ctx context.Context, l *lab.Lab) (*system, error) {
	s := &system{}
	return s, s.parts.Unless(s.together(ctx, l))
}

func (s *system) together(ctx context.Context, l *lab.Lab) error {
	dir, err := l.Fresh("harp")
	if err != nil {
		return err
	}
	d, err := serve(ctx, l, dir+"/store", "")
	if err != nil {
		return err
	}
	s.parts.Add(d.Close)
	as, _, err := startAgents(ctx, l, agentsArg{Dir: dir + "/agent", Connect: d.addr, Count: 1})
	if err != nil {
		return err
	}
	s.parts.Add(as.Close)
	s.caller = d.Caller()
	s.parts.Add(s.caller.Close)
	return waitOnline(ctx, s.caller, host(0))
}

// raised is a rig whose rounds have more goroutines run than there are CPUs, as the
// documentation has a program do that has a dispatcher in it. The rounds of others do
// not: what the limit does by hand gets slower by it.
func raised(r measure.Rig, err error) (measure.Rig, error) {
	if err != nil {
		return nil, err
	}
	return raisedRig{r}, nil
}

type raisedRig struct{ measure.Rig }

func (r raisedRig) Round(ctx context.Context, p measure.Point) (measure.Sample, error) {
	defer tune.RaiseProcs()()
	return r.Rig.Round(ctx, p)
}

// apart makes a system of three processes: dispatcher, agent, and this one, where
// the caller is.
func apart(ctx context.Context, l *lab.Lab) (*system, error) {
	s := &system{}
	return s, s.parts.Unless(s.apart(ctx, l))
}

func (s *system) apart(ctx context.Context, l *lab.Lab) error {
	dir, err := l.Fresh("harp")
	if err != nil {
		return err
	}
	var said dispatcherSaid
	d, err := l.Start(ctx, DispatcherRole, dispatcherArg{Dir: dir + "/store"}, &said)
	if err != nil {
		return err
	}
	s.parts.Add(d.Close)
	a, err := l.Start(ctx, AgentsRole, agentsArg{Dir: dir + "/agent", Connect: said.Addr, Count: 1}, nil)
	if err != nil {
		return err
	}
	s.parts.Add(a.Close)
	if s.caller, err = dial(ctx, l, said.Addr); err != nil {
		return err
	}
	s.parts.Add(s.caller.Close)
	return waitOnline(ctx, s.caller, host(0))
}
