package harp

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/client"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/tune"
	"github.com/harpcaller/harp/store/badger"
	"github.com/harpcaller/harp/transport"
)

// server is a dispatcher that listens.
type server struct {
	*dispatcher.Dispatcher
	addr   string
	opened time.Duration // how long it took to open
	served chan error
	cancel context.CancelFunc
}

// serve opens a dispatcher on a store and lets it listen.
func serve(ctx context.Context, l *lab.Lab, dir, addr string) (*server, error) {
	begin := time.Now()
	st, err := badger.Open(dir, &badger.Options{Logger: quiet()})
	if err != nil {
		return nil, err
	}
	d, err := dispatcher.Open(ctx, st, dispatcher.Config{Logger: quiet()})
	if err != nil {
		return nil, err
	}
	s := &server{Dispatcher: d, opened: time.Since(begin), served: make(chan error, 1)}
	listener, err := listen(l, addr)
	if err != nil {
		return nil, errors.Join(err, d.Shutdown(ctx))
	}
	tc, err := l.TLS(transport.RoleDispatcher, "dispatcher")
	if err != nil {
		return nil, errors.Join(err, listener.Close(), d.Shutdown(ctx))
	}
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.addr = listener.Addr().String()
	go func() { s.served <- s.Serve(ctx, listener, tc) }()
	return s, nil
}

func listen(_ *lab.Lab, addr string) (net.Listener, error) {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	return net.Listen("tcp", addr)
}

// stopWithin is how long a dispatcher may take to stop.
const stopWithin = 20 * time.Second

func (s *server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	err := s.Shutdown(ctx)
	s.cancel()
	return errors.Join(err, <-s.served)
}

// DispatcherRole is the process of a dispatcher.
const DispatcherRole = "harp-dispatcher"

type dispatcherArg struct {
	Dir  string `json:"dir"`
	Addr string `json:"addr,omitempty"`
}

type dispatcherSaid struct {
	Addr   string        `json:"addr"`
	Opened time.Duration `json:"opened"`
}

// RunDispatcher is the Role of that name.
func RunDispatcher(ctx context.Context, l *lab.Lab, arg json.RawMessage, ready func(any) error) error {
	var a dispatcherArg
	if err := json.Unmarshal(arg, &a); err != nil {
		return err
	}
	defer lab.AsDispatcher.Set()()
	defer tune.RaiseProcs()() // as the program harp does
	s, err := serve(ctx, l, a.Dir, a.Addr)
	if err != nil {
		return err
	}
	if err := ready(dispatcherSaid{s.addr, s.opened}); err != nil {
		return errors.Join(err, s.Close())
	}
	<-ctx.Done()
	return s.Close()
}

// dial connects a caller.
func dial(ctx context.Context, l *lab.Lab, addr string) (*harp.Caller, error) {
	tc, err := l.TLS(transport.RoleCaller, "bench")
	if err != nil {
		return nil, err
	}
	return client.Dial(ctx, addr, client.Config{TLS: tc, Logger: quiet(), RetryFor: time.Minute})
}

// onlineWithin bounds the wait for one host.
const onlineWithin = 30 * time.Second

// waitOnline waits until the dispatcher has a host.
func waitOnline(ctx context.Context, c *harp.Caller, host string) error {
	ctx, cancel := context.WithTimeout(ctx, onlineWithin)
	defer cancel()
	for {
		h, err := c.Hosts().Get(ctx, host)
		if err == nil && h.Online {
			return nil
		}
		if err != nil && !errors.Is(err, harp.ErrNotFound) {
			return err
		}
		if err := lab.Pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}
