//go:build linux

package actor

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/internal/faults/witness"
	"github.com/harpcaller/harp/internal/tune"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/devca"
)

func runAgent(ctx context.Context, cfg Config, ca *devca.CA, log *slog.Logger) error {
	defer tune.Agent.Start()() // as the program harp does
	if cfg.Boot != "" {
		if err := os.Setenv(BootEnv, cfg.Boot); err != nil {
			return err
		}
	}
	w, err := witness.Open(cfg.Witness, harp.NewID())
	if err != nil {
		return err
	}
	defer w.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	others := make(chan error, len(cfg.Others))
	for name, dir := range cfg.Others {
		go func() {
			defer stop() // one that fails ends all
			a, err := newAgent(cfg, name, dir, ca, w, log)
			if err == nil {
				err = a.Connect(ctx, cfg.Connect)
			}
			others <- err
		}()
	}
	a, err := newAgent(cfg, cfg.Name, cfg.Dir, ca, w, log)
	if err == nil {
		err = serveAgent(ctx, cfg, a)
	}
	stop()
	for range cfg.Others {
		err = errors.Join(err, <-others)
	}
	return err
}

// newAgent makes the agent of a host.
func newAgent(cfg Config, name, dir string, ca *devca.CA, w *witness.File, log *slog.Logger) (*agent.Agent, error) {
	tc, err := ca.TLS(transport.Identity{Role: transport.RoleAgent, Name: name})
	if err != nil {
		return nil, err
	}
	a := agent.New(agent.Config{
		Name: name, Dir: dir, TLS: tc, Logger: log,
		Limits: agent.Limits{MaxAttempts: cfg.MaxAttempts},
		Facts:  func(context.Context) (map[string]any, error) { return nil, nil },
	})
	agent.HandleStream(a, harp.NewStreamProc[Args, Record, Result](Work), worker(w))
	agent.HandleStream(a, harp.NewStreamProc[Args, Record, Result](Again), worker(w), agent.Idempotent())
	if cfg.Procedures != "" {
		if err := a.Load(cfg.Procedures); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// serveAgent lets an agent be dialled, and dial.
func serveAgent(ctx context.Context, cfg Config, a *agent.Agent) error {
	if cfg.Listen == "" {
		say(Ready)
		return a.Connect(ctx, cfg.Connect)
	}
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	go func() {
		defer stop()
		served <- a.Serve(ctx, l)
	}()
	say(Ready)
	if cfg.Connect != "" {
		err = a.Connect(ctx, cfg.Connect)
	}
	return errors.Join(err, <-served)
}

// worker is the function of both procedures.
func worker(w *witness.File) func(context.Context, Args, func(Record) error) (Result, error) {
	return func(ctx context.Context, in Args, emit func(Record) error) (Result, error) {
		call, _ := agent.FromContext(ctx)
		if err := w.Write(witness.Begin, call.JobID, call.Attempt); err != nil {
			return Result{}, err
		}
		if in.Suicide {
			return Result{}, syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		if call.Attempt == 1 && slices.Contains(in.Reboot, call.Host) {
			return Result{}, errors.Join(w.Write(witness.Quit, call.JobID, call.Attempt), syscall.Kill(os.Getpid(), syscall.SIGKILL))
		}
		err := emitAndSleep(ctx, in, func(n int) error {
			return emit(Record{Job: call.JobID, Attempt: call.Attempt, N: n, Fill: strings.Repeat("x", in.Size)})
		})
		if err == nil && slices.Contains(in.Fail, call.Host) {
			err = errors.New("it was asked for")
		}
		what := witness.End
		if err != nil {
			what = witness.Quit
		}
		err = errors.Join(err, w.Write(what, call.JobID, call.Attempt))
		return Result{Job: call.JobID, Attempt: call.Attempt, Fill: strings.Repeat("x", in.Returns)}, err
	}
}

// emitAndSleep emits and then sleeps.
func emitAndSleep(ctx context.Context, in Args, emit func(n int) error) error {
	for n := range in.Records {
		time.Sleep(in.Pace)
		if err := emit(n); err != nil {
			return err
		}
	}
	if in.Deaf {
		ctx = context.WithoutCancel(ctx)
	}
	timer := time.NewTimer(in.Sleep)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
