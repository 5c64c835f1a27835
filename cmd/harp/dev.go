package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp/cmd/harp/internal/config"
	"github.com/harpcaller/harp/cmd/harp/internal/contexts"
	"github.com/harpcaller/harp/cmd/harp/internal/dev"
	"github.com/harpcaller/harp/internal/wire"
)

// devContext is the name of the context that harp dev writes.
const devContext = "dev"

func (c *cli) devCommand() *cobra.Command {
	var (
		cfg   dev.Config
		level = config.Level{Level: slog.LevelWarn}
	)
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a dispatcher and demonstration hosts on this machine",
		Long: `Run a dispatcher and demonstration hosts, demo1 and so on, in one process, over TLS on
loopback. The first start makes certificates; they and the data stay in the folder
between starts. It writes the context "dev" and makes it the current one, so that harp call
works without flags in another terminal.

Webhooks of notifications and calendars of windows may be on this machine, also over http.
Webhooks are signed with the secret "dev", which the first start creates in the folder's
secrets. No mail is sent.`,
		Example: "  harp dev --hosts 2",
		Args:    cobra.NoArgs,
		RunE: c.does(func(ctx context.Context, _ []string) error {
			cfg.Logger = newLog(c.stderr, "", level.Level)
			return c.runDev(ctx, cfg)
		}),
	}
	flags := cmd.Flags()
	flags.IntVar(&cfg.Hosts, "hosts", 1, "`count` of demonstration hosts to run")
	flags.StringVar(&cfg.Dir, "dir", ".harp-dev", "the `folder` for data and certificates")
	flags.StringVar(&cfg.Listen, "listen", "127.0.0.1:"+wire.DispatcherPort, "`host:port` to listen on; port 0 picks one")
	flags.TextVar(&level, "log-level", level, "debug, info, warn or error")
	return cmd
}

// runDev runs a system until it is interrupted.
func (c *cli) runDev(ctx context.Context, cfg dev.Config) error {
	dir, err := contexts.Find(c.env)
	if err != nil {
		return err
	}
	s, err := dev.Start(ctx, cfg)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if err := c.announce(dir, s); err != nil {
		return errors.Join(err, s.Stop())
	}
	s.Wait(ctx)
	c.notice("stopping; what runs has 5s to end by itself, and Ctrl-C again ends it now")
	return s.Stop()
}

// announce writes the context and says what to type next.
func (c *cli) announce(dir contexts.Dir, s *dev.System) error {
	if err := dir.Put(devContext, s.Context()); err != nil {
		return err
	}
	before, err := dir.Use(devContext)
	if err != nil {
		return err
	}
	if before != "" && before != devContext {
		c.notice("the current context is now %s; it was %s", devContext, before)
	}
	hosts := s.Hosts()
	if c.format == formatJSON {
		return c.printObject(object{
			{"addr", s.Addr()}, {"dir", s.Dir()}, {"hosts", hosts}, {"context", devContext},
		})
	}
	c.say("dispatcher  %s (TLS)", s.Addr())
	c.say("hosts       %s", strings.Join(hosts, ", "))
	c.say("data        %s", s.Dir())
	c.say("")
	c.say("ready; in another terminal:")
	for _, line := range []string{
		"harp call %s hello name=Ada",
		"harp call %s count to=20 every=500ms",
		"harp call %s fail type=oops message=no",
		"harp proc ls",
		"harp job ls",
		"harp notify add fails --on job.failed --webhook http://127.0.0.1:8000/ --secret " + dev.Secret,
	} {
		if strings.Contains(line, "%s") {
			line = fmt.Sprintf(line, hosts[0])
		}
		c.say("  %s", line)
	}
	c.say("")
	c.say("Ctrl-C stops it")
	return c.stdout.err
}
