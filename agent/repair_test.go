package agent_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/agent/journal"
)

// journalDir is an agent's directory with a journal of two attempts, of which one ended.
func journalDir(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(journal.Disk(filepath.Join(dir, "journal")), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []journal.Key{{Job: "a", Attempt: 1}, {Job: "b", Attempt: 1}} {
		if err := j.AcceptStart(k, journal.Accept{Info: []byte(infoOf)}, time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := j.End(journal.Key{Job: "b", Attempt: 1}, journal.End{Body: []byte("end")}); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// infoOf is what is journalled of the attempts in journalDir.
var infoOf = string(make([]byte, 100))

// damage changes a byte of the journal where it first holds these.
func damage(t *testing.T, dir, content string) {
	t.Helper()
	name := filepath.Join(dir, "journal", "0000000000000001.journal")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(data, []byte(content))
	if at < 0 {
		t.Fatal("the journal does not hold what is to be damaged")
	}
	data[at] ^= 1
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestRepairJournal: a damaged journal is kept aside, and one of what can be read, with
// another id, is in its place; a sound one is left alone.
func TestRepairJournal(t *testing.T) {
	dir := journalDir(t)
	sound, err := agent.CheckJournal(dir)
	if err != nil || len(sound.Damage) > 0 || len(sound.Held) != 2 {
		t.Fatalf("%+v, %v", sound, err)
	}
	if did, err := agent.RepairJournal(dir); err != nil || did.NewID != "" || did.Aside != "" {
		t.Errorf("a sound journal: %+v, %v", did, err)
	}
	damage(t, dir, infoOf)
	for _, left := range []string{"journal.repairing", "journal.repaired"} { // by a repair that was interrupted
		if err := os.MkdirAll(filepath.Join(dir, left, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	did, err := agent.RepairJournal(dir)
	if err != nil || len(did.Damage) != 1 || len(did.Held) != 1 || did.Held[0].Job != "b" || did.ID != sound.ID {
		t.Fatalf("%+v, %v", did, err)
	}
	after, err := agent.CheckJournal(dir)
	if err != nil || len(after.Damage) > 0 || after.ID != did.NewID || after.ID == sound.ID || len(after.Held) != 1 {
		t.Errorf("afterwards %+v, %v", after, err)
	}
	aside, err := journal.Check(journal.Disk(did.Aside))
	if err != nil || len(aside.Damage) != 1 || !strings.HasPrefix(did.Aside, filepath.Join(dir, "journal.damaged-")) {
		t.Errorf("aside, in %s: %+v, %v", did.Aside, aside, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "journal.repair*")); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// TestRepairIsSyncedBetweenItsRenames: before the damaged journal is out of its place the
// directory was synced with the repaired one, which would be lost beside it with the power, and
// once more at the end.
func TestRepairIsSyncedBetweenItsRenames(t *testing.T) {
	dir := journalDir(t)
	damage(t, dir, infoOf)
	var synced []string
	fail := errors.New("the disk is gone")
	agent.OnSyncRenames(t, func(of string) error {
		names, err := filepath.Glob(filepath.Join(of, "journal*"))
		for i, name := range names {
			names[i], _, _ = strings.Cut(filepath.Base(name), "-")
		}
		synced = append(synced, strings.Join(names, " "))
		return errors.Join(err, fail)
	})
	if did, err := agent.RepairJournal(dir); !errors.Is(err, fail) || did.NewID != "" {
		t.Errorf("without a sync: %+v, %v", did, err)
	}
	fail = nil
	if did, err := agent.RepairJournal(dir); err != nil || did.NewID == "" {
		t.Errorf("%+v, %v", did, err)
	}
	before := "journal journal.repaired"
	if want := []string{before, before, "journal journal.damaged"}; !slices.Equal(synced, want) {
		t.Errorf("there is at each sync %q, want %q", synced, want)
	}
}

// interruptedRepair is an agent's directory where a repair was interrupted before it put the
// repaired journal in its place.
func interruptedRepair(t *testing.T) (dir string, did agent.JournalRepair) {
	t.Helper()
	dir = journalDir(t)
	damage(t, dir, infoOf)
	did, err := agent.RepairJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "journal"), filepath.Join(dir, "journal.repaired")); err != nil {
		t.Fatal(err)
	}
	return dir, did
}

// TestInterruptedRepair: what was repaired and not yet put in its place is put there by the
// next repair.
func TestInterruptedRepair(t *testing.T) {
	dir, first := interruptedRepair(t)
	if did, err := agent.RepairJournal(dir); err != nil || did.NewID != "" || did.ID != first.NewID {
		t.Errorf("%+v, %v; the new journal is %s", did, err, first.NewID)
	}
}

// TestRepairKeepsOut: neither is done where there is no journal, nor beside an agent.
func TestRepairKeepsOut(t *testing.T) {
	for name, do := range map[string]func(dir string) error{
		"check":  func(dir string) error { _, err := agent.CheckJournal(dir); return err },
		"repair": func(dir string) error { _, err := agent.RepairJournal(dir); return err },
	} {
		var field *harp.FieldError
		if err := do(filepath.Join(t.TempDir(), "none")); !errors.As(err, &field) || field.Field != "dir" {
			t.Errorf("%s of nothing: %v", name, err)
		}
		for _, file := range []string{"journal", "journal.repaired"} {
			odd := t.TempDir()
			if err := os.WriteFile(filepath.Join(odd, file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := do(odd); !errors.As(err, &field) || field.Field != "dir" {
				t.Errorf("%s where %s is a file: %v", name, file, err)
			}
			if _, err := os.Stat(filepath.Join(odd, file)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		dir := journalDir(t)
		damage(t, dir, infoOf)
		unlock, err := agent.LockDir(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) { // it waits a moment
			var used *agent.DirInUseError
			if err := do(dir); !errors.As(err, &used) {
				t.Errorf("%s beside an agent: %v", name, err)
			}
		})
		unlock()
		if err := do(dir); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAgentAfterAnInterruptedRepair: what was repaired and not yet put in its place is what
// the next agent goes on with; with an empty journal all of that would be lost.
func TestAgentAfterAnInterruptedRepair(t *testing.T) {
	dir, first := interruptedRepair(t)
	a := newAgent(t, loopback{}, func(c *agent.Config) { c.Dir = dir })
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Connect(over, "nowhere"); err != nil {
		t.Fatal(err)
	}
	found, err := agent.CheckJournal(dir)
	if err != nil || found.ID != first.NewID || len(found.Held) != 1 {
		t.Errorf("the agent has %+v, %v; the repaired journal was %s", found, err, first.NewID)
	}
}

// failSyncs makes the syncs of renames fail that come after so many, and returns how many came.
func failSyncs(t *testing.T, after int) (came *int) {
	came = new(int)
	agent.OnSyncRenames(t, func(string) error {
		if *came++; *came > after {
			return errors.New("the disk is gone")
		}
		return nil
	})
	return came
}

// TestRepairWhoseLastSyncFails: that the renames may not last is said, with where the damaged
// journal is.
func TestRepairWhoseLastSyncFails(t *testing.T) {
	dir := journalDir(t)
	damage(t, dir, infoOf)
	failSyncs(t, 1)
	did, err := agent.RepairJournal(dir)
	if err == nil || did.NewID == "" || did.Aside == "" {
		t.Errorf("%+v, %v", did, err)
	}
}

// TestInterruptedRepairThatCannotBeFinished: nobody goes on with what may not last, and the
// directory is not locked afterwards.
func TestInterruptedRepairThatCannotBeFinished(t *testing.T) {
	for name, do := range map[string]func(dir string) error{
		"agent": func(dir string) error {
			over, cancel := context.WithCancel(t.Context())
			cancel()
			return newAgent(t, loopback{}, func(c *agent.Config) { c.Dir = dir }).Connect(over, "nowhere")
		},
		"repair": func(dir string) error { _, err := agent.RepairJournal(dir); return err },
	} {
		t.Run(name, func(t *testing.T) {
			dir, _ := interruptedRepair(t)
			came := failSyncs(t, 0)
			if err := do(dir); err == nil || *came != 1 {
				t.Errorf("after %d syncs: %v", *came, err)
			}
			if err := do(dir); err != nil {
				t.Errorf("then: %v", err)
			}
		})
	}
}

// TestLockThatIsALink: neither an agent nor a program that looks for one follows a link, which may lead
// anywhere.
func TestLockThatIsALink(t *testing.T) {
	dir, other := t.TempDir(), filepath.Join(t.TempDir(), "other")
	if err := errors.Join(os.WriteFile(other, nil, 0o600), os.Symlink(other, filepath.Join(dir, "lock"))); err != nil {
		t.Fatal(err)
	}
	if unlock, err := agent.LockDir(t.Context(), dir); err == nil {
		unlock()
		t.Error("it is locked")
	}
	if pid, err := agent.FindProcess(dir); err == nil || errors.Is(err, harp.ErrNotFound) {
		t.Errorf("process %d, %v", pid, err)
	}
}
