package main

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp/cmd/harp/internal/config"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store/badger"
)

// stopWithin is how long a daemon that is told to stop waits for what is under way.
const stopWithin = 10 * time.Second

func (c *cli) dispatcherCommand() *cobra.Command {
	var f daemonFlags
	cmd := &cobra.Command{
		Use:   "dispatcher",
		Short: "Run a dispatcher",
		Long: `Run a dispatcher: it accepts calls, queues them, sends them to agents and keeps what
they return. Agents and callers connect to one port, with certificates.

  listen: :7440                # agents and callers
  data: /var/lib/harp          # the store
  tls: {cert: dispatcher.crt, key: dispatcher.key, ca: ca.crt}
  hosts:                       # beside those that dial in
    - {name: web01, address: 10.0.0.1:7442, labels: {role: web}}
  # or: hosts_script: [./hosts]   prints one JSON object a line
  # hosts_refresh: 15m
  # heartbeat: 10s
  # offline_wait: 30s
  # lost_after: 24h              # of silence, when what a host was doing is given up; at most 6d
  # retain: 30d                  # how long jobs are kept after their end; none: for ever
  # retain_bytes: 100GiB         # and how much of them; those that ended first go
  # space: {low: 5GiB, critical: 1GiB}   # free on the disk: no new calls; cancels only
  # limits: {timeout: 10m, max_exec_time: 24h, max_timeout: none, max_max_exec_time: none,
  #          attempts: 1024, handshakes: 1000}
  # log: {level: info, format: text}

Relative paths are relative to the file.`,
		Args: cobra.NoArgs,
		RunE: c.does(func(ctx context.Context, _ []string) error {
			cfg, err := config.ReadDispatcher(f.file)
			if err != nil {
				return unreadable(err)
			}
			if f.check {
				return c.checked(f.file)
			}
			return c.runDispatcher(ctx, cfg)
		}),
	}
	f.bind(cmd, "/etc/harp/dispatcher.yaml")
	return cmd
}

// runDispatcher serves until it is interrupted.
func (c *cli) runDispatcher(ctx context.Context, cfg *config.Dispatcher) (err error) {
	log := newLog(c.stderr, cfg.Log)
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return err
	}
	options := cfg.Store()
	options.Logger = log
	st, err := badger.Open(cfg.Data, &options)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	lib := cfg.Config()
	lib.Logger = log
	d, err := dispatcher.Open(ctx, st, lib)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	log.Info("dispatcher is ready", "addr", l.Addr().String(), "data", cfg.Data)
	err = d.Serve(ctx, l, cfg.TLSConfig())
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	log.Info("dispatcher stops")
	return errors.Join(err, d.Shutdown(stopping))
}
