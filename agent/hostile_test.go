package agent_test

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// TestHostileFrames checks that each frame that breaks the protocol ends its
// session and nothing else: the agent comes back, and what runs goes on.
func TestHostileFrames(t *testing.T) {
	good := func(p *peer) wire.Call {
		req := harp.Request{ID: harp.NewID(), Host: agentID.Name, Procedure: "hang"}
		return wire.Call{Submission: harp.Submission{Request: req.Encode()}, Attempt: 1, Epoch: p.epoch}
	}
	for name, attack := range map[string]func(p *peer){
		"a CALL that is a text":  func(p *peer) { p.begin(wire.TypeCall, []byte{0xa1, 'x'}) },
		"a CALL without a body":  func(p *peer) { p.begin(wire.TypeCall, nil) },
		"a CALL of wrong types":  func(p *peer) { p.begin(wire.TypeCall, wire.Encode(map[string]any{"attempt": "one"})) },
		"a RESUME that is a nil": func(p *peer) { p.begin(wire.TypeResume, []byte{0x93}) },
		"a bomb":                 func(p *peer) { p.begin(wire.TypeCall, []byte{0xdd, 0xff, 0xff, 0xff, 0xff}) },
		"depth": func(p *peer) {
			x, err := p.session.Exchange()
			if err != nil {
				p.t.Fatal(err)
			}
			// The agent may end the session before all of this is sent.
			_ = x.Send(wire.TypeCall, false, bytes.Repeat([]byte{0x91}, 1<<20))
		},
		"an unknown beginning": func(p *peer) { p.begin(99, nil) },
		"an answer":            func(p *peer) { p.begin(wire.TypeEnd, wire.Encode(wire.End{})) },
		"another epoch": func(p *peer) {
			c := good(p)
			c.Epoch++
			p.begin(wire.TypeCall, wire.Encode(c))
		},
		"RESUME of another epoch": func(p *peer) { p.begin(wire.TypeResume, wire.Encode(wire.Resume{Epoch: 9})) },
		"ACK of what was not sent": func(p *peer) {
			p.begin(wire.TypeCall, wire.Encode(good(p))).ack(1)
		},
		"ACK of an end that is not": func(p *peer) {
			p.begin(wire.TypeCall, wire.Encode(good(p))).send(wire.TypeAck, wire.Ack{End: true})
		},
		"CALL in a CALL": func(p *peer) {
			p.begin(wire.TypeCall, wire.Encode(good(p))).send(wire.TypeCall, good(p))
		},
		"CANCEL that is none": func(p *peer) {
			p.begin(wire.TypeCall, wire.Encode(good(p))).send(wire.TypeCancel, "x")
		},
		"HELLO on the control stream": func(p *peer) { p.say(wire.TypeHello, wire.Hello{}) },
		"FORGET that is none":         func(p *peer) { p.say(wire.TypeForget, "x") },
		"BEAT that is none":           func(p *peer) { p.say(wire.TypeBeat, "x") },
		"FORGET of what it never held": func(p *peer) {
			p.say(wire.TypeForget, wire.Forget{Attempts: make([]wire.HeldAttempt, 100)})
			p.begin(99, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, p place) {
				a := newAgent(t, p)
				offerHang(a)
				offerGreet(a)
				s, d, _ := connect(t, p, a)
				attack(s)
				<-s.session.Done()
				value[greeting](t, (<-d.sessions).call("greet", harp.Pos("Ada")).accepted().end())
			})
		})
	}
}

// TestHostileRequests checks that a request that is wrong, whatever its bytes, is
// refused and the session goes on.
func TestHostileRequests(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offerGreet(a)
		s, _, _ := connect(t, p, a)
		good := harp.Request{ID: harp.NewID(), Host: agentID.Name, Procedure: "greet", Args: harp.Value("\x81\xa4name\xa1x")}
		for i, raw := range [][]byte{
			nil,
			{},
			{0xc0},
			{0x80},
			{0xc1},
			good.Encode()[:20],
			append(good.Encode(), 0),
			with(good, func(r *harp.Request) { r.ID = "x" }),
			with(good, func(r *harp.Request) { r.Procedure = "" }),
			with(good, func(r *harp.Request) { r.Args = harp.Value{0xa1, 'x'} }),
			with(good, func(r *harp.Request) { r.Args = harp.Value{0xdd, 0xff, 0xff, 0xff, 0xff} }),
			with(good, func(r *harp.Request) { r.Args = bytes.Repeat([]byte{0x91}, 40) }),
			with(good, func(r *harp.Request) { r.Args = harp.Value("\x81\xa4name\xd4\x53x") }),            // sealed
			with(good, func(r *harp.Request) { r.Args = harp.Value("\x81\xa4name\xc4\x01\xff") }),         // bytes that are no text
			with(good, func(r *harp.Request) { r.Args = harp.Value("\x81\xa4name\xca\x7f\xc0\x00\x00") }), // NaN
			with(good, func(r *harp.Request) { r.Args = harp.Value("\x82\xa4name\xa1x\xa4loud\x01") }),    // 1 is not true
			with(good, func(r *harp.Request) { r.Args = harp.Value("\x82\xa4name\xa1x\xa4name\x01") }),    // twice
			with(good, func(r *harp.Request) { r.Args = harp.Value("\x82\xa4name\xa1x\xc0\xa1y") }),       // a key that is none
		} {
			x := s.begin(wire.TypeCall, wire.Encode(wire.Call{Submission: harp.Submission{Request: raw}, Attempt: 1}))
			if f := x.refused(); f.Code != "rejected_invalid" || f.Field == "" || f.Ran != harp.DidNotRun {
				t.Errorf("request %d: %+v", i, f)
			}
		}
		value[greeting](t, s.call("greet", harp.Pos("Ada")).accepted().end())
	})
}

func with(r harp.Request, change func(*harp.Request)) []byte {
	change(&r)
	return r.Encode()
}

// TestAbandonedExchanges checks exchanges that are given up at every point.
func TestAbandonedExchanges(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		causes := offerHang(a)
		offerGreet(a)
		s, d, _ := connect(t, p, a)
		for range 10 {
			s.call("greet", harp.Pos("Ada")).x.Release()
			x := s.call("greet", harp.Pos("Ada")).accepted()
			x.x.Release()
			y := s.call("greet", harp.Pos("Ada")).accepted()
			expect[wire.End](y, wire.TypeEnd)
			y.x.Release() // reused without ACK of END
		}
		s.call("hang", nil).accepted().x.Release()
		select {
		case cause := <-causes:
			t.Errorf("an attempt of a dispatcher ended with its exchange: %v", cause)
		default:
		}
		s.session.Close(nil)
		value[greeting](t, (<-d.sessions).call("greet", harp.Pos("Ada")).accepted().end())
	})
}

// TestHostileGreeting checks that who begins a session with what does not belong there loses it at
// once.
func TestHostileGreeting(t *testing.T) {
	welcome := wire.Welcome{Version: wire.Version, Store: "store", Heartbeat: int64(time.Hour)}
	for name, c := range map[string]struct {
		id  transport.Identity
		say func(p *peer)
	}{
		"a caller without HELLO":        {callerID, func(p *peer) { p.say(wire.TypeFacts, wire.Hello{Version: wire.Version}) }},
		"a caller's HELLO that is none": {callerID, func(p *peer) { p.say(wire.TypeHello, "x") }},
		"a dispatcher without WELCOME":  {dispatcherID, func(p *peer) { p.say(wire.TypeFacts, welcome) }},
		"WELCOME that is none":          {dispatcherID, func(p *peer) { p.say(wire.TypeWelcome, "x") }},
		"UNWELCOME that is none":        {dispatcherID, func(p *peer) { p.say(wire.TypeUnwelcome, "x") }},
		"UNWELCOME for what is no reason": {dispatcherID, func(p *peer) {
			p.say(wire.TypeUnwelcome, map[string]any{"failure": 5})
		}},
		"UNWELCOME for no reason": {dispatcherID, func(p *peer) {
			p.say(wire.TypeUnwelcome, wire.Unwelcome{})
		}},
		"something in place of FORGET": {dispatcherID, func(p *peer) {
			p.say(wire.TypeWelcome, welcome)
			p.say(wire.TypeFacts, wire.Forget{Last: true})
		}},
		"FORGET that is none": {dispatcherID, func(p *peer) {
			p.say(wire.TypeWelcome, welcome)
			p.say(wire.TypeForget, "x")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, p place) {
				a := newAgent(t, p)
				l := p.listen(t, agentID)
				run(t, func(ctx context.Context) error { return a.Serve(ctx, l) })
				protocol := transport.ProtocolAgent
				if c.id == callerID {
					protocol = transport.ProtocolDirect
				}
				s, err := dial(t, p, l, c.id, protocol).Opener(t.Context(), transport.Options{Logger: silent})
				if err != nil {
					t.Fatal(err)
				}
				hostile := newPeer(t, s)
				c.say(hostile)
				synctest.Wait()
				if s.Err() == nil {
					t.Error("it still has a session")
					s.Close(nil)
				}
			})
		})
	}
}

// TestUnfinishedGreeting checks that a dispatcher that never answers is given up.
func TestUnfinishedGreeting(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		l := p.listen(t, agentID)
		run(t, func(ctx context.Context) error { return a.Serve(ctx, l) })
		for _, id := range []transport.Identity{dispatcherID, callerID} {
			protocol := transport.ProtocolAgent
			if id == callerID {
				protocol = transport.ProtocolDirect
			}
			s, err := dial(t, p, l, id, protocol).Opener(t.Context(), transport.Options{Logger: silent})
			if err != nil {
				t.Fatal(err)
			}
			go s.Serve(nil) //nolint:errcheck // its end is what is tested
			began := time.Now()
			<-s.Done()
			if waited := time.Since(began); waited != 30*time.Second {
				t.Errorf("%s: given up after %v", protocol, waited)
			}
		}
	})
}
