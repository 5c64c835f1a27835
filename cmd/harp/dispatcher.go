package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/cmd/harp/internal/config"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/manifest"
	"github.com/harpcaller/harp/internal/tune"
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
  hosts:                       # besides those that dial in
    - {name: web01, address: 10.0.0.1:7442, labels: {role: web}}
  # or: hosts_script: [./hosts]   prints one JSON object per line

harp help configuration explains every field. On SIGHUP it reads its file, certificate
and hosts registry again; if something is invalid, nothing changes and the log says why.`,
		Args: cobra.NoArgs,
		RunE: c.does(func(ctx context.Context, _ []string) error {
			cfg, err := config.ReadDispatcher(f.file)
			if err != nil {
				return c.unreadableConfig(err)
			}
			switch {
			case f.print:
				return c.printConfig(cfg)
			case f.check:
				if err := checkDocuments(cfg); err != nil {
					return err
				}
				return c.checked(f.file)
			}
			defer tune.Dispatcher.Start()()
			defer tune.RaiseProcs()()
			return c.runDispatcher(ctx, cfg, f.file)
		}),
	}
	f.bind(cmd, "/etc/harp/dispatcher.yaml")
	return cmd
}

// dispatcherRun is a dispatcher that runs, with what can be changed of it.
type dispatcherRun struct {
	file  string
	cfg   *config.Dispatcher // the one it was started with
	log   *slog.Logger
	level *slog.LevelVar
	cert  certificate
}

// checkDocuments reports what is wrong with the folder of the documents.
func checkDocuments(cfg *config.Dispatcher) error {
	if cfg.Documents == "" {
		return nil
	}
	_, err := manifest.Read(cfg.Documents)
	return unreadable("documents", err)
}

// replaceDocuments makes schedules, groups and windows what the documents of the configuration's folder say.
func (r *dispatcherRun) replaceDocuments(ctx context.Context, d *dispatcher.Dispatcher) {
	dir := r.cfg.Documents
	managedBy, err := folderName(dir)
	var done harp.Applied
	if err == nil {
		done, err = d.ReplaceDocuments(ctx, managedBy, func() ([]harp.Document, func(error) error, error) {
			set, err := manifest.Read(dir)
			if err != nil {
				return nil, nil, err
			}
			return set.Documents, set.Wrap, nil
		})
	}
	if err == nil {
		r.log.Info("documents are applied", "dir", dir, "changes", done.Count)
		return
	}
	for _, one := range each(err) {
		r.log.Error("documents are refused; keeping the previous ones, and trying again", "dir", dir, "error", one.Error())
	}
}

// runDispatcher serves until it is interrupted.
func (c *cli) runDispatcher(ctx context.Context, cfg *config.Dispatcher, file string) (err error) {
	r := dispatcherRun{file: file, cfg: cfg, level: levelOf(cfg.Log.Level)}
	r.log = newLog(c.stderr, cfg.Log.Format, r.level)
	l, err := listenPort(cfg.Listen)
	if err != nil {
		return err
	}
	options := cfg.Store()
	options.Logger = r.log
	st, err := badger.Open(cfg.Data, &options)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	tc := r.cert.live(cfg.TLSConfig())
	lib := cfg.Config()
	lib.Logger, lib.TLS = r.log, tc
	d, err := dispatcher.Open(ctx, st, lib)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	reloading, cancel := context.WithCancel(ctx)
	wait, waitDocuments := onHangup(reloading, func() { r.reload(reloading, d) }), func() {}
	if dir := cfg.Documents; dir != "" {
		r.replaceDocuments(reloading, d)
		waitDocuments = onChange(reloading, dir, r.log, func() { r.replaceDocuments(reloading, d) })
	}
	r.log.Info("dispatcher is ready", "addr", l.Addr().String(), "data", cfg.Data)
	err = d.Serve(ctx, l, tc)
	cancel()
	wait()
	waitDocuments()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	r.log.Info("dispatcher stops")
	return errors.Join(err, d.Shutdown(stopping))
}

// reload reads the configuration again.
func (r *dispatcherRun) reload(ctx context.Context, d *dispatcher.Dispatcher) {
	next, err := config.ReadDispatcher(r.file)
	if err != nil {
		logBad(r.log, err)
		return
	}
	r.level.Set(next.Log.Level.Level)
	r.cert.replace(next.TLSConfig())
	waiting := r.cfg.Changed(next)
	if r.cfg.Documents != "" {
		r.replaceDocuments(ctx, d)
	}
	source := next.Config().Hosts
	switch {
	case r.cfg.Config().Hosts != nil:
		if n, err := d.ReplaceHosts(ctx, source); err != nil {
			r.log.Error("the hosts registry cannot be read; keeping the previous hosts", "error", err.Error())
		} else {
			r.log.Info("hosts registry reloaded", "hosts", n)
		}
	case source != nil:
		waiting = append(waiting, "hosts")
	}
	logRead(r.log, waiting)
}
