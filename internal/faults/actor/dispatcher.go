//go:build linux

package actor

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/tune"
	"github.com/harpcaller/harp/notify"
	"github.com/harpcaller/harp/store/badger"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/devca"
)

// stopWithin is how long what is under way has when a process is told to stop.
const stopWithin = 20 * time.Second

func runDispatcher(ctx context.Context, cfg Config, ca *devca.CA, log *slog.Logger) error {
	defer tune.Dispatcher.Start()() // as the program harp does
	defer tune.RaiseProcs()()
	tc, err := ca.TLS(transport.Identity{Role: transport.RoleDispatcher, Name: "dispatcher"})
	if err != nil {
		return err
	}
	st, err := badger.Open(cfg.Dir, &badger.Options{
		Logger: log, MaxStored: cfg.MaxStored, LowSpace: cfg.LowSpace,
	})
	if err != nil {
		return err
	}
	senders, err := cfg.senders()
	if err != nil {
		return errors.Join(err, st.Close())
	}
	d, err := dispatcher.Open(ctx, st, dispatcher.Config{
		Logger: log, Heartbeat: cfg.Heartbeat, OfflineWait: cfg.OfflineWait, Now: clock(cfg.Clock), Senders: senders,
	})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return errors.Join(err, d.Shutdown(ctx))
	}
	say(Ready)
	err = d.Serve(ctx, l, tc)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	return errors.Join(err, d.Shutdown(stopping))
}

// clock is a wall clock that is wrong by as much as a file says at the moment; nil
// without a file.
func clock(file string) func() time.Time {
	if file == "" {
		return nil
	}
	return func() time.Time {
		now := time.Now().Round(0) // without the monotonic clock, which does not jump
		text, err := os.ReadFile(file)
		if err != nil {
			return now
		}
		wrong, err := time.ParseDuration(strings.TrimSpace(string(text)))
		if err != nil {
			return now
		}
		return now.Add(wrong)
	}
}

// senders are what sends messages to receivers on loopback.
func (cfg *Config) senders() ([]notify.Sender, error) {
	if cfg.Secrets == "" {
		return nil, nil
	}
	hooks := notify.WebhookConfig{Secrets: cfg.Secrets}
	if cfg.HookCA != "" {
		hooks.Networks, hooks.CAFiles = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, []string{cfg.HookCA}
	}
	s, err := notify.NewWebhooks(hooks)
	return []notify.Sender{s}, err
}
