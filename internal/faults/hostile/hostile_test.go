//go:build linux && !race

package hostile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/client"
	"github.com/harpcaller/harp/internal/faults"
	"github.com/harpcaller/harp/internal/faults/actor"
	"github.com/harpcaller/harp/transport"
)

var (
	long     = os.Getenv("HARP_FAULTS") == "long"
	alone    = os.Getenv("HARP_HOSTILE_ALONE")    // the name of a lie
	atOnce   = os.Getenv("HARP_HOSTILE_FOR")      // how long all are told at once
	profiles = os.Getenv("HARP_HOSTILE_PROFILES") // a directory: there processes write what they hold, when it is much
	program  string                               // what processes run
	report   = &faults.Report{Form: "short"}
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

// run builds the program and writes the figures.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "harp-hostile-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir) //nolint:errcheck // what is left is in the directory of temporary files
	program = filepath.Join(dir, "actor")
	if out, err := exec.CommandContext(context.Background(), "go", "build", "-ldflags=-s -w", "-o", program, "../cmd").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	code := m.Run()
	if path := os.Getenv("HARP_FAULTS_REPORT"); path != "" && long {
		report.Form = "long"
		path = filepath.Join(filepath.Dir(path), "hostile-"+filepath.Base(path))
		if err := report.Write(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

const (
	mebi = 1 << 20

	// What a process may have more than at rest, while lies are told to it.
	dispatcherRoom = 512 * mebi
	agentRoom      = 256 * mebi

	// patience bounds what must happen at all, on a machine that is busy.
	patience = time.Minute

	// What a process may have more than at rest, when all is over: caches fill, and up to
	// 256 goroutines are kept for the next calls.
	slackGoroutines = 256 + 64
	slackFiles      = 24
	slackHeap       = 64 * mebi
	slackStore      = 128 * mebi // of a dispatcher more, for what its store writes by and by

	// What a process may log because of one lie. Lies come from many networks and under many names, and what the
	// first of these do is counted apart.
	mostLines     = 100
	mostLinesLong = 4096

	// lieFor is how long each lie is told in the long form.
	lieFor = 10 * time.Second
)

// victim is a process that is lied to.
type victim struct {
	name    string
	process *faults.Process
	room    int64 // bytes above rest
	slack   int64 // bytes of heap above rest, when all is over
	memory  int64 // at rest
	rest    faults.Held
	log     string // its path
	lines   int    // that it has logged before a lie
	dir     string // of its files
	store   string // the directory of its store; "" if it has none
}

// stage is a scene with honest callers.
type stage struct {
	scene
	fleet   *faults.Fleet
	source  atomic.Uint32
	victims []*victim
	caller  *harp.Caller
	direct  *client.DirectHost
	usual   map[role]time.Duration // the median of honest calls, by to whom lies are told
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newStage starts a dispatcher with an agent, and an agent that waits to be dialled.
func newStage(t *testing.T) *stage {
	t.Helper()
	f, err := faults.NewFleet(t.TempDir(), program)
	must(t, err)
	t.Cleanup(func() {
		f.Kill()
		if t.Failed() {
			showLogs(t, f)
		}
	})
	f.Dispatcher.Secrets = filepath.Join(f.Dir, "secrets")
	must(t, os.Mkdir(f.Dispatcher.Secrets, 0o700))
	must(t, os.WriteFile(filepath.Join(f.Dispatcher.Secrets, "key"), []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqr\n"), 0o600))
	s := &stage{fleet: f, usual: map[role]time.Duration{}}
	must(t, f.StartDispatcher())
	s.scene = scene{dispatcher: f.Addr, host: "idle", called: "called"}
	s.calledAt = s.startAgent(t, s.called, f.Addr)
	s.agent = s.startAgent(t, s.host, "")
	s.ca, err = openAuthority(filepath.Join(f.Dir, "ca"))
	must(t, err)
	s.caller, err = f.Dial(t.Context(), "honest")
	must(t, err)
	t.Cleanup(func() { _ = s.caller.Close() })
	s.direct, err = s.dialAgent(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = s.direct.Close() })
	log := func(of string) string { return filepath.Join(f.Dir, of+".log") }
	s.victims = []*victim{{
		name: "the dispatcher", process: f.DispatcherProcess(), log: log("dispatcher"),
		room: dispatcherRoom, slack: slackHeap + slackStore, dir: f.Dispatcher.Dir, store: f.Dispatcher.Dir,
	}}
	for _, name := range []string{s.called, s.host} {
		s.victims = append(s.victims, &victim{
			name: "the agent " + name, process: f.AgentProcess(name), log: log(name), dir: f.AgentDir(name), room: agentRoom, slack: slackHeap,
		})
	}
	s.awaitOnline(t, s.called)
	s.comeToRest(t)
	return s
}

// awaitOnline waits until the dispatcher has an agent.
func (s *stage) awaitOnline(t *testing.T, name string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		h, err := s.caller.Hosts().Get(t.Context(), name)
		if err == nil && h.Online {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not online: %v", name, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// startAgent starts an agent and returns where it can be dialled.
func (s *stage) startAgent(t *testing.T, name, connect string) string {
	t.Helper()
	addr, err := faults.FreeAddr()
	must(t, err)
	s.fleet.Agent.Listen, s.fleet.Agent.Connect = addr, connect
	must(t, s.fleet.StartAgent(name))
	return addr
}

func (s *stage) dialAgent(ctx context.Context) (*client.DirectHost, error) {
	tc, err := s.fleet.TLS(transport.RoleCaller, "honest")
	if err != nil {
		return nil, err
	}
	return client.DialAgent(ctx, s.agent, client.Config{TLS: tc})
}

// comeToRest makes some honest calls and notes what the processes hold then.
func (s *stage) comeToRest(t *testing.T) {
	t.Helper()
	for _, to := range []role{dispatcher, agent} {
		var times faults.Times
		for range 20 {
			took, err := s.callHonestly(t.Context(), to)
			must(t, err)
			times = append(times, took)
		}
		s.usual[to] = times.Quantile(0.5)
	}
	for _, v := range s.victims {
		var err error
		v.rest = v.askHeld(t)
		v.memory, err = v.process.Memory()
		must(t, err)
	}
}

// callHonestly makes a call that must succeed.
func (s *stage) callHonestly(ctx context.Context, to role) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	begun := time.Now()
	if to == agent {
		err := s.callDirectly(ctx)
		for errors.Is(err, harp.ErrRejected) && ctx.Err() == nil { // a dispatcher may have all that there is room for
			time.Sleep(time.Millisecond)
			err = s.callDirectly(ctx)
		}
		return time.Since(begun), err
	}
	job, err := s.caller.Host(s.called).Call(ctx, actor.Work, actor.Args{Records: 1}, harp.OfflineWait(harp.NoLimit))
	if err == nil {
		_, err = job.Get(ctx)
	}
	return time.Since(begun), err
}

func (s *stage) callDirectly(ctx context.Context) error {
	c, err := s.direct.Call(ctx, actor.Work, actor.Args{Records: 1})
	if err == nil {
		_, err = c.Get()
	}
	return err
}

// dialHonestly opens a session that must succeed.
func (s *stage) dialHonestly(ctx context.Context, to role) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if to == agent {
		a, err := s.dialAgent(ctx)
		if err != nil {
			return err
		}
		return a.Close()
	}
	c, err := s.fleet.Dial(ctx, "honest")
	if err != nil {
		return err
	}
	return c.Close()
}

// TestLies tells every lie, in the short form to three fleets at a time.
func TestLies(t *testing.T) {
	checkTable(t)
	if atOnce != "" {
		playAtOnce(t)
		return
	}
	for name, liars := range map[string][]role{"nobody": {nobody}, "callers": {caller}, "agents and dispatchers": {agent, dispatcher}} {
		t.Run(name, func(t *testing.T) {
			if !long {
				t.Parallel()
			}
			var told []lie
			for _, l := range lies {
				if slices.Contains(liars, l.as) && isTold(l) {
					told = append(told, l)
				}
			}
			playAll(t, told)
		})
	}
}

// isTold reports whether a lie is to be told in this run.
func isTold(l lie) bool {
	if alone != "" {
		return l.name == alone
	}
	return long || l.hurts == ""
}

// playAll tells lies to a fleet of their own, one after the other.
func playAll(t *testing.T, told []lie) {
	if len(told) == 0 {
		return
	}
	s := newStage(t)
	for _, l := range told {
		t.Run(l.name, func(t *testing.T) { s.play(t, l) })
	}
	if !t.Failed() {
		must(t, s.caller.Close())
		must(t, s.direct.Close())
		must(t, s.fleet.Stop())
	}
}

// checkTable finds lies that would not be told.
func checkTable(t *testing.T) {
	t.Helper()
	seen := map[string]bool{}
	for _, l := range lies {
		if seen[l.name] || l.name == "" || l.tell == nil || l.to != dispatcher && l.to != agent {
			t.Errorf("lie %q: its name is another's, or it has nobody to be told to", l.name)
		}
		seen[l.name] = true
	}
	if alone != "" && !seen[alone] {
		t.Fatalf("HARP_HOSTILE_ALONE: there is no lie %q", alone)
	}
}

// tellOnce tells a lie, and clears away what it has opened. kept is called when the lie is told and
// kept up.
func (s *stage) tellOnce(ctx context.Context, l lie, kept func()) error {
	ctx, cancel := context.WithCancel(ctx)
	t := &teller{scene: &s.scene, ctx: ctx, as: l.as, to: l.to, long: long, kept: kept, source: &s.source}
	defer t.work.Wait()
	defer cancel()
	return l.tell(t)
}

// play tells one lie, looks at what it does, and waits until nothing of it is left.
func (s *stage) play(t *testing.T, l lie) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, v := range s.victims {
		v.lines = countLines(t, v.log)
	}
	watch := s.watchMemory(func() string { return l.name })
	kept, over := make(chan struct{}), make(chan error, 1)
	var telling sync.WaitGroup
	telling.Go(func() { over <- s.tellLong(ctx, l, sync.OnceFunc(func() { close(kept) })) })
	times := s.callBeside(t, l, kept, over)
	cancel()
	telling.Wait()
	t.Logf("honest calls %v, usually %v", times, s.usual[l.to])
	report.Note(l.name, "honest calls", times.String())
	s.lookAtAll(t, l, watch())
	if t.Failed() {
		t.Logf("HARP_HOSTILE_ALONE=%q tells this lie alone; known of it: %q", l.name, l.hurts+l.long)
	}
}

// lookAtAll checks what must hold when a lie is over.
func (s *stage) lookAtAll(t *testing.T, l lie, memory map[*victim]int64) {
	t.Helper()
	most := mostLines
	if long {
		most = mostLinesLong
	}
	var took []string
	for _, v := range s.victims {
		s.checkAlive(t, v)
		grown := memory[v] - v.memory
		if grown > v.room {
			t.Errorf("%s took %d MiB more than at rest, at most %d", v.name, grown/mebi, v.room/mebi)
		}
		lines := countLines(t, v.log) - v.lines
		if lines > most {
			t.Errorf("%s logged %d lines, at most %d", v.name, lines, most)
		}
		took = append(took, fmt.Sprintf("%s %+d MiB %d lines", v.name, grown/mebi, lines))
		report.Note(l.name, v.name+" MiB", grown/mebi)
	}
	t.Log(strings.Join(took, ", "))
	if _, err := s.caller.Queues().Cancel(t.Context(), harp.Args{"name": lineOfLies}); err != nil && !errors.Is(err, harp.ErrNotFound) {
		t.Errorf("the calls that wait are not cancelled: %v", err)
	}
	s.clearDocuments(t)
	if _, err := s.callHonestly(t.Context(), l.to); err != nil {
		t.Errorf("an honest call afterwards: %v", err)
	}
	for _, v := range s.victims {
		s.awaitRest(t, v)
	}
	s.awaitBudgets(t)
}

// tellLong tells a lie, in the long form again and again.
func (s *stage) tellLong(ctx context.Context, l lie, kept func()) error {
	begun := time.Now()
	for again := false; ; again = true {
		err := s.tellOnce(ctx, l, kept)
		if (again || !long) && isHangUp(err) { // liars may be turned away, at the latest when they come again
			err = nil
		}
		if err != nil || !long || ctx.Err() != nil || time.Since(begun) > lieFor {
			return err
		}
	}
}

// isHangUp reports whether the other side has closed the connection.
func isHangUp(err error) bool {
	return errors.Is(err, errGone) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// callBeside makes honest calls while a lie is told, and a few more while it is kept up.
func (s *stage) callBeside(t *testing.T, l lie, kept <-chan struct{}, over <-chan error) (times faults.Times) {
	const least = 3
	begun := time.Now()
	told, more := false, least
	var until time.Time // it is kept up at least
	for !told || more > 0 || time.Now().Before(until) || long && time.Since(begun) < lieFor {
		took, err := s.callHonestly(t.Context(), l.to)
		if err == nil && len(times)%least == 0 {
			err = s.dialHonestly(t.Context(), l.to)
		}
		if err != nil {
			t.Errorf("an honest call beside it: %v", err)
			return times
		}
		times = append(times, took)
		select {
		case err := <-over:
			told, over = true, nil
			if err != nil {
				t.Errorf("it could not be told: %v", err)
				return times
			}
		case <-kept:
			if !told {
				told, until = true, time.Now().Add(150*time.Millisecond)
			}
		default:
			if time.Since(begun) > patience+lieFor {
				t.Errorf("it takes too long to tell it")
				return times
			}
		}
		if told {
			more--
		}
	}
	if limit := max(2*s.usual[l.to], 100*time.Millisecond); long && times.Quantile(0.5) > limit {
		t.Errorf("honest calls beside it took %v, without it %v", times, s.usual[l.to])
	}
	return times
}

// lies are all of them.
var lies = slices.Concat(liesOfNobody, liesOfCallers, liesOfDocuments, liesOfTimes, liesOfBatches, liesOfApprovals, liesOfChains, liesOfAgents, liesOfDispatchers)
