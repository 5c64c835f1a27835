package dispatcher_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store/memory"
	"github.com/harpcaller/harp/transport"
)

// script writes a program that prints text and ends with a code.
func script(t *testing.T, text, code string) dispatcher.HostScript {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hosts")
	body := "#!/bin/sh\ncat <<'END'\n" + text + "\nEND\nexit " + code + "\n"
	if err := os.WriteFile(path, []byte(body), 0o700); err != nil {
		t.Fatal(err)
	}
	return dispatcher.HostScript{Command: []string{"/bin/sh", path}}
}

func TestHostScript(t *testing.T) {
	for _, c := range []struct {
		name, text, code, trouble string
		hosts                     int
	}{
		{"good", `{"name":"a","address":"10.0.0.1:7442"}` + "\n\n" + `{"name":"b"}`, "0", "", 2},
		{"empty", "", "0", "", 0},
		{"fails", `{"name":"a"}`, "3", "exit status 3", 0},
		{"labels", `{"name":"a","labels":{"role":"web"}}`, "0", "", 1},
		{"unknown key", `{"name":"a"}` + "\n" + `{"name":"b","addr":"10.0.0.1"}`, "0", "line 2: invalid addr: is unknown; available: name, address, labels", 0},
		{"case", `{"Name":"a"}`, "0", "line 1: invalid Name: is unknown", 0},
		{"no object", `["a"]`, "0", "line 1", 0},
		{"no json", `{"name":"a"}` + "\nnonsense", "0", "line 2", 0},
	} {
		got, err := script(t, c.text, c.code).Hosts(t.Context())
		if c.trouble == "" && (err != nil || len(got) != c.hosts) {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
		if c.trouble != "" && (err == nil || !strings.Contains(err.Error(), c.trouble)) {
			t.Errorf("%s: error is %v", c.name, err)
		}
	}
}

// listeningAgent starts an agent that is dialled.
func (s *system) listeningAgent(name string, register func(*agent.Agent)) (addr string) {
	s.t.Helper()
	l, tc := s.net.listen(name, transport.RoleAgent)
	a := agent.New(agent.Config{Name: name, TLS: tc, Logger: slog.New(slog.DiscardHandler)})
	register(a)
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := a.Serve(ctx, l); err != nil {
			s.t.Errorf("agent %s: %v", name, err)
		}
	})
	s.t.Cleanup(func() { cancel(); serving.Wait() })
	return l.Addr().String()
}

// changing is a registry that a test changes.
type changing struct {
	mu    sync.Mutex
	specs []dispatcher.HostSpec
	err   error
}

func (c *changing) Hosts(context.Context) ([]dispatcher.HostSpec, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.specs, c.err
}

func (c *changing) set(err error, specs ...dispatcher.HostSpec) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.specs, c.err = specs, err
}

// A registry that takes the place of another is in force when ReplaceHosts returns; one
// that cannot be read leaves the hosts as they were.
func TestReplaceHosts(t *testing.T) {
	sys := newSystem(t, embedded, nil, dispatcher.Config{Hosts: dispatcher.StaticHosts{{Name: "a"}}})
	names := func() (all []string) {
		for h, err := range sys.caller.Hosts().List(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, h.Name)
		}
		return all
	}
	if got := names(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("at first hosts are %q", got)
	}
	for _, c := range []struct {
		source dispatcher.HostSource
		want   []string
		err    error
	}{
		{dispatcher.StaticHosts{{Name: "b"}, {Name: "c"}}, []string{"b", "c"}, nil},
		{&changing{err: errors.New("no such script")}, []string{"b", "c"}, harp.ErrUnavailable},
		{dispatcher.StaticHosts{{Name: ""}}, []string{"b", "c"}, harp.ErrUnavailable},
		{nil, nil, nil},
	} {
		n, err := sys.d.ReplaceHosts(t.Context(), c.source)
		if got := names(); !errors.Is(err, c.err) || !slices.Equal(got, c.want) || err == nil && n != len(c.want) {
			t.Errorf("%v: %d hosts, %v; then there are %q", c.source, n, err, got)
		}
	}
	without := newSystem(t, embedded, nil, dispatcher.Config{})
	if _, err := without.d.ReplaceHosts(t.Context(), dispatcher.StaticHosts{{Name: "a"}}); !errors.Is(err, harp.ErrRefused) {
		t.Errorf("where there was none: %v", err)
	}
}

// A host is not said to be unknown before the registry was read for the first time.
func TestCallsBeforeTheRegistryIsRead(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		source := &late{read: make(chan struct{})}
		other := newSystem(t, sys.wiring, nil, dispatcher.Config{Hosts: source})
		_, err := other.caller.Host("web01").Call(t.Context(), "p", nil)
		if !errors.Is(err, harp.ErrUnavailable) || harp.RanOf(err) != harp.DidNotRun {
			t.Errorf("before it was read: %v", err)
		}
		close(source.read)
		must[int](t)(other.caller.Hosts().Refresh(t.Context()))
		if _, err := other.caller.Host("web02").Call(t.Context(), "p", nil); !errors.Is(err, harp.ErrNotFound) {
			t.Errorf("after: %v", err)
		}
		must[*harp.Job](t)(other.caller.Host("web01").Call(t.Context(), "p", nil))
	})
}

// Before the registry was read for the first time nobody can say which hosts a target selects but for those that it names: the labels
// are not known of those that have connected, nor which others there are.
func TestTargetsBeforeTheRegistryIsRead(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		ctx, source := t.Context(), &late{read: make(chan struct{})}
		other := newSystem(t, sys.wiring, nil, dispatcher.Config{Hosts: source})
		other.agent("db01", greeter)
		for _, text := range []string{"web01", "web01,db01", "*", "not role=web", "10.0.0.0/8"} {
			on := other.caller.Target(text)
			for did, call := range map[string]func() error{
				"called":    func() error { return second(on.Call(ctx, "hello", harp.Args{"name": "you"})) },
				"previewed": func() error { return second(on.Preview(ctx, "hello", harp.Args{"name": "you"})) },
				"listed":    func() error { return second(on.Hosts(ctx)) },
				"labelled":  func() error { return second(other.caller.Hosts().Label(ctx, text, map[string]string{"a": "b"})) },
				"paused":    func() error { return second(other.caller.Hosts().Pause(ctx, text, "", time.Time{})) },
			} {
				if err := call(); !errors.Is(err, harp.ErrUnavailable) || harp.RanOf(err) != harp.DidNotRun {
					t.Errorf("before it was read %s is %s: %v", text, did, err)
				}
			}
		}
		must[*harp.Batch](t)(other.caller.Target("db01").Call(ctx, "hello", harp.Args{"name": "you"}))
		close(source.read)
		must[int](t)(other.caller.Hosts().Refresh(ctx))
		if names := must[[]string](t)(other.caller.Target("*").Hosts(ctx)); !slices.Equal(names, []string{"db01", "web01"}) {
			t.Errorf("after: %q", names)
		}
		if err := second(other.caller.Target("web02").Hosts(ctx)); !errors.Is(err, harp.ErrNotFound) {
			t.Errorf("after: %v", err)
		}
	})
}

// Nor are hosts of a batch that is made again gone before the registry was read.
func TestRetryBeforeTheRegistryIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		sys := newSystem(t, inMemory, nil, dispatcher.Config{Hosts: &late{read: make(chan struct{})}})
		sys.agent("web01", greeter)()
		synctest.Wait()
		batch := must[*harp.Batch](t)(sys.caller.Target("web01").Call(ctx, "hello", harp.Args{"name": "you"}, harp.ApproveFirst()))
		must[int](t)(batch.Cancel(ctx))
		must[harp.BatchStatus](t)(batch.Wait(ctx))
		must[int](t)(sys.caller.Hosts().Remove(ctx, "web01"))
		if _, err := batch.Retry(ctx, nil); !errors.Is(err, harp.ErrUnavailable) {
			t.Errorf("made again: %v", err)
		}
	})
}

// late is a registry that nobody can read at first.
type late struct{ read chan struct{} }

func (l *late) Hosts(ctx context.Context) ([]dispatcher.HostSpec, error) {
	select {
	case <-l.read:
		return []dispatcher.HostSpec{{Name: "web01"}}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func TestHostsOfTheRegistryAreDialled(t *testing.T) {
	for _, w := range []wiring{inMemory, loopback} {
		t.Run(string(w), func(t *testing.T) {
			registry := &changing{}
			cfg := dispatcher.Config{Hosts: registry}
			nets := newNetwork(t, w)
			_, cfg.TLS, cfg.Dial = nets.dial("", "dispatcher", transport.RoleDispatcher)
			sys := newSystemOn(t, w, nets, nil, cfg)
			addr := sys.listeningAgent("web01", greeter)
			registry.set(nil,
				dispatcher.HostSpec{Name: "web01", Address: addr, Labels: map[string]string{"role": "web"}},
				dispatcher.HostSpec{Name: "dials-in"})
			if n := must[int](t)(sys.caller.Hosts().Refresh(t.Context())); n != 2 {
				t.Errorf("%d hosts", n)
			}
			sys.online.wait("web01")
			job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "hello", harp.Args{"name": "Ada"}))
			must[harp.Value](t)(job.Get(t.Context()))
			h := must[harp.HostStatus](t)(sys.caller.Hosts().Get(t.Context(), "web01"))
			if h.Address != addr || h.Labels["role"] != "web" || !h.Online {
				t.Errorf("host is %+v", h)
			}
			if h := must[harp.HostStatus](t)(sys.caller.Hosts().Get(t.Context(), "dials-in")); h.Online || !h.LastHeard.IsZero() {
				t.Errorf("host is %+v", h)
			}

			// What cannot be read or cannot be keeps the old ones.
			for _, bad := range []func(){
				func() { registry.set(errors.New("no such script")) },
				func() { registry.set(nil, dispatcher.HostSpec{Name: "a"}, dispatcher.HostSpec{Name: "a"}) },
				func() { registry.set(nil, dispatcher.HostSpec{Name: ""}) },
			} {
				bad()
				if _, err := sys.caller.Hosts().Refresh(t.Context()); !errors.Is(err, harp.ErrUnavailable) {
					t.Errorf("refresh gives %v", err)
				}
				must[harp.HostStatus](t)(sys.caller.Hosts().Get(t.Context(), "dials-in"))
			}
			// One that is gone and has never connected is not known any more; one
			// that has, is.
			registry.set(nil)
			must[int](t)(sys.caller.Hosts().Refresh(t.Context()))
			if _, err := sys.caller.Hosts().Get(t.Context(), "dials-in"); !errors.Is(err, harp.ErrNotFound) {
				t.Errorf("the dropped host gives %v", err)
			}
			must[harp.HostStatus](t)(sys.caller.Hosts().Get(t.Context(), "web01"))
		})
	}
}

// A machine answers at the address of another: it is not taken for it.
func TestAnAgentAtAnothersAddressIsNotTakenForIt(t *testing.T) {
	nets := newNetwork(t, loopback)
	registry := &changing{}
	cfg := dispatcher.Config{Hosts: registry}
	_, cfg.TLS, cfg.Dial = nets.dial("", "dispatcher", transport.RoleDispatcher)
	sys := newSystemOn(t, loopback, nets, nil, cfg)
	addr := sys.listeningAgent("web02", greeter)
	registry.set(nil, dispatcher.HostSpec{Name: "web01", Address: addr})
	must[int](t)(sys.caller.Hosts().Refresh(t.Context()))
	<-sys.online.trouble
	if h := must[harp.HostStatus](t)(sys.caller.Hosts().Get(t.Context(), "web01")); h.Online || !strings.Contains(h.Error, "web02") {
		t.Errorf("host is %+v", h)
	}
}

func TestWithoutRegistryRefreshIsRefused(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		if _, err := sys.caller.Hosts().Refresh(t.Context()); !errors.Is(err, harp.ErrRefused) {
			t.Errorf("refresh gives %v", err)
		}
	})
}

func TestAListOfHostsIsKnownOnceTheDispatcherIsOpen(t *testing.T) {
	sys := newSystem(t, embedded, nil, dispatcher.Config{Hosts: dispatcher.StaticHosts{{Name: "web01"}}})
	must[harp.HostStatus](t)(sys.caller.Hosts().Get(t.Context(), "web01"))

	_, err := dispatcher.Open(t.Context(), memory.Open(nil), dispatcher.Config{Hosts: dispatcher.StaticHosts{{Name: "a"}, {Name: "a"}}})
	var field *harp.FieldError
	if !errors.As(err, &field) || field.Field != "hosts[1].name" {
		t.Errorf("a list that cannot be gives %v", err)
	}
}

// An agent that connects to the dispatcher and is dialled by it, too, has one session,
// which neither of the two ways ends again and again.
func TestAnAgentThatIsDialledAndDialsKeepsItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nets := newNetwork(t, inMemory)
		l, _ := nets.listen("web01", transport.RoleAgent)
		cfg := dispatcher.Config{Hosts: dispatcher.StaticHosts{{Name: "web01", Address: l.Addr().String()}}}
		_, cfg.TLS, cfg.Dial = nets.dial("", "dispatcher", transport.RoleDispatcher)
		sys := newSystemOn(t, inMemory, nets, nil, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		var serving sync.WaitGroup
		slow := func(context.Context) (map[string]any, error) { // so that it is being greeted for longer than a pause
			time.Sleep(4 * time.Second)
			return nil, nil
		}
		sys.agentWith("web01", agent.Config{Facts: slow}, func(a *agent.Agent) {
			greeter(a)
			serving.Go(func() {
				if err := a.Serve(ctx, l); err != nil {
					t.Errorf("serve: %v", err)
				}
			})
		})
		online := harp.EventFilter{After: harp.EventsFromStart, Types: []string{string(harp.EventHostOnline)}}
		time.Sleep(time.Minute)
		soon := must[harp.EventPage](t)(sys.caller.EventsPage(t.Context(), online, false))
		time.Sleep(time.Hour)
		later := must[harp.EventPage](t)(sys.caller.EventsPage(t.Context(), online, false))
		if len(soon.Events) == 0 || len(later.Events) > len(soon.Events) {
			t.Errorf("in a minute the host came online %d times, in an hour %d times", len(soon.Events), len(later.Events))
		}
		sys.cutHost()
		time.Sleep(time.Minute)
		if h := must[harp.HostStatus](t)(sys.caller.Hosts().Get(t.Context(), "web01")); !h.Online {
			t.Error("it is away")
		}
		cancel()
		serving.Wait()
	})
}
