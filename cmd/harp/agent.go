package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/cmd/harp/internal/config"
	"github.com/harpcaller/harp/cmd/harp/internal/demo"
	"github.com/harpcaller/harp/internal/tune"
)

func (c *cli) agentCommand() *cobra.Command {
	var f daemonFlags
	var drain bool
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run an agent, so that this machine can be called",
		Long: `Run an agent: it makes this machine a host whose procedures can be called. It dials
its dispatcher, or waits to be dialled, and its certificate names the host.

  dispatchers: [harp.example:7440]   # addresses of one dispatcher to dial, or
  # listen: :7442                    # where the dispatcher and direct callers dial it
  tls: {cert: web01.crt, key: web01.key, ca: ca.crt}
  labels: {role: web}
  # demo: true                       # offer the demonstration procedures
  # name: web01                      # must be the certificate's
  dir: /var/lib/harp-agent           # the journal: what it ran, until the dispatcher has it
  procedures: /etc/harp/procedures   # files that declare commands as procedures
  # exec: {}                         # offer exec: any command, to every caller

harp help configuration explains every field. Without dir the journal is in memory,
and a restart loses what the agent was doing. Procedures are declared in files or written
in Go; examples/agent shows an agent with its own, a program of a few lines.

On SIGHUP it reads its file, certificate and procedures again; it also notices changed
procedures by itself. If something is invalid, nothing changes and the log says why.

On SIGUSR1, which harp agent --drain sends, it takes no more calls, which wait at the
dispatcher, and exits when nothing runs any more, commands included.`,
		Args: cobra.NoArgs,
		RunE: c.does(func(ctx context.Context, _ []string) error {
			cfg, err := config.ReadAgent(f.file)
			if err != nil {
				return c.unreadableConfig(err)
			}
			switch {
			case f.print:
				return c.printConfig(cfg)
			case drain:
				return c.drainAgent(ctx, cfg.Dir)
			case f.check:
				if err := checkProcedures(cfg); err != nil {
					return err
				}
				return c.checked(f.file)
			}
			defer tune.Agent.Start()()
			return c.runAgent(ctx, cfg, f.file)
		}),
	}
	f.bind(cmd, "/etc/harp/agent.yaml")
	cmd.Flags().BoolVar(&drain, "drain", false, "tell the running agent with the dir of this file to take no more calls and to exit when idle; wait until it has")
	cmd.MarkFlagsMutuallyExclusive("drain", "check-config", "print-config")
	cmd.AddCommand(c.journalCommand())
	return cmd
}

// checkProcedures reports what is wrong with the folder of the procedures.
func checkProcedures(cfg *config.Agent) error {
	if cfg.Procedures == "" {
		return nil
	}
	return unreadable("procedures", agent.CheckDir(cfg.Procedures))
}

// agentRun is an agent that runs, with what can be changed of it.
type agentRun struct {
	file  string
	cfg   *config.Agent // the one it was started with
	agent *agent.Agent
	log   *slog.Logger
	level *slog.LevelVar
	cert  certificate

	loading sync.Mutex // one at a time reads files; it guards what follows
	dir     string     // of the procedures
	said    []string   // what is wrong with the files, as the log says
}

// logBad says what is wrong with files that were read again, unless the log says so already: who
// asks and who watches the files both meet it. It reports whether anything is new.
func (r *agentRun) logBad(message string, err error) bool {
	var said []string
	isNews := false
	for _, one := range each(err) {
		if said = append(said, one.Error()); !slices.Contains(r.said, one.Error()) {
			r.log.Error(message, "error", one.Error())
			isNews = true
		}
	}
	r.said = said
	return isNews
}

// runAgent serves calls until it is interrupted.
func (c *cli) runAgent(ctx context.Context, cfg *config.Agent, file string) error {
	r := agentRun{file: file, cfg: cfg, level: levelOf(cfg.Log.Level), dir: cfg.Procedures}
	r.log = newLog(c.stderr, cfg.Log.Format, r.level)
	lib := cfg.Config()
	lib.Logger, lib.TLS = r.log, r.cert.live(cfg.TLSConfig())
	r.agent = agent.New(lib)
	if err := r.registerProcedures(); err != nil {
		return err
	}
	var l net.Listener
	if cfg.Listen != "" {
		var err error
		if l, err = listenPort(cfg.Listen); err != nil {
			return err
		}
		r.log.Info("agent listens", "host", cfg.Name, "addr", l.Addr().String())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer onHangup(ctx, r.reload)()
	defer onSignal(ctx, drainSignal, func() { r.drainAndEnd(ctx, cancel) })()
	if r.dir != "" {
		defer onChange(ctx, r.dir, r.log, r.changed)()
	}
	defer cancel()
	return r.serveAgent(ctx, cancel, l)
}

// registerProcedures makes the procedures of the configuration callable.
func (r *agentRun) registerProcedures() error {
	if r.cfg.Demo {
		demo.Register(r.agent)
	}
	if r.dir != "" {
		if err := r.agent.Load(r.dir); err != nil {
			return unreadable("procedures", err)
		}
	}
	if len(r.agent.Procedures()) == 0 {
		r.log.Warn("this agent offers no procedures; set procedures, or build one with your own (examples/agent)")
	}
	if r.cfg.Dir == "" {
		r.log.Warn("dir is not set: a restart of this agent loses what it runs")
	}
	return nil
}

// serveAgent connects to the dispatcher and listens until ctx ends or one of it fails.
func (r *agentRun) serveAgent(ctx context.Context, cancel func(), l net.Listener) error {
	var running sync.WaitGroup
	var errs [2]error
	start := func(err *error, run func() error) {
		running.Go(func() {
			if *err = run(); *err != nil {
				cancel()
			}
		})
	}
	if len(r.cfg.Dispatchers) > 0 {
		start(&errs[0], func() error { return r.agent.Connect(ctx, r.cfg.Dispatchers...) })
	}
	if l != nil {
		start(&errs[1], func() error { return r.agent.Serve(ctx, l) })
	}
	running.Wait()
	err := errors.Join(errs[:]...)
	if errors.Is(err, journal.ErrCorrupt) {
		err = fmt.Errorf("%w; harp agent journal repair keeps what can be read", err)
	}
	return err
}

// drainAndEnd takes no more calls, and ends the agent when it is idle.
func (r *agentRun) drainAndEnd(ctx context.Context, end func()) {
	r.log.Info("draining: the agent takes no more calls and exits when idle")
	if r.agent.Drain(ctx) != nil {
		return // it ends for another reason
	}
	r.log.Info("the agent is idle and exits")
	end()
}

// reload reads the configuration again, and the procedures.
func (r *agentRun) reload() {
	r.loading.Lock()
	defer r.loading.Unlock()
	next, err := config.ReadAgent(r.file)
	if err == nil && next.Name != r.cfg.Name {
		err = invalid("name", "the certificate is for %s, but this agent is %s", next.Name, r.cfg.Name)
	}
	if err == nil {
		err = checkProcedures(next)
	}
	if err == nil && r.dir != "" {
		err = r.agent.Load(r.dir)
	}
	if err != nil {
		if !r.logBad(badConfiguration, err) {
			r.log.Error("the configuration is still invalid, as said before; keeping the previous one")
		}
		return
	}
	r.said = nil
	r.level.Set(next.Log.Level.Level)
	r.cert.replace(next.TLSConfig())
	waiting := r.cfg.Changed(next)
	if next.Procedures != r.dir {
		waiting = append(waiting, "procedures") // the folder: what is in it was read again
	}
	logRead(r.log, waiting)
}

// changed reads the procedures again.
func (r *agentRun) changed() {
	r.loading.Lock()
	defer r.loading.Unlock()
	if err := r.agent.Load(r.dir); err != nil {
		r.logBad("invalid procedures; keeping the previous ones", err)
		return
	}
	r.said = nil
	r.log.Info("procedures reloaded", "offered", len(r.agent.Procedures()))
}
