package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/supervisor"
	"github.com/harpcaller/harp/agent/journal"
)

// JournalRepair is what [RepairJournal] did.
type JournalRepair struct {
	journal.Report        // of the damaged journal
	NewID          string // of the one in its place; empty: nothing was changed
	Aside          string // the folder where the damaged one is now
}

// CheckJournal reads the journal in an agent's directory, as far as it can be read, and
// changes nothing; root can read that of another user's agent. Errors: *DirInUseError while an agent uses it; a
// *harp.FieldError for dir if no journal is there; those of the files.
func CheckJournal(dir string) (journal.Report, error) {
	if info, err := os.Stat(filepath.Join(dir, "journal")); errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return journal.Report{}, noJournal(dir)
	}
	unlock, err := lockToRead(dir)
	if err != nil {
		return journal.Report{}, err
	}
	defer unlock()
	found, err := journal.Check(journal.DiskToRead(filepath.Join(dir, "journal")))
	if err != nil {
		return found, fmt.Errorf("agent: %w", err)
	}
	return found, nil
}

// RepairJournal puts a journal of what can be read in the place of a damaged one, which is
// kept aside, and does nothing to one that can be opened. What could be read goes on with
// the next agent. The journal is another one then: a dispatcher takes what it had sent to the
// host, and the agent does not tell of, for lost with its journal. Errors: as CheckJournal.
func RepairJournal(dir string) (JournalRepair, error) {
	unlock, err := lockJournal(dir, "journal", repairedName)
	if err != nil {
		return JournalRepair{}, err
	}
	defer unlock()
	if err := finishRepair(dir); err != nil {
		return JournalRepair{}, fmt.Errorf("agent: %w", err)
	}
	did, err := repairJournal(dir)
	if err != nil {
		return did, fmt.Errorf("agent: %w", err)
	}
	return did, nil
}

// What the new journal is called until it is whole, and then until the damaged one is out
// of its place.
const (
	repairingName = "journal.repairing"
	repairedName  = "journal.repaired"
)

// finishRepair ends a repair that was interrupted when the damaged journal was out of the
// way and the new one, which is whole then, not yet in its place. The caller has locked
// the directory.
func finishRepair(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, "journal")); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := os.Rename(filepath.Join(dir, repairedName), filepath.Join(dir, "journal"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return syncRenames(dir)
}

func repairJournal(dir string) (did JournalRepair, err error) {
	damaged, repaired := filepath.Join(dir, "journal"), filepath.Join(dir, repairedName)
	did.Report, err = journal.Check(journal.Disk(damaged))
	if err != nil || len(did.Damage) == 0 {
		return did, err
	}
	repairing := filepath.Join(dir, repairingName)
	if err := errors.Join(os.RemoveAll(repairing), os.RemoveAll(repaired)); err != nil { // of a repair that was interrupted
		return did, err
	}
	supervised, err := supervisedIn(dir)
	if err != nil {
		return did, err
	}
	if did.Report, err = journal.Salvage(journal.Disk(damaged), journal.Disk(repairing), supervised...); err != nil {
		return did, err
	}
	after, err := journal.Check(journal.Disk(repairing))
	if err != nil {
		return did, err
	}
	if err := os.Rename(repairing, repaired); err != nil {
		return did, err
	}
	if err := syncRenames(dir); err != nil { // else the damaged one may be out of its place without the other
		return did, err
	}
	aside := filepath.Join(dir, "journal.damaged-"+time.Now().UTC().Format("20060102T150405.000000000Z"))
	if err := os.Rename(damaged, aside); err != nil {
		return did, err
	}
	if err := os.Rename(repaired, damaged); err != nil {
		return did, err
	}
	did.NewID, did.Aside = after.ID, aside
	return did, syncRenames(dir)
}

// supervisedIn are the attempts that supervisors in a directory know more of than a journal
// that has them in part: the next agent takes those on.
func supervisedIn(dir string) ([]journal.Key, error) {
	list, err := supervisor.List(supervisionIn(dir))
	if err != nil {
		return nil, err
	}
	keys := make([]journal.Key, len(list))
	for i, k := range list {
		keys[i] = journal.Key{Job: k.Job, Attempt: k.Attempt}
	}
	return keys, nil
}

// lockJournal keeps agents out of a directory that has a journal by one of the names.
func lockJournal(dir string, names ...string) (unlock func(), err error) {
	if !slices.ContainsFunc(names, func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return !errors.Is(err, fs.ErrNotExist)
	}) {
		return nil, noJournal(dir)
	}
	if err := prepareDir(dir); err != nil {
		return nil, err
	}
	return lockDir(context.Background(), dir)
}

func noJournal(dir string) error {
	return &harp.FieldError{Field: "dir", Message: "no journal in " + dir}
}

// syncRenames makes renames in a directory last.
var syncRenames = func(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // where a directory cannot be synced, and need not be
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
