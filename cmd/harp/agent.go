package main

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/cmd/harp/internal/config"
	"github.com/harpcaller/harp/cmd/harp/internal/demo"
)

func (c *cli) agentCommand() *cobra.Command {
	var f daemonFlags
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run an agent: this machine can be called",
		Long: `Run an agent: it makes this machine a host whose procedures can be called. It dials
its dispatchers, or waits to be dialled, with the certificate that names the host.

  dispatchers: [harp.example:7440]   # to dial, again and again; or
  # listen: :7442                    # to be dialled, also by direct callers
  tls: {cert: web01.crt, key: web01.key, ca: ca.crt}
  labels: {role: web}
  demo: true                         # offer the demonstration procedures
  # name: web01                      # must be the certificate's
  dir: /var/lib/harp-agent           # its journal: what it ran, until the dispatcher has it
  # max_attempts: 1024               # that run or are being told
  # max_journal: 1GiB                # of all attempts; on disk it may be twice as much
  # max_job_spool: 64MiB             # of one attempt's records and result
  # grace: 5s                        # for the last results, when it stops
  # log: {level: info, format: text}

Relative paths are relative to the file. Without dir the journal is in memory: what
an agent that is restarted was doing is lost. Without demo the agent offers nothing by
itself: an agent with procedures of your own is a Go program of a few lines, see
examples/agent. The demonstration procedures disk.usage and log.follow read
whatever the agent's user may read.`,
		Args: cobra.NoArgs,
		RunE: c.does(func(ctx context.Context, _ []string) error {
			cfg, err := config.ReadAgent(f.file)
			if err != nil {
				return unreadable(err)
			}
			if f.check {
				return c.checked(f.file)
			}
			return c.runAgent(ctx, cfg)
		}),
	}
	f.bind(cmd, "/etc/harp/agent.yaml")
	return cmd
}

// runAgent serves calls until it is interrupted.
func (c *cli) runAgent(ctx context.Context, cfg *config.Agent) error {
	log := newLog(c.stderr, cfg.Log)
	lib := cfg.Config()
	lib.Logger = log
	a := agent.New(lib)
	if cfg.Demo {
		demo.Register(a)
	} else {
		log.Warn("this agent offers no procedures; set demo: true, or build one with your own (examples/agent)")
	}
	if cfg.Dir == "" {
		log.Warn("there is no dir: what this agent runs is lost when it is restarted")
	}
	var l net.Listener
	if cfg.Listen != "" {
		var err error
		if l, err = net.Listen("tcp", cfg.Listen); err != nil {
			return err
		}
		log.Info("agent listens", "host", cfg.Name, "addr", l.Addr().String())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	errs := make([]error, len(cfg.Dispatchers)+1)
	start := func(i int, run func() error) {
		running.Go(func() {
			if errs[i] = run(); errs[i] != nil {
				cancel()
			}
		})
	}
	for i, addr := range cfg.Dispatchers {
		start(i, func() error { return a.Connect(ctx, addr) })
	}
	if l != nil {
		start(len(cfg.Dispatchers), func() error { return a.Serve(ctx, l) })
	}
	running.Wait()
	return errors.Join(errs...)
}
