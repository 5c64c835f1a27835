//go:build linux

// Package actor is the processes of the fault tests: a dispatcher on a store in
// Badger, or an agent with a few Go functions that write to the witness.
package actor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"

	"github.com/harpcaller/harp/transport/devca"
)

// Fleet is the name of the tests' fleet.
const Fleet = "faults"

// Config says what a process is to be. It is given to it as JSON.
type Config struct {
	Role string // dispatcher or agent
	CA   string // folder of the authority
	Dir  string // the store, or the agent's own

	Listen string // address; "", an agent's: nobody can dial it

	// A dispatcher's.
	Heartbeat   time.Duration // 0: the default
	OfflineWait time.Duration // 0: the default
	MaxStored   int64         // bytes of records a job; 0: the default
	LowSpace    uint64        // 0: the default
	Clock       string        // file with what is added to the clock, as a duration; "": nothing
	Secrets     string        // folder with those of webhooks; "": it sends none
	HookCA      string        // file with the certificate of receivers, on this machine; "": there are none

	// An agent's.
	Name        string
	Others      map[string]string // further hosts of the process, each with its folder
	Connect     string            // the dispatcher's address; "", with Listen: none
	Boot        string            // file with the id of its machine's boot, for a program that reads it there; "": the kernel's
	Witness     string            // file
	MaxAttempts int               // 0: the default
	Procedures  string            // folder with commands; "": none
}

// BootEnv names the file with the id of the boot, where the program is built to ask it.
const BootEnv = "HARP_FAULTS_BOOT"

// The procedures of an agent.
const (
	Work  = "work"  // runs once
	Again = "again" // declared idempotent
)

// Args are those of both.
type Args struct {
	Records int           `json:"records,omitempty"`
	Size    int           `json:"size,omitempty"`    // bytes of a record, about
	Pace    time.Duration `json:"pace,omitempty"`    // before each record
	Sleep   time.Duration `json:"sleep,omitempty"`   // after the records
	Deaf    bool          `json:"deaf,omitempty"`    // does not listen to its context
	Suicide bool          `json:"suicide,omitempty"` // its process dies in it
	Fail    []string      `json:"fail,omitempty"`    // hosts on which it fails
	Reboot  []string      `json:"reboot,omitempty"`  // hosts on which its process dies in the first attempt
	Fill    string        `json:"fill,omitempty"`    // makes them long
	Returns int           `json:"returns,omitempty"` // bytes of the result, about
}

// Record is one that a procedure emits.
type Record struct {
	Job     string `json:"job"`
	Attempt int    `json:"attempt"`
	N       int    `json:"n"`
	Fill    string `json:"fill,omitempty"`
}

// Result is what a procedure returns.
type Result struct {
	Job     string `json:"job"`
	Attempt int    `json:"attempt"`
	Fill    string `json:"fill,omitempty"`
}

// The words with which a process says on its standard output how it is.
const (
	Ready = "ready"
	Left  = "left" // and numbers: goroutines and files that it leaves behind
	Held  = "held" // and numbers, when it was asked: goroutines, files and bytes that it holds
)

// What a process understands on its standard input, which is its parent's alone.
const (
	Ask     = "what do you hold?" // is answered with Held
	Profile = "profile "          // and a path: it writes there how its memory is used, as it is
)

// Main is the process: it works until it is told to stop by SIGTERM, or dies at
// once when its standard input ends, which is when its parent dies.
func Main(args []string) error {
	var cfg Config
	if len(args) != 1 {
		return fmt.Errorf("one argument is wanted, the configuration as JSON")
	}
	if err := json.Unmarshal([]byte(args[0]), &cfg); err != nil {
		return err
	}
	before := leftovers()
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			path, profiled := strings.CutPrefix(in.Text(), Profile)
			switch {
			case in.Text() == Ask:
				sayHeld()
			case profiled:
				if err := writeProfile(path); err != nil {
					fmt.Fprintln(os.Stderr, "profile:", err)
				}
			}
		}
		os.Exit(3)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ca, err := devca.Open(cfg.CA, Fleet)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	switch cfg.Role {
	case "dispatcher":
		err = runDispatcher(ctx, cfg, ca, log)
	case "agent":
		err = runAgent(ctx, cfg, ca, log)
	default:
		err = fmt.Errorf("there is no role %q", cfg.Role)
	}
	if err == nil {
		sayLeft(before)
	}
	return err
}

// say writes a line for the parent.
func say(words ...any) { _, _ = fmt.Println(words...) }

// sayHeld says what the process holds, what is garbage aside.
func sayHeld() {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	now := leftovers()
	say(Held, now.goroutines, now.files, m.HeapAlloc)
}

// writeProfile writes what is in memory to path.heap, as of the last collection and without making one, what its
// goroutines do to path.goroutine, and the runtime's figures to path.json.
func writeProfile(path string) error {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	figures, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".json", figures, 0o600); err != nil {
		return err
	}
	for name, detail := range map[string]int{"heap": 0, "goroutine": 1} {
		f, err := os.Create(path + "." + name)
		if err != nil {
			return err
		}
		if err := errors.Join(pprof.Lookup(name).WriteTo(f, detail), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

type leftover struct{ goroutines, files int }

func leftovers() leftover {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return leftover{}
	}
	return leftover{runtime.NumGoroutine(), len(files)}
}

// sayLeft says what the process has more than when it began, the goroutines of its
// standard input and of signals aside, when that has come to rest.
func sayLeft(before leftover) {
	const own = 3 // standard input, signal.NotifyContext, os/signal's loop
	now := leftovers()
	for range 50 { // a goroutine that has done its last step may still be counted
		if now.goroutines <= before.goroutines+own {
			break
		}
		time.Sleep(20 * time.Millisecond)
		now = leftovers()
	}
	goroutines := now.goroutines - before.goroutines - own
	if goroutines > 0 {
		out := bufio.NewWriter(os.Stderr)
		_ = pprof.Lookup("goroutine").WriteTo(out, 1)
		_ = out.Flush()
	}
	say(Left, max(goroutines, 0), max(now.files-before.files-runtimeFiles, 0))
}

// runtimeFiles are the runtime's own: its poller's.
const runtimeFiles = 2
