// Package dev is a whole system for development in one process: a dispatcher with
// its data on disk and demonstration hosts, over TLS on loopback.
package dev

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/calendar"
	"github.com/harpcaller/harp/cmd/harp/internal/contexts"
	"github.com/harpcaller/harp/cmd/harp/internal/demo"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/notify"
	"github.com/harpcaller/harp/store/badger"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/devca"
)

// fleet is in the certificates.
const fleet = "dev"

const (
	maxHosts  = 100
	readyIn   = 30 * time.Second // for the hosts to come online
	partIn    = 3 * time.Second  // for the dispatcher to note that they have gone
	stopIn    = 10 * time.Second // for it to stop then
	lookEvery = 10 * time.Millisecond
)

// Config is what a System is made of.
type Config struct {
	Hosts  int    // how many demonstration hosts
	Dir    string // where certificates and data are kept
	Listen string // host:port
	Logger *slog.Logger
}

// System is a dispatcher and its hosts.
type System struct {
	cfg        Config
	lock       *lock
	ca         *devca.CA
	dispatcher *dispatcher.Dispatcher
	addr       string

	stopAgents context.CancelFunc
	agents     sync.WaitGroup
	serving    sync.WaitGroup

	mu     sync.Mutex // guards failed
	failed error
	over   chan struct{} // closed when something failed
	fail   sync.Once
}

// Start starts a system and returns when its hosts are online. ctx bounds
// starting. Errors: *harp.FieldError for what cannot be; that the folder is in use.
func Start(ctx context.Context, cfg Config) (*System, error) {
	if cfg.Hosts < 1 || cfg.Hosts > maxHosts {
		return nil, &harp.FieldError{Field: "hosts", Message: fmt.Sprintf("must be from 1 to %d", maxHosts)}
	}
	if err := checkLoopback(cfg.Listen); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	cfg.Dir = dir
	s := &System{cfg: cfg, over: make(chan struct{}), stopAgents: func() {}}
	if err := s.startAll(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// checkLoopback keeps what is for development from the network: the demonstration
// procedures read what the user may read.
func checkLoopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return &harp.FieldError{Field: "listen", Message: err.Error()}
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return &harp.FieldError{Field: "listen", Message: addr + " is not on loopback; harp dispatcher listens elsewhere"}
	}
	return nil
}

func (s *System) startAll(ctx context.Context) (err error) {
	if err := os.MkdirAll(s.cfg.Dir, 0o700); err != nil {
		return err
	}
	if s.lock, err = takeLock(filepath.Join(s.cfg.Dir, "lock")); err != nil {
		return err
	}
	if err := s.makeCertificates(); err != nil {
		return err
	}
	l, err := net.Listen("tcp", s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("%w; --listen 127.0.0.1:0 picks a free port", err)
	}
	s.addr = l.Addr().String()
	if err := s.serveDispatcher(ctx, l); err != nil {
		return err
	}
	if err := s.startAgents(ctx); err != nil {
		return err
	}
	return s.waitOnline(ctx)
}

// makeCertificates makes what is missing, and the caller's files.
func (s *System) makeCertificates() (err error) {
	dir := s.filePath("certs")
	if s.ca, err = devca.Open(dir, fleet); err != nil {
		return err
	}
	return s.ca.WriteFiles(dir, "caller", transport.Identity{Fleet: fleet, Role: transport.RoleCaller, Name: "dev"})
}

func (s *System) filePath(name string) string { return filepath.Join(s.cfg.Dir, name) }

// loopback is where webhooks and calendars may be, beside the public Internet: on this machine.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// serveDispatcher opens the dispatcher and serves it on l, which it owns.
func (s *System) serveDispatcher(ctx context.Context, l net.Listener) error {
	tc, err := s.ca.TLS(transport.Identity{Fleet: fleet, Role: transport.RoleDispatcher, Name: "dev"})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	webhooks, err := s.webhooks()
	if err != nil {
		return errors.Join(err, l.Close())
	}
	st, err := badger.Open(s.filePath("data"), &badger.Options{Logger: s.cfg.Logger})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	calendars, err := calendar.New(calendar.Config{Networks: loopback})
	if err != nil {
		return errors.Join(err, l.Close(), st.Close())
	}
	config := dispatcher.Config{Logger: s.cfg.Logger, Senders: []notify.Sender{webhooks}, Calendars: calendars}
	if s.dispatcher, err = dispatcher.Open(ctx, st, config); err != nil {
		return errors.Join(err, l.Close())
	}
	s.serving.Go(func() {
		if err := s.dispatcher.Serve(context.WithoutCancel(ctx), l, tc); err != nil {
			s.noteStopped(err)
		}
	})
	return nil
}

// Secret is the name of the secret that the first start makes, for webhooks.
const Secret = "dev"

// webhooks are what sends messages of notifications: to receivers on this machine, too. It makes a secret if there is none.
func (s *System) webhooks() (*notify.Webhooks, error) {
	folder := s.filePath("secrets")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	file := filepath.Join(folder, Secret)
	if _, err := os.Lstat(file); errors.Is(err, os.ErrNotExist) {
		key := make([]byte, 32)
		_, _ = rand.Read(key) // which never fails
		if err := os.WriteFile(file, []byte("whsec_"+base64.StdEncoding.EncodeToString(key)+"\n"), 0o600); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	return notify.NewWebhooks(notify.WebhookConfig{
		Secrets: folder, Networks: loopback,
	})
}

func (s *System) startAgents(ctx context.Context) error {
	ctx, s.stopAgents = context.WithCancel(context.WithoutCancel(ctx))
	for _, name := range s.Hosts() {
		tc, err := s.ca.TLS(transport.Identity{Fleet: fleet, Role: transport.RoleAgent, Name: name})
		if err != nil {
			return err
		}
		a := agent.New(agent.Config{
			Name: name, Dir: s.filePath(name), TLS: tc, Logger: s.cfg.Logger,
			Labels: map[string]string{"demo": "true"},
		})
		demo.Register(a)
		s.agents.Go(func() {
			if err := a.Connect(ctx, s.addr); err != nil {
				s.noteStopped(fmt.Errorf("agent %s: %w", name, err))
			}
		})
	}
	return nil
}

// waitOnline waits until the dispatcher has all hosts.
func (s *System) waitOnline(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyIn)
	defer cancel()
	caller := s.dispatcher.Caller()
	defer caller.Close()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for _, name := range s.Hosts() {
		for {
			h, err := caller.Hosts().Get(ctx, name)
			if err != nil && !errors.Is(err, harp.ErrNotFound) {
				return err
			}
			if h.Online {
				break
			}
			select {
			case <-look.C:
			case <-s.over:
				return s.firstFailure()
			case <-ctx.Done():
				return fmt.Errorf("host %s did not come online: %w", name, context.Cause(ctx))
			}
		}
	}
	return nil
}

// noteStopped notes that something ended that should not have.
func (s *System) noteStopped(err error) {
	s.fail.Do(func() {
		s.mu.Lock()
		s.failed = err
		s.mu.Unlock()
		close(s.over)
	})
}

func (s *System) firstFailure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// Wait waits until ctx ends or something of the system fails.
func (s *System) Wait(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-s.over:
	}
}

// Stop stops the agents, which let what runs go on for their grace, then the dispatcher, and
// returns what had failed. Nothing of the system runs any more when it returns nil.
func (s *System) Stop() error {
	parted := s.watchPartings()
	s.stopAgents()
	s.agents.Wait()
	noted, done := context.WithTimeout(context.Background(), partIn)
	parted(noted) // which is not noted on a full disk
	done()
	err := s.firstFailure()
	if s.dispatcher != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stopIn)
		defer cancel()
		err = errors.Join(err, s.dispatcher.Shutdown(ctx))
		s.serving.Wait()
	}
	return errors.Join(err, s.lock.unlock())
}

// watchPartings returns a function that waits until the dispatcher has noted that the
// hosts which are online now have gone: one that is stopped before expects them back, and
// holds their calls for so long.
func (s *System) watchPartings() (wait func(context.Context)) {
	if s.dispatcher == nil {
		return func(context.Context) {}
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopIn)
	defer cancel()
	caller := s.dispatcher.Caller()
	online := map[string]bool{}
	now, err := caller.EventsPage(ctx, harp.EventFilter{Types: []string{string(harp.EventHostAway)}}, false)
	for h, hostErr := range caller.Hosts().List(ctx, "") {
		if err = cmp.Or(err, hostErr); err == nil && h.Online {
			online[h.Name] = true
		}
	}
	return func(ctx context.Context) {
		defer caller.Close()
		after := harp.EventFilter{Types: []string{string(harp.EventHostAway)}, After: now.Cursor}
		for err == nil && len(online) > 0 {
			var page harp.EventPage
			page, err = caller.EventsPage(ctx, after, true) // which fails at worst when ctx ends
			for _, e := range page.Events {
				delete(online, e.Host)
			}
			after.After = page.Cursor
		}
	}
}

// Addr is where the dispatcher listens.
func (s *System) Addr() string { return s.addr }

// Dir is where certificates and data are kept.
func (s *System) Dir() string { return s.cfg.Dir }

// Hosts are the names of the demonstration hosts.
func (s *System) Hosts() []string {
	names := make([]string, s.cfg.Hosts)
	for i := range names {
		names[i] = fmt.Sprintf("demo%d", i+1)
	}
	return names
}

// Context is how a caller reaches the dispatcher.
func (s *System) Context() contexts.Context {
	return contexts.Context{
		Addr: s.addr, Fleet: fleet,
		Cert: s.filePath("certs/caller.crt"), Key: s.filePath("certs/caller.key"), CA: s.filePath("certs/ca.crt"),
	}
}
