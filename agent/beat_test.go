package agent_test

import (
	"context"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

// TestProbe checks that an empty FORGET is answered.
func TestProbe(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s, _, _ := connect(t, p, newAgent(t, p))
		for range 3 {
			s.say(wire.TypeForget, wire.Forget{})
			if err := s.hear(t.Context(), wire.TypeReady, new(wire.Ready)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestForgetInPages checks that a FORGET of several pages is answered once, after the last.
func TestForgetInPages(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s, _, _ := connect(t, p, newAgent(t, p))
		for range 3 {
			s.say(wire.TypeForget, wire.Forget{Attempts: []wire.HeldAttempt{{Job: harp.NewID(), Attempt: 1}}})
		}
		s.forget(wire.HeldAttempt{Job: harp.NewID(), Attempt: 1})
		s.say(wire.TypeBeat, wire.Beat{Heartbeat: int64(time.Hour)})
		if err := s.hear(t.Context(), wire.TypeBeat, new(wire.Beat)); err != nil {
			t.Fatal(err)
		}
	})
}

// TestBeat checks that an agent takes another interval of heartbeats, within the
// bounds of that of WELCOME, and says which.
func TestBeat(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		s, _, _ := connect(t, p, newAgent(t, p))
		for told, taken := range map[time.Duration]time.Duration{
			time.Minute:     time.Minute,
			20 * time.Hour:  20 * time.Hour,
			0:               10 * time.Second,
			-1:              10 * time.Second,
			1:               10 * time.Millisecond,
			48 * time.Hour:  24 * time.Hour,
			1<<63 - 1:       24 * time.Hour,
			2 * time.Second: 2 * time.Second,
		} {
			s.say(wire.TypeBeat, wire.Beat{Heartbeat: int64(told)})
			var m wire.Beat
			if err := s.hear(t.Context(), wire.TypeBeat, &m); err != nil || time.Duration(m.Heartbeat) != taken {
				t.Errorf("told %v it takes %v, %v", told, time.Duration(m.Heartbeat), err)
			}
			s.session.Beat(taken) // or it hears too little
			begin := time.Now()
			for n := range 3 {
				before := s.session.Heard()
				time.Sleep(taken*11/10 + time.Millisecond)
				if s.session.Err() != nil || !s.session.Heard().After(before) {
					t.Fatalf("at %v, nothing was heard in interval %d: %v", taken, n, s.session.Err())
				}
			}
			if time.Since(s.session.Heard()) > time.Since(begin)/2 {
				t.Errorf("at %v it was last heard %v ago", taken, time.Since(s.session.Heard()))
			}
		}
	})
}

// TestSilentDispatcher checks that a session in which nothing is heard is given up.
func TestSilentDispatcher(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		d := listen(t, p)
		d.set(func(d *dispatcher) { d.welcome.Heartbeat = int64(10 * time.Second) })
		run(t, func(ctx context.Context) error { return a.Connect(ctx, d.addr) })
		s := <-d.sessions
		s.session.Beat(0)
		began := time.Now()
		<-s.session.Done()
		if silent := time.Since(began); silent < 20*time.Second || silent > 40*time.Second {
			t.Errorf("given up after %v", silent)
		}
		<-d.sessions
	})
}
