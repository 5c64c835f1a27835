//go:build linux && !race

package faults

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A mutant is harp with one promise broken on purpose: pieces of its source are
// replaced when it is built. What cannot find the mutants finds nothing.
type mutant []edit

// edit replaces a piece of a file, which is in it once.
type edit struct {
	file     string // from the root of the module
	old, new string
}

// root is the root of the module.
const root = "../.."

// overlay writes what go build needs to take the mutant for the source.
func (m mutant) overlay(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	sources := map[string]string{} // by path
	for _, e := range m {
		path, err := filepath.Abs(filepath.Join(root, e.file))
		must(t, err)
		source, is := sources[path]
		if !is {
			data, err := os.ReadFile(path)
			must(t, err)
			source = string(data)
		}
		if n := strings.Count(source, e.old); n != 1 {
			t.Fatalf("the mutant does not fit any more: %s has %d times %q", e.file, n, e.old)
		}
		sources[path] = strings.Replace(source, e.old, e.new, 1)
	}
	replace := map[string]string{}
	for path, source := range sources {
		changed := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		must(t, os.WriteFile(changed, []byte(source), 0o600))
		replace[path] = changed
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	must(t, err)
	overlay := filepath.Join(dir, "overlay.json")
	must(t, os.WriteFile(overlay, text, 0o600))
	return overlay
}

// build builds the program of the fleet as the mutant.
func (m mutant) build(t *testing.T) (mutated string) {
	t.Helper()
	mutated = filepath.Join(t.TempDir(), "mutant")
	must(t, build(t.Context(), mutated, m.overlay(t)))
	return mutated
}

// caught fails the test if nothing was found.
func caught(t *testing.T, broken []string) {
	t.Helper()
	report.Note(t.Name(), "violations found", len(broken))
	if len(broken) == 0 {
		t.Error("the mutant was not caught")
		return
	}
	t.Logf("found %d violations, such as %s", len(broken), broken[0])
}

// Acknowledged without fsync: only a power cut shows it.
func TestMutantNoSync(t *testing.T) {
	t.Parallel()
	m := mutant{{"store/badger/badger.go", "WithSyncWrites(true)", "WithSyncWrites(false)"}}
	if !inNamespace(t, m.build) {
		return
	}
	_, _, broken := powerCuts(t, 2, 2*time.Second)
	caught(t, broken)
}

// Acknowledged before the commit, which then takes a moment.
func TestMutantAckBeforeCommit(t *testing.T) {
	t.Parallel()
	const submit = "submit(ctx context.Context, calls []harp.Submission, who harp.Principal) ([]harp.Submitted, error) {\n"
	m := mutant{{"dispatcher/admission.go", "func (d *Dispatcher) " + submit, "func (d *Dispatcher) " + submit + `
		out := make([]harp.Submitted, len(calls))
		for i, c := range calls {
			req, err := harp.DecodeRequest(c.Request)
			if err != nil {
				return nil, err
			}
			out[i].ID = req.ID
		}
		go func() {
			time.Sleep(20 * time.Millisecond)
			_, _ = d.submitLater(context.WithoutCancel(ctx), calls, who)
		}()
		return out, nil
	}

	func (d *Dispatcher) submitLater(ctx context.Context, calls []harp.Submission, who harp.Principal) ([]harp.Submitted, error) {
	`}}
	f := newFleet(t)
	f.Program = m.build(t)
	must(t, f.StartDispatcher())
	all := callers(t, f, 2)
	startAgents(t, f, all[0], "host00")
	l := &Load{Fleet: f, Callers: all, Hosts: []string{"host00"}, Rate: 400, Workers: 32, Plain: true}
	underLoad(t, l, func(r *rand.Rand) {
		for range 3 {
			between(r, 300*time.Millisecond, 600*time.Millisecond)
			restartDispatcher(t, f, all[0])
		}
	})
	caught(t, settled(t, f, all[0]))
}

// START journalled after the procedure was run.
func TestMutantStartAfterExec(t *testing.T) {
	t.Parallel()
	m := mutant{{
		"agent/admission.go",
		"	if no := s.begin(at, late); no.is() {\n		at.refuse(no)\n		return nil, false, no\n	}\n",
		"	at.start()\n	at.returned.wait()\n	if no := s.begin(at, late); no.is() {\n		return nil, false, no\n	}\n",
	}}
	f := newFleet(t)
	f.Program = m.build(t)
	caught(t, suicide(t, f))
}

// No de-duplication: an attempt that the agent knows is started again.
func TestMutantNoDeduplication(t *testing.T) {
	t.Parallel()
	m := mutant{
		{"agent/admission.go", "if known := s.agent.lookup(k); known", "if known := (*attempt)(nil); known"},
		{"agent/admission.go", "if s.agent.hasForgotten(k) {", "if false {"},
		{"agent/attempts.go", "switch known := a.byKey[at.key]; {", "switch known := (*attempt)(nil); {"},
		{"agent/journal/calls.go", "		if j.stateLocked(k) != Absent {\n			return ErrKnown\n		}\n", ""},
	}
	f := newFleet(t)
	f.Program = m.build(t)
	caught(t, calledTwice(t, f))
}

// Records numbered from 0 again after each reconnect.
func TestMutantSeqReset(t *testing.T) {
	t.Parallel()
	m := mutant{
		{"agent/internal/life/peer.go", "	a.peer.next = from\n", "	a.peer.next, a.peer.origin = from, from\n"},
		{"agent/internal/life/peer.go", "type Peer struct {\n", "type Peer struct {\n	origin int64\n"},
		{"agent/internal/life/peer.go", "wire.Records{First: p.next, ", "wire.Records{First: p.next - p.origin, "},
	}
	broken := cutStreams(t, m.build(t))
	caught(t, broken)
}

// No fence check: a write about an attempt that is over is taken for one about the
// job. One dispatcher alone does not make such writes, so it is for the rules of
// stores to find.
func TestMutantNoFenceCheck(t *testing.T) {
	t.Parallel()
	m := mutant{{"store/life.go", "if e.Attempt != l.Attempt || e.Fence != l.Fence {", "if false {"}}
	caught(t, testsFail(t, m, "./store", "./store/memory"))
}

// A batch that is paused reaches its next hosts all the same.
func TestMutantPausedBatchGoesOn(t *testing.T) {
	t.Parallel()
	m := mutant{
		{"store/batchlife.go", "return l.State == harp.BatchRunning && l.Reached", "return (l.State == harp.BatchRunning || l.State == harp.BatchPaused) && l.Reached"},
		{"store/internal/rows/batch.go", "		b.asking, b.unasked = is == harp.BatchCancelling, nil\n		s.sched.Halt(b.slots, now)\n", "		if b.asking, b.unasked = is == harp.BatchCancelling, nil; b.asking {\n			s.sched.Halt(b.slots, now)\n		}\n"},
	}
	f := newFleet(t)
	f.Program = m.build(t)
	caught(t, killedBatches(t, f, pick(6, 12)))
}

// testsFail runs tests of the mutant; that they fail is what was found.
func testsFail(t *testing.T, m mutant, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"test", "-vet=off", "-count=1", "-failfast", "-overlay", m.overlay(t)}, args...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), programEnv+"="+program)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "--- FAIL") {
			return []string{strings.TrimSpace(line)}
		}
	}
	t.Fatalf("%v\n%s", err, out)
	return nil
}
