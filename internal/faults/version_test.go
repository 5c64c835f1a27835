//go:build linux && !race

package faults

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// later is a hello of a later version, or of this one with a field that is not
// known yet.
type later struct {
	Version  int64  `msgpack:"v"`
	Software string `msgpack:"software,omitempty"`
	Instance string `msgpack:"instance,omitempty"`
	Journal  string `msgpack:"journal,omitempty"`
	Novelty  string `msgpack:"novelty"`
}

// welcomeOf greets the dispatcher as a caller and returns how it is answered.
func welcomeOf(t *testing.T, f *Fleet, hello any) transport.Frame {
	t.Helper()
	tc, err := f.TLS(transport.RoleCaller, "later")
	must(t, err)
	nc, err := net.Dial("tcp", f.Addr)
	must(t, err)
	conn, err := transport.Client(t.Context(), nc, tc, transport.ProtocolCall, transport.RoleDispatcher)
	must(t, err)
	defer conn.Close()
	s, err := conn.Opener(t.Context(), transport.Options{MaxFrame: wire.MaxBody})
	must(t, err)
	return greeted(t, s, hello)
}

// greeted says hello over the control stream and returns the answer.
func greeted(t *testing.T, s *transport.Session, hello any) transport.Frame {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), readyWithin)
	defer cancel()
	go s.Serve(nil) //nolint:errcheck // it ends with the session
	control := s.Control()
	_ = control.Send(wire.TypeHello, false, wire.Encode(hello)) // fails if it is answered, and the session over, before it returns
	answer, err := control.Receive(ctx)
	must(t, err)
	return answer
}

// refusedVersion expects an answer that says no in a form that can be read.
func refusedVersion(t *testing.T, answer transport.Frame) {
	t.Helper()
	if answer.Type != wire.TypeUnwelcome {
		t.Fatalf("a later version is answered with frame type %d", answer.Type)
	}
	var m wire.Unwelcome
	must(t, wire.Decode(answer.Body, &m))
	if harp.FailureOf(m.Failure).Message == "" {
		t.Errorf("the refusal says %v", m.Failure)
	}
}

// T20: who speaks another version is refused so that it can say why, and what is
// not known yet does not matter.
func TestMixedVersions(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	must(t, f.StartDispatcher())
	refusedVersion(t, welcomeOf(t, f, later{Version: wire.Version + 1, Instance: harp.NewID()}))
	if answer := welcomeOf(t, f, later{Version: wire.Version, Instance: harp.NewID(), Novelty: "x"}); answer.Type != wire.TypeWelcome {
		t.Errorf("an unknown field is answered with frame type %d", answer.Type)
	}
	refusedVersion(t, agentWelcome(t, f, later{Version: wire.Version + 1, Instance: harp.NewID(), Journal: harp.NewID()}))

	// The agent of this version comes in all the same.
	all := callers(t, f, 1)
	startAgents(t, f, all[0], "host00")
	complete(t, stream(t, all[0], 3, 1, 0), 3)
	must(t, f.Stop())
}

// agentWelcome greets the dispatcher as an agent.
func agentWelcome(t *testing.T, f *Fleet, hello any) transport.Frame {
	t.Helper()
	tc, err := f.TLS(transport.RoleAgent, "later")
	must(t, err)
	nc, err := net.Dial("tcp", f.Addr)
	must(t, err)
	conn, err := transport.Client(t.Context(), nc, tc, transport.ProtocolAgent, transport.RoleDispatcher)
	must(t, err)
	defer conn.Close()
	s, err := conn.Acceptor(t.Context(), transport.Options{MaxFrame: wire.MaxBody})
	must(t, err)
	return greeted(t, s, hello)
}

// An agent does not obey a dispatcher of another version, and comes again.
func TestAgentMeetsLaterDispatcher(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	tc, err := f.TLS(transport.RoleDispatcher, "dispatcher")
	must(t, err)
	l, err := net.Listen("tcp", f.Addr)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), readyWithin)
	defer cancel()
	ends := make(chan error, 1)
	serving := make(chan error, 1)
	go func() {
		serving <- transport.Serve(ctx, l, transport.ServeConfig{
			TLS: tc, Protocols: map[string]transport.Role{transport.ProtocolAgent: transport.RoleAgent},
		}, func(ctx context.Context, conn *transport.Conn) {
			err := welcomeLater(ctx, conn)
			select {
			case ends <- err:
			case <-ctx.Done():
			}
		})
	}()
	must(t, f.StartAgent("host00"))
	for range 2 {
		select {
		case err := <-ends:
			if !errors.Is(err, errLeft) {
				t.Errorf("the agent answers a later dispatcher: %v", err)
			}
		case <-ctx.Done():
			t.Fatal("the agent does not come again")
		}
	}
	must(t, f.AgentProcess("host00").Stop(readyWithin))
	delete(f.agents, "host00")
	cancel()
	must(t, <-serving)
}

// errLeft is how an agent should take a welcome in another version: it says nothing
// more.
var errLeft = errors.New("the agent left")

// welcomeLater answers an agent's hello as a dispatcher of a later version.
func welcomeLater(ctx context.Context, conn *transport.Conn) error {
	s, err := conn.Opener(ctx, transport.Options{MaxFrame: wire.MaxBody})
	if err != nil {
		return err
	}
	go s.Serve(nil) //nolint:errcheck // it ends with the session
	defer s.Close(nil)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	control := s.Control()
	if _, err := control.Receive(ctx); err != nil {
		return err
	}
	welcome := wire.Welcome{Version: wire.Version + 1, Store: harp.NewID(), Epoch: 1}
	err = control.Send(wire.TypeWelcome, false, wire.Encode(welcome))
	if err != nil && !errors.Is(err, transport.ErrSessionClosed) { // that it is over it may be told before Send returns
		return err
	}
	if _, err := control.Receive(ctx); err == nil {
		return errors.New("it goes on talking")
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errLeft
}
