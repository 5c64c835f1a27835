//go:build linux && !race

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/faults/history"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/badger"
)

// worked runs a fleet under load for a moment and kills it. Its files are as a kill
// leaves them.
func worked(t *testing.T, lasts time.Duration) *Fleet {
	t.Helper()
	f := newFleet(t)
	must(t, f.StartDispatcher())
	all := callers(t, f, 2)
	const host = "host00"
	startAgents(t, f, all[0], host)
	l := &Load{Fleet: f, Callers: all, Hosts: []string{host}, Rate: 400, Workers: 32}
	underLoad(t, l, func(*rand.Rand) {
		time.Sleep(lasts)
		must(t, f.KillAgent(host))
		f.KillDispatcher()
		for _, c := range all { // nobody waits for one that does not come back
			must(t, c.Close())
		}
	})
	return f
}

// harm changes the last 64 KiB of one file: it is cut there, or a bit is flipped.
func harm(r *rand.Rand, path string) (what string, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	end := len(data)
	for end > 0 && data[end-1] == 0 { // what was reserved and not written yet
		end--
	}
	if end == 0 {
		return "", nil
	}
	at := end - 1 - r.IntN(min(end, 64<<10))
	if r.IntN(2) == 0 {
		return fmt.Sprintf("%s cut at %d of %d", filepath.Base(path), at, end), os.WriteFile(path, data[:at], 0o600)
	}
	data[at] ^= 1 << r.IntN(8)
	return fmt.Sprintf("%s flipped at %d of %d", filepath.Base(path), at, end), os.WriteFile(path, data, 0o600)
}

// harmed is a copy of a directory with one file harmed.
func harmed(t *testing.T, r *rand.Rand, dir string) (damaged, what string) {
	t.Helper()
	damaged = filepath.Join(t.TempDir(), "copy")
	command(t, "cp", "-r", "--sparse=always", dir, damaged) // most of what badger reserves is not written yet
	files, err := filepath.Glob(filepath.Join(damaged, "*"))
	must(t, err)
	for range 100 {
		path := files[r.IntN(len(files))]
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || filepath.Base(path) == "LOCK" {
			continue
		}
		what, err := harm(r, path)
		must(t, err)
		if what != "" {
			return damaged, what
		}
	}
	return damaged, "nothing"
}

// T5 of the store: it opens, or refuses and says what is damaged, and what it then
// tells is what was stored.
func TestDamagedStore(t *testing.T) {
	t.Parallel()
	f := worked(t, time.Second)
	r := rand.New(rand.NewPCG(report.Seed, 5))
	opened := 0
	n := pick(12, 1000)
	for i := range n {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			dir, what := harmed(t, r, f.Dispatcher.Dir)
			defer os.RemoveAll(dir) //nolint:errcheck // the test's directory is removed later
			st, err := badger.Open(dir, nil)
			if err != nil {
				if !strings.Contains(err.Error(), dir) {
					t.Errorf("%s: the refusal does not name the directory: %v", what, err)
				}
				return
			}
			opened++
			defer st.Close()
			for _, c := range f.History.Calls() {
				compare(t, what, c, func() ([]harp.Record, error) { return st.Read(t.Context(), c.ID, 0, store.ReadLimit{Bytes: 1 << 20}) })
			}
		})
	}
	report.Note(t.Name(), "opened", fmt.Sprintf("%d of %d", opened, n))
}

// compare holds what is read of a job against what its procedure must have emitted.
func compare(t *testing.T, what string, c *history.Call, read func() ([]harp.Record, error)) {
	t.Helper()
	records, err := read()
	if err != nil {
		return // said, not made up
	}
	h := history.New()
	copied := *c
	copied.Seen, copied.Gaps = nil, 0
	copied.Final = &history.Final{Status: harp.JobStatus{State: harp.StateLost}, Records: records}
	h.Invoke(copied)
	for _, v := range h.Check() {
		if v.Rule == "I4" {
			t.Errorf("%s: %s", what, v)
		}
	}
}

// T5 of the agent's journal.
func TestDamagedJournal(t *testing.T) {
	t.Parallel()
	f := worked(t, time.Second)
	dir := journalDir(f.AgentDir("host00"))
	if dir == "" {
		t.Fatal("the agent keeps no journal")
	}
	r := rand.New(rand.NewPCG(report.Seed, 6))
	opened := 0
	n := pick(40, 1000)
	for range n {
		damaged, what := harmed(t, r, dir)
		j, err := journal.Open(journal.Disk(damaged), journal.Options{})
		var corrupt *journal.CorruptError
		switch {
		case err == nil:
			opened++
			must(t, j.Close())
		case errors.As(err, &corrupt) && corrupt.File != "":
		default:
			t.Errorf("%s: the refusal does not name the file: %v", what, err)
		}
		must(t, os.RemoveAll(damaged))
	}
	report.Note(t.Name(), "opened", fmt.Sprintf("%d of %d", opened, n))
}

// T7: files that were made and not yet given their size.
func TestEmptyFilesAfterKill(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for i := range pick(6, 500) {
		must(t, f.StartDispatcher())
		f.KillDispatcher()
		for _, name := range []string{"%05d.mem", "%06d.vlog"} {
			must(t, os.WriteFile(filepath.Join(f.Dispatcher.Dir, fmt.Sprintf(name, 90+i)), nil, 0o600))
		}
	}
	must(t, f.StartDispatcher())
	ctx, cancel := context.WithTimeout(t.Context(), readyWithin)
	defer cancel()
	caller, err := f.Dial(ctx, "caller")
	must(t, err)
	_, err = caller.Ping(ctx)
	must(t, err)
	must(t, caller.Close())
	must(t, f.Stop())
}
