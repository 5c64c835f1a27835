//go:build linux

package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
)

// onSync is a directory where something happens before a file is synced, once.
type onSync struct {
	journal.FS
	do *atomic.Pointer[func()]
}

func newOnSync(fs journal.FS) onSync { return onSync{fs, new(atomic.Pointer[func()])} }

func (o onSync) Open(name string) (journal.File, error) {
	f, err := o.FS.Open(name)
	return onSyncFile{f, o}, err
}

func (o onSync) Create(name string) (journal.File, error) {
	f, err := o.FS.Create(name)
	return onSyncFile{f, o}, err
}

type onSyncFile struct {
	journal.File
	of onSync
}

func (f onSyncFile) Sync() error {
	if do := f.of.do.Swap(nil); do != nil {
		(*do)()
	}
	return f.File.Sync()
}

// supervisors are the supervisors that this process has started, and that live.
func supervisors(t *testing.T) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		argv, _ := os.ReadFile(path)
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(path), "stat"))
		if err != nil || !strings.HasPrefix(string(argv), "harp-supervise") {
			continue // or it has ended just now
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); fields[0] == "Z" || fields[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// A command whose supervisor is killed when its start is journalled, before it was told to
// begin, was not started: it is not lost, and may be asked for again.
func TestSupervisorDiesBeforeTheCommandBegins(t *testing.T) {
	disk := newOnSync(journal.NewMemory())
	dir, load := t.TempDir(), procedureDir(t, commands)
	a := newAgent(t, loopback{}, func(c *agent.Config) { c.Dir, c.Journal = dir, disk })
	if err := a.Load(load); err != nil {
		t.Fatal(err)
	}
	d := listen(t, loopback{})
	r := run(t, func(ctx context.Context) error { return a.Connect(ctx, d.addr) })
	defer r.wait()
	defer r.stop()
	peer := <-d.sessions
	kill := func() {
		for _, pid := range supervisors(t) {
			signalTo(t, pid, syscall.SIGKILL)
		}
	}
	disk.do.Store(&kill)
	id := harp.NewID()
	same := func(_ *wire.Call, r *harp.Request) { r.ID = id }
	if reason := peer.call("say", harp.Args{"what": "x"}, same).notNow(); reason != wire.NotNowNoSpace {
		t.Errorf("it is put off for %s", reason)
	}
	end, records := peer.call("say", harp.Args{"what": "x"}, same).accepted().rest()
	if end.Gone || !strings.HasPrefix(linesOf(t, records, "stdout"), "x|") {
		t.Errorf("asked again it ended with %+v", end)
	}
}
