// Command quickstart is harp in one file: a dispatcher inside this program, an agent
// that connects to it over TLS, a call whose records are followed while it runs, and
// the same job read again after the dispatcher was closed and reopened.
//
//	go run ./examples/quickstart
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"log"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store/badger"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/devca"
)

// Backup is a procedure. It is declared once, with the types of its arguments,
// records and result, and shared by those who call it and the agent that offers it.
var Backup = harp.NewStreamProc[BackupArgs, Progress, BackupResult]("backup", "Back up some files")

// BackupArgs are its arguments.
type BackupArgs struct {
	Files []string `json:"files" jsonschema:"what to back up"`
}

// Progress is one of its records.
type Progress struct {
	File string `json:"file"`
	Done int    `json:"done"`
}

// BackupResult is what it returns.
type BackupResult struct {
	Files int `json:"files"`
}

// backup runs on the host. What it emits can be followed from anywhere.
func backup(ctx context.Context, args BackupArgs, emit func(Progress) error) (BackupResult, error) {
	for i, file := range args.Files {
		select {
		case <-time.After(200 * time.Millisecond): // hard work
		case <-ctx.Done():
			return BackupResult{}, context.Cause(ctx)
		}
		if err := emit(Progress{File: file, Done: i + 1}); err != nil {
			return BackupResult{}, err
		}
	}
	return BackupResult{Files: len(args.Files)}, nil
}

func main() {
	dir := flag.String("dir", "", "where to keep the data (default: a temporary folder)")
	flag.Parse()
	if err := run(context.Background(), *dir, log.New(os.Stdout, "", 0).Printf); err != nil {
		log.Fatal(err)
	}
}

// quiet keeps log lines that are meant for operators off the screen.
var quiet = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))

// say prints a line.
type say func(format string, a ...any)

func run(ctx context.Context, dir string, say say) (err error) {
	if dir == "" {
		if dir, err = os.MkdirTemp("", "harp-quickstart-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	id, err := callAndFollow(ctx, dir, say)
	if err != nil {
		return err
	}
	return readAgain(ctx, dir, id, say)
}

// callAndFollow makes a call and returns the job's id.
func callAndFollow(ctx context.Context, dir string, say say) (id string, err error) {
	d, err := open(ctx, dir)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, d.Shutdown(ctx)) }()
	stop, err := startAgent(ctx, d, dir)
	if err != nil {
		return "", err
	}
	defer stop()

	// The call: it returns as soon as it is on disk, with an id to keep.
	files := []string{"/etc/hosts", "/etc/passwd", "/etc/fstab"}
	job, err := Backup.Call(ctx, d.Caller().Host("web01"), BackupArgs{files}, harp.MaxExecTime(time.Minute))
	if err != nil {
		return "", err
	}
	say("job %s", job.ID())

	// Its records as they come, from the first on.
	for p, err := range Backup.Follow(ctx, job, harp.Since(0)) {
		if err != nil {
			return "", err
		}
		say("  %d of %d: %s", p.Done, len(files), p.File)
	}

	// Its result.
	result, err := Backup.Get(ctx, job)
	if err != nil {
		return "", err
	}
	say("result: %d files", result.Files)
	return job.ID(), nil
}

// readAgain reopens the dispatcher and reads the job by its id, as any process
// could at any later time.
func readAgain(ctx context.Context, dir, id string, say say) (err error) {
	d, err := open(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Shutdown(ctx)) }()
	job := d.Caller().Job(id)
	status, err := job.Status(ctx)
	if err != nil {
		return err
	}
	result, err := Backup.Get(ctx, job)
	if err != nil {
		return err
	}
	say("the dispatcher was closed and opened again; read from disk:")
	say("job %s %s on %s: %d records, %d files", id, status.State, status.Host, status.Records, result.Files)
	return nil
}

// open opens a dispatcher with its data on disk. It knows one host, which will
// connect.
func open(ctx context.Context, dir string) (*dispatcher.Dispatcher, error) {
	st, err := badger.Open(filepath.Join(dir, "data"), nil)
	if err != nil {
		return nil, err
	}
	return dispatcher.Open(ctx, st, dispatcher.Config{
		Hosts:  dispatcher.StaticHosts{{Name: "web01"}},
		Logger: quiet,
	})
}

// startAgent lets agents connect and connects one, over TLS on loopback. An agent
// would run on another machine: see examples/agent.
func startAgent(ctx context.Context, d *dispatcher.Dispatcher, dir string) (stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	dispatcherTLS, err := certificate(dir, transport.RoleDispatcher, "main")
	if err != nil {
		return nil, err
	}
	agentTLS, err := certificate(dir, transport.RoleAgent, "web01")
	if err != nil {
		return nil, err
	}
	a := agent.New(agent.Config{Name: "web01", TLS: agentTLS, Logger: quiet})
	agent.HandleStream(a, Backup, backup)

	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { report(d.Serve(ctx, l, dispatcherTLS)) })
	running.Go(func() { report(a.Connect(ctx, l.Addr().String())) })
	return func() { cancel(); running.Wait() }, nil
}

func report(err error) {
	if err != nil {
		log.Print(err)
	}
}

// certificate makes a certificate of this example's own authority.
func certificate(dir string, role transport.Role, name string) (*tls.Config, error) {
	ca, err := devca.Open(filepath.Join(dir, "certs"), "quickstart")
	if err != nil {
		return nil, err
	}
	return ca.TLS(transport.Identity{Role: role, Name: name})
}
